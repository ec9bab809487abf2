"""Tests of indextts/webui/running/outlook.py: blockers, losses and notes."""

from pathlib import Path

import pytest

from indextts.projects.project import Project, ProjectSettings, write_project
from indextts.webui.language import t
from indextts.webui.running.outlook import Notice, Outlook, missing, outlook_html, with_next_step
from indextts.webui.stage_list import StageState, stage_states

NOTE, LOSS, BLOCKER = Notice("a <b>note</b>"), Notice("a loss"), Notice("a blocker", "#training/x", "Epochs")


def test_only_a_start_without_blockers_and_losses_is_shown_as_ready():
    assert t("outlook.ready") in outlook_html(Outlook())
    assert t("outlook.ready") in outlook_html(Outlook(notes=[NOTE]))
    assert t("outlook.ready") not in outlook_html(Outlook(), is_ready=False)
    assert t("outlook.ready") not in outlook_html(Outlook(losses=[LOSS]))
    assert t("outlook.ready") not in outlook_html(Outlook(blockers=[BLOCKER]))


def test_notices_are_escaped_and_link_to_what_changes_them():
    html = outlook_html(Outlook([("Steps", "<5>")], blockers=[BLOCKER], losses=[LOSS], notes=[NOTE]))
    assert '<li class="bad">a blocker <a href="#training/x"' in html
    assert '<li class="warn">a loss</li>' in html
    assert "&lt;5&gt;" in html
    assert "a &lt;b&gt;note" in html
    assert [html.index(f'class="{level}"') for level in ("bad", "warn", "note")] == sorted(
        html.index(f'class="{level}"') for level in ("bad", "warn", "note")
    )


def test_a_confirmation_holds_for_the_same_losses_only():
    assert Outlook(notes=[NOTE]).loss_key == ""
    assert Outlook(losses=[LOSS]).loss_key == Outlook(losses=[LOSS], notes=[NOTE]).loss_key != ""
    assert Outlook(losses=[LOSS]).loss_key == Outlook([("Steps", "1")], losses=[LOSS]).loss_key
    assert Outlook(losses=[LOSS]).loss_key != Outlook(losses=[Notice("another loss")]).loss_key
    assert Outlook(losses=[LOSS]).loss_key != Outlook(losses=[LOSS, BLOCKER]).loss_key


@pytest.fixture
def untouched(tmp_path: Path) -> list[StageState]:
    write_project(Project(tmp_path), ProjectSettings(name="voice", base=tmp_path))
    return stage_states(Project(tmp_path))


def test_missing_outputs_of_earlier_stages_are_one_neutral_notice_of_the_next_step(
    untouched: list[StageState], tmp_path: Path
):
    gone = missing(tmp_path / "pairs.jsonl", "pairs.none_yet", "pairs")
    gone += missing(tmp_path / "tokenizer.model", "tokenizer.no_manifest", "tokenizer")
    outlook = with_next_step(Outlook(blockers=[*gone, BLOCKER]), untouched, "train")
    assert [notice.text for notice in outlook.blockers] == [
        t("outlook.comes_first", tab=t("tab.data")),
        BLOCKER.text,
    ]
    assert outlook.blockers[0].link == "#data"
    assert 'class="note"' in outlook_html(outlook)
    assert outlook_html(outlook).count('class="bad"') == 1  # of the other blocker
    # a notice that already leads to the next step stays
    texts = missing(tmp_path / "manifest.jsonl", "tokenizer.no_manifest", "data")
    assert with_next_step(Outlook(blockers=[*gone, *texts]), untouched, "train").blockers == texts
    # the stage whose turn it is names what it lacks
    assert with_next_step(Outlook(blockers=gone), untouched, "data").blockers == gone
    # all stages are done: other files were chosen, and they are missing
    assert with_next_step(Outlook(blockers=gone), [], "train").blockers == gone


def test_what_is_finished_is_no_problem_and_a_done_stage_is_not_ready():
    html = outlook_html(Outlook(blockers=[Notice("all epochs are done", kind="finished")]), is_ready=False)
    assert 'class="good"' in html
    assert 'class="bad"' not in html
    done = outlook_html(Outlook(), is_done=True)
    assert t("outlook.up_to_date") in done
    assert t("outlook.ready") not in done
