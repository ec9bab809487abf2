"""Tests of indextts/webui/data/clean_view.py: flagged clips are cleaned on the page, and compared by ear."""

import json
from pathlib import Path

import pytest

from indextts.commands.data import CheckData, CleanAudio
from indextts.data.cleaned import INSTALL
from indextts.data.quality.summary import Overview, ReasonCount, write_overview
from indextts.data.review import check_folder
from indextts.projects.project import Project, ProjectSettings, make_settings
from indextts.webui.data.clean_view import clean_commands, clean_outlook
from indextts.webui.data.review_list import row_html
from indextts.webui.data.review_rows import read_review, row_of
from indextts.webui.running.outlook import Outlook
from tests.import_sources import run_import, write_tone
from tests.one_project import OneProject


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project with two imported clips that are not checked."""
    project = Project(tmp_path / "workspace/voice")
    for name in ("one", "two"):
        write_tone(tmp_path / f"in/{name}.wav")
        (tmp_path / f"in/{name}.txt").write_text(f"ሰላም {name}", encoding="utf-8")
    run_import(tmp_path / "in", project.dataset, speaker="almaz")
    return project


@pytest.fixture
def page(project: Project) -> OneProject:
    return OneProject(project)


@pytest.fixture
def settings(tmp_path: Path) -> ProjectSettings:
    return make_settings(name="voice", base=tmp_path / "base")


def write_flags(project: Project, **counts: int) -> None:
    folder = check_folder(project.manifest)
    folder.mkdir(exist_ok=True)
    write_overview(
        folder,
        Overview(
            num_utterances=2,
            num_good=0,
            num_warned=0,
            num_rejected=2,
            hours=0.1,
            num_speakers=1,
            reasons=[ReasonCount(name=name, count=count, hours=0.1) for name, count in counts.items()],
            histograms=[],
            problems=[],
            notices=[],
        ),
    )


def test_one_job_cleans_and_checks(page: OneProject, project: Project, settings: ProjectSettings):
    clean, check = clean_commands(page, project, settings)
    assert isinstance(clean, CleanAudio)
    assert isinstance(check, CheckData)
    assert clean.manifest == check.train_manifest == project.manifest


def test_a_start_needs_a_check_flags_and_the_packages(
    page: OneProject, project: Project, settings: ProjectSettings, monkeypatch: pytest.MonkeyPatch
):
    def looked() -> Outlook:
        return clean_outlook(page, project, settings, clean_commands(page, project, settings))

    packages: list[str] = []
    monkeypatch.setattr("indextts.webui.data.clean_view.missing_packages", lambda: packages)
    [blocker] = looked().blockers
    assert blocker.link == "#data/check-start"
    write_flags(project, quiet=2)
    [blocker] = looked().blockers
    assert blocker.kind == "finished"
    write_flags(project, noisy=2)
    assert not looked().blockers
    packages.append("demucs")
    [blocker] = looked().blockers
    assert INSTALL in blocker.text
    assert "demucs" in blocker.text


def test_a_cleaned_clip_has_players_before_and_after(project: Project):
    scores = {"ovrl": 2.0, "sig": 3.0, "bak": 2.0, "snr_db": 10.0}
    record = {"id": "one", "method": "noise", "input": "two.wav", "before": scores, "after": scores}
    for is_used, count in ((True, 2), (False, 0)):
        line = json.dumps({**record, "is_used": is_used})
        (project.dataset / "cleaned.jsonl").write_text(f"{line}\n", encoding="utf-8")
        review = read_review(project)
        html = row_html(project, row_of(review, review.table.place_of["one"]))
        assert html.count("<audio") == count
        assert html.count("two.wav") == count / 2
        assert "<audio" not in row_html(project, row_of(review, review.table.place_of["two"]))
