"""Tests of indextts/webui/training/resume_card.py: the restore plan and the menu of checkpoints."""

import re
import shutil
from pathlib import Path

import pytest

from indextts.commands.terminal import parse
from indextts.commands.train import Train
from indextts.planning.restore_plan import plan_from_meta
from indextts.runs.directory import CheckpointMeta
from indextts.runs.restore_rows import RestoreRow, new_run_rows, refused_row, restore_rows
from indextts.webui.language import t, use_language
from indextts.webui.training.resume_card import AUTO, card_values, rows_html
from tests.tiny_run import TinyRun, make_tiny_run, write_tokenizer

ETHIOPIC = re.compile(r"[\u1200-\u137f]")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> TinyRun:
    """A run of 12 steps in 3 epochs, stopped at step 4."""
    run = make_tiny_run(tmp_path_factory.mktemp("trained"))
    assert run.train(max_steps=4, save_interval=2, val_interval=2, keep_checkpoints=5) == 0
    return run


@pytest.fixture
def run(trained: TinyRun, tmp_path: Path) -> TinyRun:
    shutil.copytree(trained.folder, tmp_path / "run")
    return TinyRun(tmp_path / "run")


def planned(run: TinyRun, **changes: object) -> list[RestoreRow]:
    found = plan_from_meta(parse(Train, run.flags(resume="auto", **changes)))
    assert found is not None
    return restore_rows(found)


@pytest.mark.parametrize(("rank", "happens"), [(0, "merged"), (2, "reduced"), (8, "kept")])
@pytest.mark.failure(74)
def test_changed_adapters_are_a_row_that_says_what_happens_to_them(run: TinyRun, rank: int, happens: str):
    path = run.output / "model_step4.json"
    meta = CheckpointMeta.read(path)
    meta.model_copy(update={"settings": {**meta.settings, "lora_rank": 4}}).write(path)
    kinds = {row.name.id: (row.kind, row.text.id) for row in planned(run, lora_rank=rank)}
    assert kinds["restore.adapters"] == ("changed", f"restore.adapters_{happens}")
    assert kinds["restore.optimizer"][0] == "restarts"


def test_the_plan_is_in_the_language_of_the_page(run: TinyRun):
    write_tokenizer(run.folder / "tokenizer.model", num_appended=300)
    rows = planned(run, learning_rate=0.005, seed=7)
    english = rows_html(rows)
    with use_language("am"):
        names = re.findall(r"<b>(.*?)</b><span>(.*?)</span>", rows_html(rows))
    assert len(names) == len(re.findall("<b>", english))
    assert all(ETHIOPIC.search(name) and ETHIOPIC.search(text) for name, text in names)
    assert not ETHIOPIC.search(english)


def test_rows_are_counted_by_kind_and_escaped_and_held_settings_share_a_row(run: TinyRun):
    html = rows_html([refused_row("<b>no</b>"), *new_run_rows(Path("base.pth"), 12, 0, 0)])
    assert "&lt;b&gt;no" in html
    assert f'<span class="continues">{t("restore.kind.continues")} 2</span>' in html
    assert f'<span class="refused">{t("restore.kind.refused")} 1</span>' in html
    assert 'class="restarts"' not in html
    held = rows_html(planned(run, learning_rate=None, batch_size=None))
    assert held.count(t("restore.settings")) == 1


def test_the_menu_lists_the_checkpoints_whatever_the_path_is(run: TinyRun):
    (run.output / "model_step9.pth").write_bytes(b"of another program")
    absent = str(run.output / "absent.pth")
    _title, menu, _plan, _read = card_values(run.output, absent, None, [], can_read=False)
    assert menu.value is None
    assert [name for _, name in menu.choices] == [
        AUTO,
        "model_step4.pth",
        "model_step2.pth",
        "model_step9.pth",
    ]
    for resume in ("model_step2.pth", "latest.pth"):
        path = run.output / resume
        title, menu, *_ = card_values(run.output, str(path), None, [], can_read=False)
        step = "4" if resume == "latest.pth" else "2"
        assert menu.value == f"model_step{step}.pth"
        assert t("training.at_step", step=step) in title
