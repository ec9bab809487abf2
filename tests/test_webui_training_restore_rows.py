"""Tests of indextts/webui/training/restore_rows.py: the plan of a resume as rows, in the page's language."""

import re
import shutil
from pathlib import Path

import pytest

from indextts.commands.terminal import parse
from indextts.commands.train import Train
from indextts.planning.plan_from_meta import MetaPlan, plan_from_meta
from indextts.runs.directory import CheckpointMeta
from indextts.webui.language import t, use_language
from indextts.webui.training.restore_rows import (
    RestoreRow,
    new_run_rows,
    refused_row,
    restore_rows,
    rows_html,
)
from tests.tiny_run import TinyRun, make_tiny_run, write_tokenizer

ETHIOPIC = re.compile(r"[\u1200-\u137f]")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> TinyRun:
    """A run of 12 steps in 3 epochs, stopped at step 6."""
    run = make_tiny_run(tmp_path_factory.mktemp("trained"))
    assert run.train(max_steps=6) == 0
    return run


@pytest.fixture
def run(trained: TinyRun, tmp_path: Path) -> TinyRun:
    shutil.copytree(trained.folder, tmp_path / "run")
    return TinyRun(tmp_path / "run")


def planned(run: TinyRun, **changes: object) -> MetaPlan:
    found = plan_from_meta(parse(Train, run.flags(resume="auto", **changes)))
    assert found is not None
    return found


def row(rows: list[RestoreRow], name: str) -> RestoreRow:
    [found] = [each for each in rows if each.name == t(name)]
    return found


def test_a_run_that_continues_restores_all_parts_and_counts_epochs_from_1(run: TinyRun):
    rows = restore_rows(planned(run, max_steps=12))
    parts = ("restore.weights", "restore.optimizer", "restore.step", "restore.data_order")
    assert [row(rows, part).kind for part in parts] == ["continues"] * 4
    step = row(rows, "restore.step").text
    assert re.findall(r"\d+", step) == ["7", "12", "2", "3"]  # steps 7 to 12, epoch 2 of 3


def test_a_changed_setting_is_a_row_with_both_values(run: TinyRun):
    rows = restore_rows(planned(run, max_steps=9, learning_rate=0.005))
    changed = [each.text for each in rows if each.kind == "changed"]
    assert any(text.startswith("0.01 → 0.005") for text in changed)
    assert any(text.startswith("6 → 9") for text in changed)


def test_another_tokenizer_restarts_optimizer_and_step_and_says_what_is_lost(run: TinyRun):
    write_tokenizer(run.folder / "tokenizer.model", num_appended=300)
    rows = restore_rows(planned(run))
    parts = ("restore.optimizer", "restore.rate", "restore.step", "restore.best", "restore.text_rows")
    assert [row(rows, part).kind for part in parts] == ["restarts"] * 5
    assert "6" in row(rows, "restore.step").text
    assert row(rows, "restore.weights").kind == "continues"
    assert "400" in row(rows, "restore.text_rows").text  # rows of the base


@pytest.mark.parametrize(
    ("rank", "text"),
    [(0, "restore.adapters_merged"), (2, "restore.adapters_reduced"), (8, "restore.adapters_kept")],
)
def test_changed_adapters_are_a_row_that_says_what_happens_to_them(run: TinyRun, rank: int, text: str):
    meta = CheckpointMeta.read(run.output / "model_step6.json")
    of_lora = meta.model_copy(update={"settings": {**meta.settings, "lora_rank": 4}})
    of_lora.write(run.output / "model_step6.json")
    rows = restore_rows(planned(run, lora_rank=rank))
    assert row(rows, "restore.adapters") == RestoreRow("changed", t("restore.adapters"), t(text))
    assert row(rows, "restore.optimizer").kind == "restarts"
    unchanged = restore_rows(planned(run))
    assert t("restore.adapters") not in [each.name for each in unchanged]


def test_a_run_without_a_step_left_is_finished(run: TinyRun):
    rows = restore_rows(planned(run, max_steps=6))
    assert row(rows, "restore.step").kind == "finished"


def test_the_rows_are_in_the_language_of_the_page(run: TinyRun):
    write_tokenizer(run.folder / "tokenizer.model", num_appended=300)
    found = planned(run, learning_rate=0.005, seed=7)
    english = restore_rows(found)
    with use_language("am"):
        amharic = restore_rows(found)
    assert [each.kind for each in amharic] == [each.kind for each in english]
    assert all(ETHIOPIC.search(each.name) and ETHIOPIC.search(each.text) for each in amharic)
    assert not any(ETHIOPIC.search(each.name + each.text) for each in english)


def test_a_new_run_starts_from_the_base_at_step_1(run: TinyRun):
    command = parse(Train, run.flags())
    assert {each.kind for each in new_run_rows(command, 12)} == {"continues"}
    assert len(new_run_rows(command, None)) == 1


def test_rows_are_counted_by_kind_and_escaped():
    html = rows_html(
        [refused_row("<b>no</b>"), RestoreRow("continues", "a", "b"), RestoreRow("continues", "c", "d")]
    )
    assert "&lt;b&gt;no" in html
    assert f'<span class="continues">{t("restore.kind.continues")} 2</span>' in html
    assert f'<span class="refused">{t("restore.kind.refused")} 1</span>' in html
    assert 'class="restarts"' not in html
