"""Tests of the scoring in tab 8: the command from the form, and the newest complete report."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from indextts.commands.speech import Evaluate
from indextts.commands.terminal import parse, to_argv
from indextts.errors import UserError
from indextts.projects.project import Project, read_project
from indextts.webui.language import t
from indextts.webui.listen.renders import next_folder
from indextts.webui.listen.scoring import (
    NOTHING,
    checkpoints,
    newest_report,
    score_commands,
    show,
)
from indextts.webui.serving.security import Roots
from tests.speaking_run import make_speaking_project

DEFAULTS = [100, 0, "auto", 25]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return make_speaking_project(tmp_path_factory.mktemp("workspace"))


def page_of(project: Project) -> Any:
    workspace = project.root.parent
    return SimpleNamespace(roots=Roots(workspace), workspace=workspace, find_project=lambda _: project)


def planned(project: Project, chosen: list[str] | None, asr: str = "", *values: Any) -> Evaluate:
    given = values or DEFAULTS
    [command] = score_commands(page_of(project), project, read_project(project), chosen, asr, *given)
    assert isinstance(command, Evaluate)
    return command


def test_the_checkpoints_speak_the_validation_sentences(project: Project):
    command = planned(project, ["model_step1.pth", "best.pth"])
    assert [path.name for path in command.checkpoint] == ["model_step1.pth", "best.pth"]
    assert (command.manifest, command.output_dir) == (project.utterances("val"), project.scores / "0001")
    assert parse(Evaluate, to_argv(command)) == command
    assert planned(project, ["best.pth"], "", 7, 3, "cpu", 25).model_dump(include={"num_clips", "seed"}) == {
        "num_clips": 7,
        "seed": 3,
    }
    asr = project.root / "hears"
    assert planned(project, ["best.pth"], f"\n{asr}\n").asr == [asr]


def test_missing_and_outside_choices_are_refused(project: Project):
    cases: list[tuple[list[str] | None, str, str]] = [
        (None, "", "choose at least one checkpoint"),
        ([], "", "choose at least one checkpoint"),
        (["best.pth", "../../other/best.pth"], "", "choose at least one checkpoint"),
        (["best.pth"], "/etc", "a recognizer '/etc'"),
    ]
    for chosen, asr, message in cases:
        with pytest.raises(UserError, match=message):
            planned(project, chosen, asr)


def test_a_selection_stays_while_it_exists(project: Project):
    page = page_of(project)
    assert "best.pth" in checkpoints(page, "tiny", None).value
    assert checkpoints(page, "tiny", ["model_step1.pth", "gone.pth"]).value == ["model_step1.pth"]
    assert "value" not in checkpoints(page, "tiny", ["model_step1.pth"]).constructor_args


def write_report(folder: Path, text: str, *, is_complete: bool = True) -> None:
    folder.mkdir(parents=True)
    (folder / "report.md").write_text(f"# Evaluation\n\n{text}\n", encoding="utf-8")
    if is_complete:
        (folder / "scores.png").write_bytes(b"\x89PNG")


def test_the_newest_complete_report_is_shown_with_its_downloads(tmp_path: Path):
    project = Project(tmp_path / "voice")
    assert show(page_of(project), "voice") == (t(NOTHING), "")
    write_report(project.scores / "0001", "older")
    write_report(project.scores / "0009", "newer")
    write_report(project.scores / "0010", "stopped", is_complete=False)
    assert newest_report(project) == project.scores / "0009"
    assert next_folder(project.scores) == project.scores / "0011"
    report, picture = show(page_of(project), "voice")
    assert report.strip() == "newer"
    assert picture.count("download=") == 2
    assert "/0009/scores.png?" in picture
