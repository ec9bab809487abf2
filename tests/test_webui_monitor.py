"""Tests of the parts of tab 7: tiles, Stop, health, machine, compared runs, checkpoint rows."""

import json
import os
import re
import shutil
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from indextts.errors import UserError
from indextts.projects.jobs.starting import start_job
from indextts.projects.project import Project
from indextts.runs.checkpoints import list_checkpoints, pin
from indextts.webui.language import t
from indextts.webui.markup import UNKNOWN, sent
from indextts.webui.monitor import status, tab
from indextts.webui.monitor.charts import DisplayOptions, comparable, compared
from indextts.webui.monitor.curves_view import PLOTS, drawn, range_of
from indextts.webui.monitor.machine import GpuState, machine_tiles, read_gpus, read_machine
from indextts.webui.run_progress import Progress, read_run
from tests.checkpoint_files import save
from tests.metrics_lines import point, start, write
from tests.running_jobs import SAVES_ON_SIGTERM, program, wait_until_over, wait_until_ready
from tests.watched_workspace import make_project, make_watched_workspace


@pytest.fixture(scope="module")
def unhealthy(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return make_watched_workspace(tmp_path_factory.mktemp("watched"))


@pytest.fixture
def well(unhealthy: Project) -> Project:
    return Project(unhealthy.root.parent / "well")


def test_each_finding_has_a_card_problems_first_and_text_is_escaped(unhealthy: Project):
    cards = status.cards_html(unhealthy, status.findings(unhealthy))
    assert re.findall(r'class="health (\w+)"', cards) == ["problem"] * 7 + ["warning"] * 3
    assert "<b id=planted>" not in cards
    assert "&lt;b id=planted&gt;another" in cards
    assert status.findings(unhealthy)[0].check == "disk"
    assert sent("listen", "unhealthy", "best.pth") in cards  # of the step before the loss rose
    assert 'href="#monitor/checkpoint-table"' in cards


def test_without_a_run_a_sentence_leads_to_the_next_step(tmp_path: Path, well: Project):
    empty = status.empty_tab(make_project(tmp_path, "new"))
    assert 'href="#data"' in empty
    assert f"#{status.BODY} {{ display: none }}" in empty
    assert status.empty_tab(well) == ""


def test_a_missing_trainer_has_a_notice_and_an_ended_one_its_reason(unhealthy: Project, tmp_path: Path):
    assert 'href="#training"' in status.notice_html(unhealthy)
    assert status.run_tiles(unhealthy)[1].level == "bad"
    (unhealthy.run_dir / "exit.json").write_text('{"status": 1, "reason": "<b>broken</b>", "time": 9e9}')
    assert status.notice_html(unhealthy).count("primary-link") == 1
    assert 'href="#training"' in status.notice_html(unhealthy)
    assert status.run_tiles(unhealthy)[1].value == "<b>broken</b>"
    (unhealthy.run_dir / "exit.json").write_text('{"status": 0, "reason": "finished", "time": 9e9}')
    assert 'href="#listen"' in status.notice_html(unhealthy)
    (unhealthy.run_dir / "exit.json").unlink()
    assert status.notice_html(make_project(tmp_path, "new")) == ""


def test_the_tiles_show_steps_epochs_and_the_best_validation(tmp_path: Path):
    project = make_project(tmp_path, "one")
    assert [tile.value for tile in status.run_tiles(project)] == [UNKNOWN] * 4
    lines = [start(0), point(20, 3.0, kind="val"), point(40, 1.5, kind="val"), point(60, 1.75, kind="val")]
    write(project.run_dir / "metrics.jsonl", [*lines, point(230)])
    save(project.run_dir, 200)
    step, _left, best, speed = status.run_tiles(project)
    assert (step.value, step.remark) == ("230 of 1,000", "epoch 3, saved 200")
    assert (best.value, speed.value) == ("1.500", "1,480")
    assert "40" in best.remark


def test_the_time_left_says_why_there_is_none():
    at_work = Progress(step=10, total_steps=100, seconds_left=90.0)
    assert status.time_tile(at_work, None, False, 0.0).level == ""
    assert status.time_tile(at_work, None, False, 0.0).remark != ""
    assert status.time_tile(at_work, None, True, 0.0).level == "bad"
    silent = Progress(step=10, seconds_left=90.0, is_stale=True, silent_s=300.0)
    assert status.time_tile(silent, None, False, 0.0).level == "warn"


def test_stop_asks_the_training_to_stop_and_is_hidden_when_nothing_trains(project: Project):
    assert not status.has_run(project)
    assert not status.stop_button(project).visible
    with pytest.raises(UserError):
        status.stop_run(project)
    job = start_job(project, "train", [program(project, SAVES_ON_SIGTERM)])
    wait_until_ready(job)
    assert status.has_run(project)
    assert status.stop_button(project).visible
    assert status.stop_button(project).interactive
    assert not status.stop_run(project).interactive
    assert wait_until_over(job).state == "stopped"
    assert not status.stop_button(project).visible


def test_older_parts_and_other_projects_can_be_compared(unhealthy: Project, well: Project):
    workspace = unhealthy.root.parent
    assert comparable(workspace, well) == [("part 1", "well:1"), ("unhealthy", "unhealthy:0")]
    assert comparable(workspace, unhealthy) == [("well", "well:0")]
    part, other = compared(workspace, well, ["well:1", "unhealthy:0"])
    assert (part.name, {line["part"] for line in part.train}) == ("part 1", {1})
    assert (other.name, other.train[-1]["step"]) == ("unhealthy", 8_000)
    assert compared(workspace, well, None) == []


@pytest.mark.parametrize(
    "choice", ["", "well", "well:2", "well:0", "absent:0", "../unhealthy:0", "unhealthy:x", "/etc:0", ["x"]]
)
def test_unknown_runs_are_not_compared(unhealthy: Project, well: Project, choice: Any):
    [other] = compared(unhealthy.root.parent, well, [choice, "unhealthy:0"])
    assert other.name == "unhealthy"


@pytest.mark.parametrize(
    "text", ["", "1", "1 2 3", "2 1", "1 1", "-1 2", "a b", "1e3 2e3", "nan inf", "1 ²", "1 " + "9" * 400]
)
def test_an_invalid_range_is_the_whole_run(text: str):
    assert range_of(text) is None


def test_each_chart_of_a_run_is_drawn_beside_another(unhealthy: Project, well: Project):
    lines = read_run(unhealthy.run_dir)
    others = compared(unhealthy.root.parent, unhealthy, ["well:0"])
    *charts, heard, by_language = drawn(lines, DisplayOptions(0.8, (1_000.0, 2_000.0)), others)
    assert len(charts) == len(PLOTS)
    assert ["validation, well" in text for text in charts] == [True] * 3 + [False] * 3
    assert all("training, well" in text for text in charts)
    assert (heard, by_language) == ("", "")


def test_what_was_heard_has_a_chart_with_the_best_step_and_its_cost():
    facts = {"kind": "listen", "part": 1, "epoch": 0, "length_ratio": 1.1, "likeness": None, "loops": 0.25}
    facts |= {"no_stop": 0.0, "silent": 0.0, "seconds": 31.2, "time_share": 0.021}
    lines = [{**facts, "step": 10, "score": 0.5}, {**facts, "step": 20, "score": 0.3}]
    text = unescape(drawn([start(0), *lines, {**facts, "step": 30, "score": 0.4}], DisplayOptions(), [])[-2])
    assert "31 s" in text
    assert "2.1%" in text
    found = json.loads(re.findall(r'data-points="(.*?)">', text)[0])
    assert [each["values"] for each in found["series"]] == [[0.5, 0.3, 0.4], [0.25] * 3, [1.1] * 3]
    assert [(mark["step"], mark["value"]) for mark in found["marks"]] == [(20, 0.3)]


def test_a_run_in_several_languages_has_a_chart_with_a_line_for_each():
    lines = [start(0), point(0, 5.0, kind="val"), point(100, 4.0, kind="val")]
    for line, losses in zip(lines[1:], [(5.5, 3.0), (4.5, 3.2)], strict=True):
        line |= dict(zip(("mel_loss_am", "mel_loss_en"), losses, strict=True))
    text = drawn(lines, DisplayOptions(), [])[-1]
    assert re.findall(r'<span class="key [^"]*">(\w+)</span>', text) == ["am", "en"]
    drawn_values = json.loads(unescape(re.findall(r'data-points="([^"]*)"', text)[0]))["series"]
    assert [each["values"] for each in drawn_values] == [[5.5, 4.5], [3.0, 3.2]]


def row_of(table: str, name: str) -> str:
    [row] = re.findall(rf'<tr data-name="{re.escape(name)}">.*?</tr>', table)
    return row


def test_the_rows_describe_the_checkpoints_newest_first(unhealthy: Project):
    pin(unhealthy.run_dir, "model_step7000.pth", is_pinned=True)
    table, _restore, trash = tab.listed(unhealthy)
    pin(unhealthy.run_dir, "model_step7000.pth", is_pinned=False)
    assert re.findall(r'<tr data-name="model_step(\d+)\.pth">', table) == [
        "8000",
        "7000",
        "6000",
        "5000",
        "4000",
    ]
    notes = {
        step: re.findall(r"<em>(\w+)</em>", row_of(table, f"model_step{step}.pth"))
        for step in range(4000, 9000, 1000)
    }
    assert notes == {8000: ["newest"], 7000: ["pinned"], 6000: ["best"], 5000: [], 4000: ["incomplete"]}
    cells = re.findall(r'data-label="(\w+)[^"]*">([^<]*)</td>', row_of(table, "model_step8000.pth"))
    assert cells[:2] == [("Step", "8,000"), ("Epoch", "1")]
    assert "4.800" in row_of(table, "model_step8000.pth")
    assert not trash.visible


def test_an_action_is_that_of_the_named_row(tmp_path: Path):
    project = make_watched_workspace(tmp_path)

    def perform(action: Any, name: str = "model_step5000.pth", shown: str = "unhealthy") -> list[Any]:
        return tab.perform(project, [action, shown, name])

    assert perform("listen")[0].endswith(" model_step5000.pth")
    assert perform("export")[1].endswith(" model_step5000.pth")
    assert "Unpin" in row_of(perform("pin")[2], "model_step5000.pth")
    with pytest.raises(UserError):
        perform("delete")  # pinned
    assert "Unpin" not in row_of(perform("pin")[2], "model_step5000.pth")
    with pytest.raises(UserError):
        perform("delete", shown="other")  # another project was chosen meanwhile
    with pytest.raises(UserError):
        perform("delete", "model_step8000.pth")  # the newest
    assert len(list_checkpoints(project.run_dir)) == 5
    table, _restore, trash = perform("delete")[2:]
    assert 'data-name="model_step5000.pth"' not in table
    assert trash.visible
    assert len(list((project.run_dir / "trash").glob("*_model_step5000/model_step5000.*"))) == 2
    table, restore, _empty = tab.take_back(project)
    assert 'data-name="model_step5000.pth"' in table
    assert not restore.visible
    perform("delete")
    assert not tab.clear_trash(project)[2].visible
    assert not (project.run_dir / "trash").exists()


@pytest.mark.parametrize(
    "row",
    [
        None,
        [],
        ["delete", "unhealthy"],
        ["", "unhealthy", "model_step5000.pth"],
        [["delete"], "unhealthy", "model_step5000.pth"],
        ["delete", "unhealthy", "../training_output/model_step5000.pth"],
        ["delete", "unhealthy", ["model_step5000.pth"]],
        ["pin", "unhealthy", "absent.pth"],
    ],
)
def test_any_other_request_is_refused(unhealthy: Project, row: Any):
    with pytest.raises(UserError):
        tab.perform(unhealthy, row)
    assert len(list_checkpoints(unhealthy.run_dir)) == 5


HAS_DRIVER = shutil.which("nvidia-smi") is not None


def test_the_machine_is_shown_in_tiles(tmp_path: Path):
    now = read_machine(tmp_path)
    assert now.num_processors <= (os.cpu_count() or 1)
    assert 0 <= now.busy_percent <= 100
    assert 0 < now.used_bytes < now.memory_bytes
    assert 0 < now.free_disk_bytes <= now.disk_bytes
    tiles = machine_tiles(now)
    assert [tile.name for tile in tiles[-3:]] == ["Processors", "Memory", "Disk"]
    assert tiles[-3].value == str(now.num_processors)


@pytest.mark.skipif(HAS_DRIVER, reason="there is a gpu")
def test_without_a_driver_the_page_shows_that_there_is_no_gpu(tmp_path: Path):
    assert read_gpus() == ()
    assert machine_tiles(read_machine(tmp_path))[0].remark == t("monitor.no_gpu")


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_DRIVER, reason="no NVIDIA driver")
def test_reading_a_gpu_takes_none_of_its_memory():
    before = read_gpus()
    after = read_gpus()
    assert before[0].name
    assert before[0].total_bytes > 0
    assert after[0].used_bytes - before[0].used_bytes < 50e6  # a context would take hundreds of megabytes


def test_values_that_a_gpu_does_not_report_are_question_marks(tmp_path: Path):
    gpu = GpuState("NVIDIA L4", 2_000_000_000, 24_000_000_000, percent=97, celsius=61)
    slice_of_a_gpu = GpuState("NVIDIA A100 MIG", 0, 5_000_000_000, percent=None, celsius=None)
    name, memory, of_slice, *_ = machine_tiles(replace(read_machine(tmp_path), gpus=(gpu, slice_of_a_gpu)))
    assert (name.value, memory.value) == ("L4", "2.0 GB")
    assert ("97" in name.remark, "61" in name.remark, "24.0" in memory.remark) == (True, True, True)
    assert of_slice.remark == t("machine.gpu", percent="?", celsius="?")


def test_several_gpus_are_numbered_and_those_in_training_are_marked(tmp_path: Path):
    gpus = [GpuState("NVIDIA L4", 23_000_000_000, 24_000_000_000, 0, 40, number) for number in range(3)]
    tiles = machine_tiles(replace(read_machine(tmp_path), gpus=tuple(gpus)), in_training={0, 2})
    of_gpus, of_memory = tiles[:6:2], tiles[1:6:2]
    assert [tile.name for tile in of_gpus] == ["GPU 0", "GPU 1", "GPU 2"]
    idle = t("machine.gpu", percent=0, celsius=40)  # the gpus are alike
    assert [tile.remark == idle for tile in of_gpus] == [False, True, False]
    assert [tile.level for tile in of_memory] == ["", "warn", ""]  # a training may fill its memory
