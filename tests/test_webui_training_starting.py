"""Tests of indextts/webui/training/starting.py: one answer for each change of the form."""

import re
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from indextts.commands.terminal import parse
from indextts.commands.train import Train
from indextts.errors import UserError
from indextts.projects.project import Project, ProjectSettings, write_project
from indextts.runs import owner
from indextts.webui.running.outlook import Start
from indextts.webui.serving.security import Roots
from indextts.webui.training import starting
from indextts.webui.training.starting import ask_trainer, prepare
from indextts.webui.training.training_form import NAMES, project_values

PAGE_SETTINGS = ProjectSettings(name="voice", base=Path("base"))


def prepared(workspace: Path, **changes: Any) -> Start:
    project = Project(workspace / "voice")
    project.root.mkdir(exist_ok=True)
    values = project_values(project, PAGE_SETTINGS) | changes
    page: Any = SimpleNamespace(workspace=workspace, roots=Roots(workspace))
    return prepare(page, project, PAGE_SETTINGS, *(values[name] for name in NAMES))


def test_one_answer_has_the_command_its_blockers_and_the_card(tmp_path, monkeypatch):
    calls = []
    preflight = starting.run_preflight
    monkeypatch.setattr(starting, "run_preflight", lambda *args: calls.append(args) or preflight(*args))
    found = prepared(tmp_path, epochs=3)
    [command] = found.commands
    assert command.epochs == 3
    assert len(calls) == 1
    assert {blocker.link for blocker in found.outlook.blockers} >= {"#pairs", "#tokenizer"}
    assert found.error == ""  # a job that waits may find the files at its turn
    with pytest.raises(UserError, match=r"train_pairs\.jsonl is missing"):
        found.check()
    assert (tmp_path / "voice/drafts/train.json").is_file()


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"epochs": 0}, "--epochs"),
        ({"output_dir": "/etc"}, "Run directory"),
        ({"processes": 64}, "64 processes"),
        ({"nodes": 2, "endpoint": "gpu-0"}, r"project\.json"),
    ],
)
def test_an_invalid_form_and_a_forbidden_launch_can_never_start(
    tmp_path: Path, changes: dict[str, Any], problem: str
):
    found = prepared(tmp_path, **changes)
    assert found.outlook.blockers
    assert re.search(problem, found.error)


def test_while_a_trainer_runs_a_forbidden_launch_is_refused_and_no_other_starts(tmp_path: Path):
    [command] = prepared(tmp_path).commands
    owner.prepare(command.output_dir)
    with owner.run_lock(command.output_dir):
        assert "project.json" in prepared(tmp_path, nodes=2, endpoint="gpu-0").error
        found = prepared(tmp_path)
        assert found.error == ""
        with pytest.raises(UserError, match="a training run is using"):
            found.check()


def test_a_training_of_another_project_is_noticed(tmp_path: Path):
    assert not any("other voice" in note.text for note in prepared(tmp_path).outlook.notes)
    other = Project(tmp_path / "other")
    other.root.mkdir()
    write_project(other, ProjectSettings(name="other", title="other voice", base=Path("base")))
    owner.prepare(other.run_dir)
    with owner.run_lock(other.run_dir):
        assert any("other voice" in note.text for note in prepared(tmp_path).outlook.notes)


def test_the_trainer_is_asked_once_for_the_same_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    asked = []

    def run(argv: list[str], **streams: Any) -> SimpleNamespace:
        asked.append(argv)
        streams["stdout"].write("[Info] a log line\nold.pth: step 3\n")
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(subprocess, "run", run)
    path = tmp_path / "old.pth"
    path.touch()
    files = [f"--{name}={tmp_path / name}" for name in ("train-manifest", "val-manifest", "tokenizer")]
    command = parse(Train, [*files, f"--output-dir={tmp_path}", f"--resume={path}"])
    assert ask_trainer(command) == ask_trainer(command) == "old.pth: step 3"
    assert len(asked) == 1
    path.write_text("another file")
    ask_trainer(command)
    assert len(asked) == 2
    assert "--plan" in asked[-1]
