"""Tests of indextts/webui/stage_list.py at each stage of a project."""

import json
import time
from pathlib import Path

import pytest

from indextts.projects.pipeline import copy_base_files
from indextts.projects.project import DEMO, Project, read_settings
from indextts.projects.stages import plan_stage
from indextts.webui.language import t, use_language
from indextts.webui.stage_list import STAGES, stage_states, stages_html


@pytest.fixture
def project(tmp_path: Path) -> Project:
    settings = read_settings(DEMO)
    project = Project(tmp_path / settings.name)
    copy_base_files(project, settings)
    return project


def make_files(project: Project, stage: str) -> None:
    for path in plan_stage(project, read_settings(DEMO), stage).writes:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def end_job(project: Project, stage: str, reason: str, status: int) -> None:
    folder = project.jobs / f"20260101_000000_{stage}"
    folder.mkdir(parents=True)
    runner = {"pid": 1, "start_ticks": 0, "boot_id": "another boot"}
    job = {"stage": stage, "argvs": [["program"]], "started": time.time(), "runner": runner}
    (folder / "job.json").write_text(json.dumps(job))
    ending = {"status": status, "reason": reason, "ended": time.time()}
    (folder / "exit.json").write_text(json.dumps(ending))


def states(project: Project) -> list[str]:
    return [each.state for each in stage_states(project)]


def test_the_first_stage_without_its_files_is_the_next(project: Project):
    assert states(project) == ["next"] + ["later"] * 5
    for number, stage in enumerate(STAGES, start=1):
        make_files(project, stage.name)
        later = ["next"] + ["later"] * (5 - number) if number < 6 else []
        assert states(project) == ["done"] * number + later


def test_a_failed_stage_holds_back_the_stages_after_it(project: Project):
    make_files(project, "data")
    end_job(project, "tokenizer", "failed", 2)
    end_job(project, "data", "finished", 0)
    assert states(project) == ["done", "failed"] + ["later"] * 4
    make_files(project, "tokenizer")  # of an earlier, better try: the failure still counts
    assert states(project)[1] == "failed"


def test_a_stopped_training_run_with_checkpoints_can_be_listened_to(project: Project):
    for stage in STAGES[:5]:
        make_files(project, stage.name)
    end_job(project, "train", "stopped", 143)
    assert states(project)[4:] == ["stopped", "next"]


def test_each_stage_links_to_its_tab_in_the_chosen_language(project: Project):
    html = stages_html(stage_states(project))
    for stage in STAGES:
        assert f'href="#{stage.tab}"' in html
    todo = t(STAGES[0].todo)
    assert todo in html
    with use_language("am"):
        assert todo not in stages_html(stage_states(project))
