"""Tests of indextts/webui/data/transcribe_view.py: recordings without texts become pairs, on the page."""

import shutil
from pathlib import Path

import pytest

from indextts.commands.data import CheckData, Transcribe
from indextts.data.transcribing.agreement import AgreementReport, Point
from indextts.errors import UserError
from indextts.projects.project import Project, ProjectSettings, make_settings
from indextts.projects.stages import plan_imports
from indextts.webui.data.transcribe_view import agreement_html, prepare, recordings_html
from indextts.webui.data.uploads import store_recordings
from indextts.webui.language import t
from tests.import_sources import write_tone
from tests.one_project import OneProject

FORM = ("", "", "file", "", 2.0, 15.0, "")  # folder, recognizers, speakers, speaker, and the fields


@pytest.fixture
def project(tmp_path: Path) -> Project:
    project = Project(tmp_path / "workspace/voice")
    write_tone(project.recordings / "talk.wav")
    write_tone(project.recordings / "other.flac")
    return project


@pytest.fixture
def page(project: Project) -> OneProject:
    return OneProject(project)


@pytest.fixture
def settings(tmp_path: Path) -> ProjectSettings:
    return make_settings(name="voice", base=tmp_path / "base")


def test_one_job_transcribes_imports_and_checks(
    page: OneProject, project: Project, settings: ProjectSettings
):
    (project.root.parent / "one").mkdir()
    form = ("", "one\nowner/two", "file", "", 3.0, 15.0, "0.05")
    found = prepare(page, project, settings, *form)
    transcribe, imported, check = found.commands
    assert isinstance(transcribe, Transcribe)
    assert transcribe.source == [project.recordings]
    assert transcribe.asr == [str(project.root.parent / "one"), "owner/two"]
    assert (transcribe.min_clip_s, transcribe.max_disagreement) == (3.0, 0.05)
    assert imported.manifest == transcribe.output_dir / "manifest.jsonl"
    assert isinstance(check, CheckData)
    assert check.train_manifest == project.manifest
    assert not found.outlook.blockers


def test_a_later_import_takes_the_transcription_too(project: Project, settings: ProjectSettings):
    project.transcribed.mkdir(parents=True)
    (project.transcribed / "manifest.jsonl").touch()
    [found] = plan_imports(project, settings)
    assert found.manifest == project.transcribed / "manifest.jsonl"


@pytest.mark.parametrize(
    "form",
    [FORM, ("", "a/b\nc/d\ne/f", *FORM[2:]), ("/etc", "a/b", *FORM[2:]), ("", "a/b", *FORM[2:-1], "much")],
    ids=["no recognizer", "three recognizers", "outside", "no number"],
)
def test_a_wrong_form_is_refused(page: OneProject, project: Project, settings: ProjectSettings, form):
    found = prepare(page, project, settings, *form)
    assert found.error
    assert [each.kind for each in found.outlook.blockers] == ["unfilled" if form == FORM else "problem"]
    assert found.outlook.facts  # of the recordings


def test_what_is_missing_prevents_the_start(page: OneProject, project: Project, settings: ProjectSettings):
    form = ("", "a/b", "voices", "", 2.0, 15.0, "")
    found = prepare(page, project, settings, *form).outlook
    assert len(found.blockers) == 1  # no weights that tell voices
    assert len(found.notes) == 1  # one recognizer
    shutil.rmtree(project.recordings)
    for asked in (form, FORM):  # recordings come first, before recognizers
        [blocker] = prepare(page, project, settings, *asked).outlook.blockers
        assert blocker.link == "#data/raw-upload"


def test_uploads_are_recordings_only(project: Project, tmp_path: Path):
    received = tmp_path / "received"
    write_tone(received / "new.wav")
    stored = store_recordings(project, [str(received / "new.wav")], received)
    assert stored == [project.recordings / "new.wav"]
    assert "new.wav" in recordings_html(project)
    (received / "text.txt").write_text("ሰላም")
    with pytest.raises(UserError, match=r"text\.txt"):
        store_recordings(project, [str(received / "text.txt")], received)
    assert not (received / "text.txt").exists()
    with pytest.raises(UserError):
        store_recordings(project, ["/etc/hostname"], received)


def test_the_result_shows_the_yield_of_each_limit():
    curve = [Point(0.0, 10, 0.02, 0.0), Point(0.03, 14, 0.03, 0.004), Point(0.2, 20, 0.04, 0.05)]
    report = AgreementReport(["<one>", "two"], 0.03, True, 20, 0.04, 14, 0.03, 0, curve, "Whisper")
    html = agreement_html(report)
    assert "Whisper" in html
    assert "75 %" in html
    assert html.count('class="chosen"') == 1
    assert "&lt;one&gt;" in html
    assert "<polyline" in html
    alone = agreement_html(AgreementReport(["one"], None, True, 20, 0.04, 0, 0.0, 0, []))
    assert t("data.one_recognizer") in alone
    assert agreement_html(None) == ""
