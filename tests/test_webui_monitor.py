"""Tests of the parts of tab 7: health cards, progress bar, compared runs, checkpoint rows, shared choices."""

import re
import time
from pathlib import Path

import pytest

from indextts.projects.project import Project
from indextts.runs.checkpoints import pin
from indextts.webui.language import t
from indextts.webui.monitor import checkpoint_list, health_cards
from indextts.webui.monitor.charts import MAX_COMPARED, DisplayOptions, comparable, compared, runs_version
from indextts.webui.monitor.curves_view import display_of
from indextts.webui.monitor.status import bar_html, machine_html
from indextts.webui.page import stamped
from tests.watched_workspace import make_project, make_watched_workspace


@pytest.fixture(scope="module")
def unhealthy(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return make_watched_workspace(tmp_path_factory.mktemp("watched"))


@pytest.fixture
def well(unhealthy: Project) -> Project:
    return Project(unhealthy.root.parent / "well")


def test_each_finding_has_a_card_problems_first_and_text_is_escaped(unhealthy: Project):
    cards = health_cards.shown(unhealthy)
    levels = re.findall(r'class="health (\w+)"', cards)
    assert levels == ["problem"] * 8 + ["warning"] * 3
    assert "<b id=planted>" not in cards
    assert "&lt;b id=planted&gt;another" in cards
    assert health_cards.findings(unhealthy)[0].check == "disk"


def test_a_healthy_run_and_a_missing_run_have_a_message(well: Project, tmp_path: Path):
    assert "11 checks" in health_cards.shown(well)
    assert "tab 6" in health_cards.shown(make_project(tmp_path, "new"))


def test_health_is_checked_again_when_the_metrics_change(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(time, "time", lambda: 1_000_000.0)
    project = make_project(tmp_path, "new")
    before = health_cards.version(project)
    assert health_cards.version(project) == before
    (project.run_dir / "metrics.jsonl").write_text("{}\n")
    assert health_cards.version(project) != before


def test_the_bar_shows_the_progress_and_a_missing_trainer(unhealthy: Project, tmp_path: Path):
    bar = bar_html(unhealthy)
    assert 'max="20000" value="8000" aria-label="40 %"' in bar
    assert "it was killed" in bar
    (unhealthy.run_dir / "exit.json").write_text('{"status": 1, "reason": "<b>broken</b>", "time": 9e9}')
    assert "&lt;b&gt;broken" in bar_html(unhealthy)
    assert "it was killed" not in bar_html(unhealthy)
    (unhealthy.run_dir / "exit.json").unlink()
    assert t("monitor.no_numbers") in bar_html(make_project(tmp_path, "new"))


def test_the_machine_is_a_table():
    assert machine_html([["gpu", "<NVIDIA>"]]) == (
        '<table class="machine"><tr><th>gpu</th><td>&lt;NVIDIA&gt;</td></tr></table>'
    )


def test_older_parts_and_other_projects_can_be_compared(unhealthy: Project, well: Project):
    workspace = unhealthy.root.parent
    assert comparable(workspace, "well") == [("part 1", "well:1"), ("unhealthy", "unhealthy:0")]
    assert comparable(workspace, "unhealthy") == [("well", "well:0")]
    part, other = compared(workspace, "well", ["well:1", "unhealthy:0"])
    assert (part.name, {line["part"] for line in part.lines}) == ("part 1", {1})
    assert (other.name, other.lines[-1]["step"]) == ("unhealthy", 8_000)
    assert compared(workspace, "well", None) == []


@pytest.mark.parametrize(
    "choice",
    [
        "",
        "well",
        "well:2",
        "well:0",
        "absent:0",
        "../unhealthy:0",
        "unhealthy:0/..",
        "unhealthy:x",
        ":",
        "/etc:0",
    ],
)
def test_unknown_runs_are_not_compared(unhealthy: Project, choice: str):
    [other] = compared(unhealthy.root.parent, "well", [choice, "unhealthy:0"])
    assert other.name == "unhealthy"


def test_only_a_few_runs_are_compared_at_once(unhealthy: Project):
    assert len(compared(unhealthy.root.parent, "well", ["unhealthy:0"] * (MAX_COMPARED + 1))) == MAX_COMPARED


def test_the_list_of_runs_is_updated_when_any_run_starts(tmp_path: Path):
    project = make_project(tmp_path, "one")
    before = runs_version(tmp_path, project)
    other = make_project(tmp_path, "other")
    (other.run_dir / "config.json").write_text("{}")
    assert runs_version(tmp_path, project) != before


def test_any_typed_values_give_valid_display_options():
    assert display_of(0.5, None, None, False) == DisplayOptions(0.5)
    assert display_of(7, 0, 0, None) == DisplayOptions(0.99)
    assert display_of(-1, 100, 200, True) == DisplayOptions(0.0, 100.0, 200.0, is_log=True)


def test_the_rows_describe_the_checkpoints(unhealthy: Project):
    pin(unhealthy.run_dir, "model_step7000.pth", is_pinned=True)
    hidden, body, rows, chosen, button, trash = checkpoint_list.shown(unhealthy, "model_step7000.pth")
    pin(unhealthy.run_dir, "model_step7000.pth", is_pinned=False)
    assert [(row[0], row[1], row[4], row[6]) for row in rows] == [
        ("model_step8000.pth", "8,000", "4.800", "newest"),
        ("model_step7000.pth", "7,000", "4.750", "pinned"),
        ("model_step6000.pth", "6,000", "4.700", "best"),
        ("model_step5000.pth", "5,000", "4.650", ""),
        ("model_step4000.pth", "", "", "incomplete"),
    ]
    assert (hidden.visible, body.visible, trash.visible) == (False, True, False)
    assert button.value == "Unpin"
    assert chosen.choices == [(row[0], row[0]) for row in rows]


def test_without_checkpoints_the_page_shows_when_the_first_is_saved(well: Project):
    hidden, body, rows, *_ = checkpoint_list.shown(well, None)
    assert (hidden.visible, body.visible, rows) == (True, False, [])


def test_the_list_changes_when_a_checkpoint_is_pinned_or_deleted(unhealthy: Project):
    before = checkpoint_list.version(unhealthy)
    pin(unhealthy.run_dir, "model_step5000.pth", is_pinned=True)
    assert checkpoint_list.version(unhealthy) != before
    pin(unhealthy.run_dir, "model_step5000.pth", is_pinned=False)


def test_the_same_checkpoint_can_be_shared_twice():
    first, second = stamped("best.pth"), stamped("best.pth")
    assert first != second
    assert first.partition(" ")[2] == "best.pth"
