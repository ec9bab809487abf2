"""Tests of indextts/webui/data/transcribe_view.py: recordings without texts become pairs, on the page."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import soundfile
from playwright.sync_api import Browser, expect

from demo.make_base_checkpoint import main as make_base_checkpoint
from indextts.commands.data import CheckData, ImportDataset, Transcribe
from indextts.data.manifest import read_pairs, read_utterances
from indextts.data.transcribing.agreement import AgreementReport, Point
from indextts.errors import UserError
from indextts.features.audio import load_audio
from indextts.projects.pipeline import copy_base_files
from indextts.projects.project import Project, ProjectSettings, make_settings, write_project
from indextts.projects.stages import plan_imports
from indextts.webui.data.transcribe_view import agreement_html, commands, outlook, recordings_html
from indextts.webui.data.uploads import store_recordings
from indextts.webui.language import t
from tests.conftest import REPOSITORY
from tests.import_sources import write_tone
from tests.one_project import OneProject
from tests.recognizers import write_recognizer
from tests.walking import Server, wait_for, wait_for_project

LETTERS = ["<pad>", "<unk>", "|", *"ሰላምለዓሀሁመበረተነአከወየደገጠ"]
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
    transcribe, imported, check = commands(page, project, settings, *form)
    assert isinstance(transcribe, Transcribe)
    assert transcribe.source == [project.recordings]
    assert transcribe.asr == [str(project.root.parent / "one"), "owner/two"]
    assert (transcribe.min_clip_s, transcribe.max_disagreement) == (3.0, 0.05)
    assert isinstance(imported, ImportDataset)
    assert imported.manifest == transcribe.output_dir / "manifest.jsonl"
    assert isinstance(check, CheckData)
    assert check.train_manifest == project.manifest
    assert not outlook(page, project, settings, [transcribe, imported, check]).blockers


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
    with pytest.raises(UserError):
        commands(page, project, settings, *form)


def test_what_is_missing_prevents_the_start(page: OneProject, project: Project, settings: ProjectSettings):
    shutil.rmtree(project.recordings)
    planned = commands(page, project, settings, "", "a/b", "voices", "", 2.0, 15.0, "")
    found = outlook(page, project, settings, planned)
    assert len(found.blockers) == 2  # no recordings, no weights that tell voices
    assert len(found.notes) == 1  # one recognizer


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
    report = AgreementReport(["<one>", "two"], 0.03, True, 20, 0.04, 14, 0.03, 0, curve)
    html = agreement_html(report)
    assert "75 %" in html
    assert html.count('class="chosen"') == 1
    assert "&lt;one&gt;" in html
    assert "<polyline" in html
    alone = agreement_html(AgreementReport(["one"], None, True, 20, 0.04, 0, 0.0, 0, []))
    assert t("data.one_recognizer") in alone
    assert agreement_html(None) == ""


@pytest.mark.long
def test_a_user_comes_from_one_long_file_to_pairs(server: Server, browser: Browser, tmp_path: Path):
    project = Project(server.workspace / "voice")
    base = tmp_path / "base"
    shutil.copytree(REPOSITORY / "demo/checkpoints", base)
    make_base_checkpoint([f"--config={base / 'config.yaml'}", f"--output={base / 'gpt.pth'}"])
    fast = {"quality": "fast", "max_syllables_per_s": 1000}  # the small recognizers write many letters
    project.root.mkdir()
    settings = make_settings(name="voice", base=base, check=fast, preprocess={"val_ratio": 0.2})
    write_project(project, settings)
    copy_base_files(project, settings)
    for name in ("one", "two"):
        write_recognizer(server.workspace / name, "", letters=LETTERS)
    parts = []
    for number in range(1, 13):
        clip = load_audio(REPOSITORY / f"demo/audio/demo_{number:04d}.opus", 16_000)
        parts += [np.zeros(12_000, np.float32), clip]
    soundfile.write(tmp_path / "long.flac", np.concatenate(parts), 16_000)

    page = browser.new_page(viewport={"width": 1280, "height": 1000})
    page.goto(f"{server.url}/?project=voice#data/raw-upload")
    wait_for_project(page)
    page.locator("#raw-upload input[type=file]").set_input_files(tmp_path / "long.flac")
    expect(page.locator("#raw-recordings")).to_contain_text("long.flac")
    expect(page.locator("#transcribe-start")).to_be_disabled()
    page.locator("#transcribe-asr textarea").fill("one\ntwo")
    wait_for(page, "transcribe-command", r"transcribe\.py .*import_dataset\.py .*check_amharic_data\.py")
    page.locator("#transcribe-start").click()
    wait_for(page, "transcribe-status", r"^finished after")
    expect(page.locator("#agreement .tile dd").nth(2)).to_have_text("0")  # nothing for the review
    expect(page.locator("#agreement tr.chosen")).to_have_count(1)
    utterances = read_utterances(project.manifest)
    assert len(utterances) >= 6
    assert {(utterance.speaker, utterance.text_origin) for utterance in utterances} == {("long", "agreed")}
    for stage in ("preprocess", "pairs"):
        page.goto(f"{server.url}/?project=voice#{stage}")
        page.locator(f"#{stage}-start").click()
        wait_for(page, f"{stage}-status", r"^finished after")
    pairs = read_pairs(project.pairs("train"))
    assert {pair.target_text_origin for pair in pairs} == {"agreed"}
    page.close()
