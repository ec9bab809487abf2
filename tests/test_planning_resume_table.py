"""Tests of indextts/planning/resume_table.py: the rows match the trainer's decisions."""

import os
import shutil
from pathlib import Path

import pytest

from indextts.commands.terminal import parse
from indextts.commands.train import Train
from indextts.planning.resume_table import MOVED, ResumeRow, resume_rows
from indextts.runs.directory import read_metrics
from indextts.system.messages import Message
from tests.tiny_run import TinyRun, make_tiny_run, write_tokenizer


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> TinyRun:
    """A run of 6 steps with three checkpoints: steps 2, 4 and 6."""
    run = make_tiny_run(tmp_path_factory.mktemp("trained"))
    assert run.train(max_steps=6, val_interval=2, keep_checkpoints=5) == 0
    return run


@pytest.fixture
def run(trained: TinyRun, tmp_path: Path) -> TinyRun:
    """The same run, for this test alone."""
    shutil.copytree(trained.folder, tmp_path / "run")
    return TinyRun(tmp_path / "run")


def rows_of(run: TinyRun, **changes: object) -> list[ResumeRow]:
    return resume_rows(parse(Train, run.flags(**changes)))


def test_a_folder_without_checkpoints_has_no_rows(tmp_path: Path):
    assert rows_of(make_tiny_run(tmp_path)) == []


def test_each_checkpoint_is_a_row_newest_first(run: TinyRun):
    rows = rows_of(run)
    assert [row.step for row in rows] == [6, 4, 2]
    assert "latest.pth" in rows[0].names
    assert sum("best.pth" in row.names for row in rows) == 1
    assert all(row.path.name == f"model_step{row.step}.pth" for row in rows)
    losses = {
        line["step"]: line["mel_loss"]
        for line in read_metrics(run.output / "metrics.jsonl")
        if line["kind"] == "val"
    }
    assert [row.mel_loss for row in rows] == [losses[6], losses[4], losses[2]]
    assert all(row.is_valid and row.fit == "continues" and row.can_start for row in rows)
    assert [row.epoch for row in rows] == [1, 1, 0]


def test_no_weights_are_read(run: TinyRun):
    for path in run.output.glob("*.pth"):
        size = path.stat().st_size
        os.truncate(path, 0)
        os.truncate(path, size)  # zeros
    assert all(row.is_valid and row.fit == "continues" for row in rows_of(run))


def test_a_truncated_checkpoint_cannot_be_selected(run: TinyRun):
    path = run.output / "model_step4.pth"
    os.truncate(path, path.stat().st_size - 1)
    cut = next(row for row in rows_of(run) if row.step == 4)
    assert cut.is_valid is False
    assert not cut.can_start
    assert "bytes" in str(cut.validity)


def test_another_tokenizer_restarts_the_run(run: TinyRun):
    write_tokenizer(run.folder / "other.model", num_appended=300)
    [row, *_] = rows_of(run, tokenizer=run.folder / "other.model")
    assert row.fit == "restarts"
    assert row.why == Message(MOVED, {"old": "720", "new": "700"})
    assert row.can_start


def test_a_checkpoint_of_another_base_is_refused_as_in_the_trainer(run: TinyRun):
    (run.folder / "base/gpt.pth").write_bytes(b"other weights")
    row = rows_of(run)[0]
    assert (row.fit, row.can_start) == ("refused", False)
    assert "--base-checkpoint" in str(row.why)


def test_a_file_of_another_program_is_left_to_the_trainer(run: TinyRun):
    (run.output / "model_step2.json").unlink()
    (run.output / "model_step2.pth").write_bytes(b"of another program")
    row = rows_of(run)[-1]
    assert (row.path.name, row.step, row.is_valid, row.fit) == ("model_step2.pth", None, None, "unknown")
    assert row.can_start


def test_a_quarantined_checkpoint_cannot_be_selected(run: TinyRun):
    for suffix in (".pth", ".json"):
        path = run.output / f"model_step2{suffix}"
        path.rename(path.with_name(f"damaged-{path.name}"))
    row = rows_of(run)[-1]
    assert (row.path.name, row.can_start) == ("damaged-model_step2.pth", False)


@pytest.mark.parametrize("is_link", [False, True])
def test_a_checkpoint_without_its_meta_file_is_a_row_like_any_other(
    run: TinyRun, tmp_path: Path, is_link: bool
):
    expected = rows_of(run)
    (run.output / "model_step4.json").unlink()
    if is_link:
        shutil.move(run.output / "model_step4.pth", tmp_path / "elsewhere.pth")
        (run.output / "model_step4.pth").symlink_to(tmp_path / "elsewhere.pth")
    assert rows_of(run) == expected


def test_a_symbolic_link_to_nothing_is_not_a_checkpoint(run: TinyRun, tmp_path: Path):
    (run.output / "model_step9.pth").symlink_to(tmp_path / "absent.pth")
    assert all(row.path.name != "model_step9.pth" for row in rows_of(run))
