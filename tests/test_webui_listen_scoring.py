"""Tests of the scoring in tab 8: the command from the form, and the newest complete report."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from indextts.commands.speech import Evaluate
from indextts.commands.terminal import parse, to_argv
from indextts.errors import UserError
from indextts.projects.project import Project, read_project
from indextts.webui.language import t
from indextts.webui.listen.renders import next_folder
from indextts.webui.listen.saved_models import find_model
from indextts.webui.listen.scoring import (
    newest_report,
    report_html,
    score_commands,
    score_outlook,
    show,
)
from indextts.webui.running.outlook import Outlook
from tests.one_project import OneProject

DEFAULTS = [100, 0, "auto", 25]


@pytest.fixture
def project(speaking_project: Project) -> Project:
    return speaking_project


def planned(project: Project, chosen: list[str] | None, asr: str = "", *values: Any) -> Evaluate:
    given = values or DEFAULTS
    [command] = score_commands(OneProject(project), project, read_project(project), chosen, asr, *given)
    assert isinstance(command, Evaluate)
    return command


def test_the_checkpoints_speak_the_validation_sentences(project: Project):
    command = planned(project, ["model_step1.pth", "best.pth"])
    best = find_model(project, "best.pth").name
    assert [path.name for path in command.checkpoint] == list(dict.fromkeys(["model_step1.pth", best]))
    assert (command.manifest, command.output_dir) == (project.utterances("val"), project.scores / "0001")
    assert parse(Evaluate, to_argv(command)) == command
    assert planned(project, ["best.pth"], "", 7, 3, "cpu", 25).model_dump(include={"num_clips", "seed"}) == {
        "num_clips": 7,
        "seed": 3,
    }
    asr = project.root / "hears"
    planned_with = planned(project, ["best.pth"], f"\n{asr}\nsomeone/asr\n")
    assert planned_with.asr == [str(asr), "someone/asr"]  # a model of the hub
    assert planned_with.asr_folder == read_project(project).base / "recognizers"
    outside = planned(project, ["best.pth"], "indextts/text").asr  # a folder where the program runs
    assert outside == [str(project.root.parent / "indextts/text")]
    (project.root.parent / "someone/asr").mkdir(parents=True)
    assert planned(project, ["best.pth"], "someone/asr").asr == [str(project.root.parent / "someone/asr")]


def test_missing_and_outside_choices_are_refused(project: Project):
    cases: list[tuple[list[str] | None, str, str]] = [
        (None, "", t("listen.none_to_score")),
        ([], "", t("listen.none_to_score")),
        (["best.pth", "../../other/best.pth"], "", t("listen.no_checkpoint")),
        (["best.pth"], "/etc", "'/etc'"),
        (["best.pth"], "../asr", "'../asr'"),
        (["best.pth"], "a\0b", "a recognizer"),
        (["best.pth"], "ሀ" * 300, "a recognizer"),
        (["best.pth"], "linked/away", "'linked/away'"),
    ]
    (project.root.parent / "linked").mkdir()
    (project.root.parent / "linked/away").symlink_to("/etc")
    for chosen, asr, problem in cases:
        with pytest.raises(UserError, match=re.escape(problem)):
            planned(project, chosen, asr)


SCORE = {
    "name": "recordings",
    "step": None,
    "num_clips": 2,
    "cer": {"ctc<b>": 0.1},
    "cer_interval": {"ctc<b>": [0.05, 0.15]},
    "likeness": None,
    "syllables_per_s": 7.0,
    "length_ratio": 1.0,
    "no_stop": None,
    "loops": None,
    "silent": 0.0,
}


def write_report(folder: Path, note: str, *, is_complete: bool = True) -> None:
    folder.mkdir(parents=True)
    (folder / "report.md").write_text(f"# Evaluation\n\n* {note}\n\n| | step |\n", encoding="utf-8")
    rows = [SCORE, SCORE | {"name": "model_step1200.pth", "step": 1200, "cer": {"ctc<b>": 0.25}}]
    (folder / "summary.jsonl").write_text("\n".join(map(json.dumps, rows)))
    if is_complete:
        (folder / "scores.png").write_bytes(b"\x89PNG")


def test_the_newest_complete_report_is_shown_with_its_downloads(tmp_path: Path):
    project = Project(tmp_path / "voice")
    assert show(project)[1] == ""
    write_report(project.scores / "0001", "older")
    write_report(project.scores / "0009", "newer")
    write_report(project.scores / "0010", "stopped", is_complete=False)
    assert newest_report(project) == project.scores / "0009"
    assert next_folder(project.scores) == project.scores / "0011"
    report, picture = show(project)
    assert "newer" in report
    assert picture.count("download=") == 3
    assert "/0009/scores.png?" in picture


def test_scores_are_a_table_of_aligned_numbers(tmp_path: Path):
    write_report(tmp_path / "0001", "<i>note</i>")
    shown = report_html(tmp_path / "0001")
    assert (shown.count("<tr>"), shown.count("<td>")) == (3, 2)
    for cell in ("1,200", "10.0%", "25.0%", "2.50", "-"):
        assert f'<td class="number">{cell}</td>' in shown
    assert "<b>" not in shown
    assert "<i>" not in shown
    missing_rate = SCORE | {"name": "model_step2400.pth", "step": 2400, "cer": {}}
    (tmp_path / "0001/summary.jsonl").write_text("\n".join(map(json.dumps, [SCORE, missing_rate])))
    shown = report_html(tmp_path / "0001")
    assert '<td class="number">0.00</td>' not in shown
    assert shown.count('<td class="number">-</td>') == 2 * 3 + 1 + 2  # of no score, of no step, of no rate
    (tmp_path / "0001/summary.jsonl").write_text('{"name": 1}')
    assert "<table" not in report_html(tmp_path / "0001")


def test_a_run_without_validation_sentences_cannot_be_scored(project: Project, tmp_path: Path):
    values = (["best.pth"], "", *DEFAULTS)
    settings = read_project(project)

    def looked(of: Project) -> Outlook:
        page = OneProject(of)
        return score_outlook(page, of, settings, score_commands(page, of, settings, *values))

    assert not looked(project).blockers
    bare = Project(tmp_path / "bare")
    shutil.copytree(project.run_dir, bare.run_dir)
    [blocker] = looked(bare).blockers
    assert (blocker.link, blocker.kind) == ("#preprocess", "missing")
    bare.utterances("val").parent.mkdir(parents=True)
    bare.utterances("val").touch()  # a split without validation: the stage ran, with an unusable setting
    [blocker] = looked(bare).blockers
    assert (blocker.link, blocker.kind) == ("#preprocess", "problem")
