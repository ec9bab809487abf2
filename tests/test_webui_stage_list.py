"""Tests of indextts/webui/stage_list.py at each stage of a project."""

import json
import os
import time
from pathlib import Path

import pytest

from indextts.data.quality.summary import OVERVIEW_NAME
from indextts.data.review import check_folder
from indextts.projects.pipeline import copy_base_files
from indextts.projects.project import DEMO, Project, read_settings
from indextts.projects.stages import plan_stage
from indextts.system.files import write_json
from indextts.webui.language import t, use_language
from indextts.webui.stage_list import STAGES, StageState, stage_states, stages_html, step_to_take
from tests.written_run import WrittenRun

LONG_AGO, LATER, NOW = 1_000_000.0, 1_001_000.0, time.time()


@pytest.fixture
def project(tmp_path: Path) -> Project:
    settings = read_settings(DEMO)
    project = Project(tmp_path / settings.name)
    copy_base_files(project, settings)
    return project


def make_files(project: Project, *stages: str, at: float = LONG_AGO) -> None:
    for stage in stages:
        for path in plan_stage(project, read_settings(DEMO), stage).writes:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
            os.utime(path, (at, at))


def make_all_files(project: Project) -> None:
    for stage in STAGES:  # one after another: the export reads the checkpoint that is there by then
        make_files(project, stage.name)


def end_job(project: Project, stage: str, reason: str, *, at: float = LATER) -> None:
    folder = project.jobs / f"{time.strftime('%Y%m%d_%H%M%S', time.gmtime(at))}_{stage}"
    folder.mkdir(parents=True)
    runner = {"pid": 1, "start_ticks": 0, "boot_id": "another boot"}
    job = {"stage": stage, "argvs": [["program"]], "started": at, "began": at}
    job["runner"] = runner
    (folder / "job.json").write_text(json.dumps(job))
    status = {"finished": 0, "stopped": 143}.get(reason, 2)
    if reason != "lost":
        (folder / "exit.json").write_text(json.dumps({"status": status, "reason": reason, "ended": at + 1}))


def states(project: Project) -> list[str]:
    return [each.state for each in stage_states(project)]


def state_of(project: Project, stage: str) -> StageState:
    return next(each for each in stage_states(project) if each.stage.name == stage)


def test_the_first_stage_without_its_files_is_the_next(project: Project):
    assert states(project) == ["next"] + ["later"] * 5
    make_files(project, "data")
    assert states(project) == ["done", "next", "ready", "later", "later", "later"]
    make_files(project, "tokenizer")
    assert states(project) == ["done", "done", "next", "later", "later", "later"]
    make_files(project, "preprocess")
    assert states(project)[3:] == ["next", "later", "later"]
    make_files(project, "pairs")
    assert states(project)[4:] == ["next", "later"]
    make_files(project, "train")
    assert states(project)[5:] == ["next"]
    make_files(project, "export")
    assert states(project) == ["done"] * 6
    assert step_to_take(stage_states(project)) is None


def test_an_import_whose_check_finds_problems_is_done_once_a_check_finds_none(project: Project):
    make_files(project, "data")
    end_job(project, "data", "failed")
    check_folder(project.manifest).unlink()
    check_folder(project.manifest).mkdir()
    report = check_folder(project.manifest) / OVERVIEW_NAME
    fields = {"num_utterances": 70, "num_good": 20, "num_warned": 0, "num_rejected": 50, "hours": 0.1}
    lists = {"reasons": [], "histograms": [], "notices": []}
    for problems, expected in (([{"code": "", "count": 50, "text": "many"}], "outdated"), ([], "done")):
        write_json(report, {**fields, **lists, "num_speakers": 1, "problems": problems})
        data = state_of(project, "data")
        assert (data.state, data.text != "") == (expected, expected == "outdated")


@pytest.mark.parametrize("reason", ["failed", "stopped"])
def test_a_later_start_that_fails_leaves_a_complete_stage_done(project: Project, reason: str):
    make_files(project, "data")
    end_job(project, "data", reason)  # a further import
    found = state_of(project, "data")
    assert (found.state, found.last_start) == ("done", reason)
    assert found.text
    assert state_of(project, "tokenizer").state == "next"


def test_a_first_start_that_fails_halfway_is_failed(project: Project):
    make_files(project, "data", at=LATER + 10)  # written by that job
    end_job(project, "data", "failed")
    assert state_of(project, "data").state == "failed"


@pytest.mark.parametrize("reason", ["stopped", "lost"])
def test_a_stopped_training_run_with_checkpoints_can_be_resumed_and_exported(project: Project, reason: str):
    make_files(project, "data", "tokenizer", "preprocess", "pairs", "train")
    end_job(project, "train", reason)
    assert states(project)[4:] == ["stopped", "ready"]


def test_a_training_run_that_was_killed_in_a_terminal_is_stopped(project: Project):
    make_files(project, "data", "tokenizer", "preprocess", "pairs", "train")
    run = WrittenRun()
    run.train_to(500)
    run.write(project.run_dir)
    assert next(line["total_steps"] for line in run.lines if line["kind"] == "start") > 500
    assert state_of(project, "train").state == "stopped"


def test_a_stopped_run_is_outdated_after_the_tokenizer_changed(project: Project):
    make_files(project, "data", "tokenizer", "preprocess", "pairs", "train")
    (project.run_dir / "tokenizer.model").touch()
    end_job(project, "train", "stopped")
    assert state_of(project, "train").state == "stopped"
    project.tokenizer.write_bytes(b"other pieces")
    found = state_of(project, "train")
    assert (found.state, found.changed) == ("outdated", "tokenizer")
    assert state_of(project, "pairs").changed == "tokenizer"


@pytest.mark.parametrize(
    ("changed", "outdated"),
    [("data", {"tokenizer", "preprocess"}), ("preprocess", {"pairs"}), ("pairs", {"train"})],
)
def test_a_stage_is_outdated_after_its_input_changed(project: Project, changed: str, outdated: set[str]):
    make_all_files(project)
    make_files(project, changed, at=NOW)
    found = {each.stage.name: each.changed for each in stage_states(project) if each.state == "outdated"}
    assert found == dict.fromkeys(outdated, changed)


def test_a_review_after_the_tokenizer_makes_it_outdated(project: Project):
    make_all_files(project)
    (project.dataset / "review.jsonl").touch()
    assert state_of(project, "tokenizer").state == "outdated"


def test_a_job_that_found_nothing_to_change_makes_a_stage_current_again(project: Project):
    make_all_files(project)
    make_files(project, "preprocess", at=LATER)
    assert state_of(project, "pairs").state == "outdated"
    end_job(project, "pairs", "finished", at=LATER + 100)
    assert state_of(project, "pairs").state == "done"


def test_an_upload_after_the_import_waits_for_the_next(project: Project):
    make_files(project, "data")
    (project.uploads / "more.zip").touch()
    found = state_of(project, "data")
    assert (found.state, found.changed) == ("outdated", "data")
    assert found.text


def begin_demo(project: Project, stage: str, reason: str) -> None:
    end_job(project, "demo", reason)
    folder = project.root / "pipeline"
    folder.mkdir()
    (folder / "now.json").write_text(json.dumps({"stage": stage, "started": LATER + 0.5}))


@pytest.mark.parametrize("reason", ["stopped", "failed"])
def test_a_demo_that_ended_early_ended_at_its_last_stage(project: Project, reason: str):
    make_files(project, "data", "tokenizer")
    begin_demo(project, "preprocess", reason)
    assert states(project)[:3] == ["done", "done", reason]


def test_a_demo_that_began_nothing_changes_no_state(project: Project):
    make_files(project, "data", "tokenizer")
    begin_demo(project, "preprocess", "stopped")
    now = project.root / "pipeline/now.json"
    now.write_text(json.dumps({"stage": "preprocess", "started": LONG_AGO}))  # of an earlier demo
    assert states(project)[:3] == ["done", "done", "next"]
    now.write_text("[1")
    assert states(project)[:3] == ["done", "done", "next"]


def test_each_stage_links_to_its_tab_in_the_chosen_language(project: Project):
    html = stages_html(stage_states(project), ["<b>"] * 6)
    for stage in STAGES:
        assert f'href="#{stage.tab}"' in html
    assert "<b>" not in html
    todo = t("steps.todo.data")
    assert todo in html
    with use_language("am"):
        assert todo not in stages_html(stage_states(project), [""] * 6)
