"""Tests of indextts/training/saving.py: copies, and saves on a disk that is slow, full or gone.

A slow disk is a pipe under the name that is written first: a writer blocks until the pipe is read. A full
disk is a link to /dev/full under that name.
"""

import errno
import io
import os
import re
import shutil
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from indextts.errors import DISK_FULL
from indextts.runs.directory import verify_checkpoint
from indextts.training import loop, saving
from indextts.training.saving import HostCopy, Saver
from tests.checkpoint_files import content, meta
from tests.tiny_run import TinyRun, signalled_in_step

NOTHING: frozenset[int] = frozenset()
SIZE = 1 << 20  # values; more bytes than a pipe holds


def written_first(folder: Path, step: int) -> Path:
    return folder / f".tmp-model_step{step}.pth"


def fill_disk(folder: Path, step: int) -> None:
    """Let the save of `step` find the disk full."""
    written_first(folder, step).symlink_to("/dev/full")


class SlowDisk:
    """The pipe into which the save of `step` is written; `read` lets it go on."""

    def __init__(self, folder: Path, step: int) -> None:
        self.path = written_first(folder, step)
        os.mkfifo(self.path)

    def read(self, wait: Callable[[], None]) -> bytes:
        """Return all that is written until `wait` returns; a pipe cannot be synced, so the save fails."""
        parts = []
        descriptor = os.open(self.path, os.O_RDWR)
        os.set_blocking(descriptor, False)
        is_done = threading.Event()

        def drain() -> None:
            while True:
                was_done = is_done.is_set()
                try:
                    parts.append(os.read(descriptor, 1 << 16))
                except BlockingIOError:
                    if was_done:
                        return
                    is_done.wait(0.001)

        reader = threading.Thread(target=drain)
        reader.start()
        wait()
        is_done.set()
        reader.join()
        os.close(descriptor)
        return b"".join(parts)


@pytest.fixture
def saver(tmp_path: Path):
    saver = Saver(tmp_path, keep=3)
    yield saver
    saver.close()


def save(saver: Saver, step: int, *, is_best: bool = False) -> None:
    """Save `step` and wait for the disk."""
    saver.start(content(step), meta(step, serial=step, is_best=is_best), NOTHING)
    saver.wait()


# --- the copy ---


def test_a_copy_keeps_its_values_at_any_depth():
    weight, moment = torch.ones(3, 2), torch.zeros((), dtype=torch.float64)
    state = {"model": {"weight": weight}, "list": [moment, 1, {"a": weight[1:]}], "epoch": 2, "none": None}
    copied = HostCopy().take(state, NOTHING)
    weight.fill_(7)
    moment.fill_(7)
    assert torch.equal(copied["model"]["weight"], torch.ones(3, 2))
    assert torch.equal(copied["list"][0], torch.zeros((), dtype=torch.float64))
    assert copied["list"][1] == 1
    assert torch.equal(copied["list"][2]["a"], torch.ones(2, 2))
    assert (copied["epoch"], copied["none"]) == (2, None)


# --- in the background ---


def big_state(value: float) -> tuple[dict, Tensor]:
    state = content(1)
    weight = torch.full((SIZE,), value)
    state["model"]["weight"] = weight
    return state, weight


def test_a_save_has_the_state_of_its_start_while_training_continues(tmp_path: Path, saver: Saver):
    disk = SlowDisk(tmp_path, step=1)
    state, weight = big_state(1.0)
    saver.start(state, meta(1), NOTHING)
    weight.fill_(2.0)  # the training, before a byte is written
    saved = torch.load(io.BytesIO(disk.read(saver.wait)), weights_only=True)
    assert torch.equal(saved["model"]["weight"], torch.ones(SIZE))


def test_a_save_waits_for_the_previous_one_and_does_not_overwrite_its_copy(tmp_path: Path, saver: Saver):
    disk = SlowDisk(tmp_path, step=1)
    saver.start(big_state(1.0)[0], meta(1), NOTHING)
    second = threading.Thread(target=saver.start, args=(big_state(2.0)[0], meta(2, serial=2), NOTHING))
    second.start()
    second.join(0.2)
    assert second.is_alive()
    first = torch.load(io.BytesIO(disk.read(second.join)), weights_only=True)["model"]["weight"]
    saver.wait()
    assert torch.equal(first, torch.ones(SIZE))
    assert verify_checkpoint(tmp_path / "model_step2.pth").serial == 2
    after = torch.load(tmp_path / "model_step2.pth", weights_only=True)["model"]["weight"]
    assert torch.equal(after, torch.full((SIZE,), 2.0))


def test_poll_does_not_wait_for_a_slow_disk(tmp_path: Path, saver: Saver):
    disk = SlowDisk(tmp_path, step=1)
    saver.start(big_state(1.0)[0], meta(1), NOTHING)
    saver.poll()
    assert saver.failures == 0
    disk.read(saver.wait)
    assert saver.failures == 1


def test_closing_waits_until_the_checkpoint_is_complete(tmp_path: Path):
    saver = Saver(tmp_path, keep=3)
    saver.start(big_state(1.0)[0], meta(1), NOTHING)
    saver.close()
    assert verify_checkpoint(tmp_path / "latest.pth").step == 1


# --- a full disk ---


def test_a_failed_save_is_logged_and_counted_and_the_next_one_succeeds(tmp_path, saver: Saver, caplog):
    save(saver, 1)
    fill_disk(tmp_path, 2)
    save(saver, 2, is_best=True)
    assert (saver.failures, saver.lost_best and saver.lost_best.step) == (1, 2)
    [warning] = [record for record in caplog.records if record.levelname == "WARNING"]
    assert "step 2 " in warning.getMessage()
    assert "(No space left on device)" in warning.getMessage()
    assert verify_checkpoint(tmp_path / "latest.pth").step == 1
    assert not list(tmp_path.glob(".tmp-*"))
    save(saver, 2)
    assert saver.failures == 0
    assert verify_checkpoint(tmp_path / "latest.pth").step == 2


def test_the_time_between_two_tries_doubles_up_to_ten_minutes(saver: Saver):
    assert not saver.is_retry_due
    for failures, delay_s in ((1, 60), (2, 120), (3, 240), (5, 600), (5000, 600)):
        saver.failures = failures
        saver._failed_at = time.monotonic() - delay_s + 30
        assert not saver.is_retry_due
        saver._failed_at -= 40
        assert saver.is_retry_due


@pytest.mark.failure(22)
def test_surplus_checkpoints_make_room_where_a_quota_is_exhausted(tmp_path: Path, saver: Saver):
    for step in (1, 2, 3):
        save(saver, step, is_best=step == 1)
    fill_disk(tmp_path, 4)  # a write fails although the disk has space
    save(saver, 4)
    assert saver.failures == 0
    assert sorted(path.name for path in tmp_path.glob("model_step*.pth")) == [
        f"model_step{step}.pth" for step in (1, 3, 4)
    ]


def test_surplus_checkpoints_of_a_lower_limit_are_removed_at_the_start(tmp_path: Path):
    saver = Saver(tmp_path, keep=5)
    for step in (1, 2, 3, 4):
        save(saver, step, is_best=step == 1)
    saver.close()
    saver = Saver(tmp_path, keep=2)
    saver.prune(part=1)
    saver.close()
    assert sorted(path.name for path in tmp_path.glob("model_step*.pth")) == [
        f"model_step{step}.pth" for step in (1, 3, 4)
    ]


def test_a_checkpoint_that_does_not_fit_is_not_started(tmp_path, saver: Saver, caplog):
    state = content(1)
    far_too_large = torch.zeros(1).expand(1 << 50)
    state["model"]["weight"] = far_too_large
    saver.start(state, meta(1), frozenset({far_too_large.data_ptr()}))
    saver.wait()
    assert saver.failures == 1
    assert "4503600 GB" in caplog.text
    assert list(tmp_path.iterdir()) == []


@pytest.mark.failure(25)
def test_a_moved_folder_is_created_again(tmp_path: Path):
    folder = tmp_path / "run"
    folder.mkdir()
    saver = Saver(folder, keep=3)
    save(saver, 1)
    shutil.rmtree(folder)
    save(saver, 2)
    saver.close()
    assert saver.failures == 0
    assert verify_checkpoint(folder / "latest.pth").step == 2


def test_an_internal_error_is_not_taken_for_a_full_disk(saver: Saver):
    state = {**content(1), "more": lambda: None}  # nothing that can be pickled
    saver.start(state, meta(1), NOTHING)
    with pytest.raises(AttributeError, match="local object"):
        saver.wait()


# --- in the loop ---


def failed_saves(run: TinyRun, step: int | None = None) -> list[str]:
    """Return the lines about failed saves in the log of the run."""
    number = r"\d+" if step is None else step
    return re.findall(rf"^\[Warn\] .*checkpoint of step {number} .*", run.log, re.MULTILINE)


def fill_disk_in_the_loop(monkeypatch: pytest.MonkeyPatch, run: TinyRun, *steps: int) -> None:
    """Let the first save of each of `steps` fail; from the first validation on, after the lock is taken."""
    validate = loop.validate
    to_come = set(steps)

    def validate_on_a_full_disk(*args, **kwargs):
        while to_come:
            fill_disk(run.output, to_come.pop())
        return validate(*args, **kwargs)

    monkeypatch.setattr(loop, "validate", validate_on_a_full_disk)
    monkeypatch.setattr(saving, "FINAL_RETRY_AFTER_S", 0.0)


def test_a_retried_last_save_can_still_be_the_best(tiny: TinyRun, monkeypatch: pytest.MonkeyPatch):
    fill_disk_in_the_loop(monkeypatch, tiny, 3)
    assert tiny.train(max_steps=3, val_interval=3, save_interval=100) == 0
    assert len(failed_saves(tiny, step=3)) == 1
    assert verify_checkpoint(tiny.output / "latest.pth").step == 3
    assert verify_checkpoint(tiny.output / "best.pth").step == 3
    assert torch.load(tiny.output / "best.pth", weights_only=True)["best_mel_loss"] < float("inf")


def test_a_best_checkpoint_that_was_lost_does_not_count(tiny: TinyRun, monkeypatch: pytest.MonkeyPatch):
    fill_disk_in_the_loop(monkeypatch, tiny, 3)
    monkeypatch.setattr(saving, "RETRY_AFTER_S", 0.0)
    # one checkpoint before it, which stays: nothing makes room
    assert tiny.train(max_steps=5, val_interval=3, save_interval=2) == 0
    assert len(failed_saves(tiny, step=3)) == 1
    # the last step is validated too, and with nothing better on the disk it is the best
    assert verify_checkpoint(tiny.output / "best.pth").step == 5


def test_a_disk_that_is_full_until_the_end_of_the_run_costs_nothing(tiny: TinyRun, monkeypatch):
    fill_disk_in_the_loop(monkeypatch, tiny, *range(1, 13))
    monkeypatch.setattr(saving, "RETRY_AFTER_S", 0.0)
    assert tiny.train(val_interval=3, save_interval=2) == 0
    assert len(failed_saves(tiny)) > 3  # the third once ended the run
    assert verify_checkpoint(tiny.output / "latest.pth").step == 12


@pytest.mark.parametrize("patience_s", [0.0, 3600.0], ids=["one signal", "two signals"])
@pytest.mark.failure(22)
def test_a_stop_on_a_full_disk_ends_with_status_4_and_the_old_checkpoint_is_valid(
    tiny: TinyRun, monkeypatch: pytest.MonkeyPatch, patience_s: float
):
    assert tiny.train(max_steps=2) == 0
    monkeypatch.setattr(saving, "STOP_PATIENCE_S", patience_s)
    monkeypatch.setattr(saving, "FINAL_RETRY_AFTER_S", 0.0)
    tries = []

    def fail(*_: object) -> Path:
        tries.append(0)
        if patience_s and len(tries) == 3:
            signal.raise_signal(signal.SIGTERM)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(saving, "write_checkpoint", fail)
    with signalled_in_step(5):
        assert tiny.train(resume="auto", max_steps=9, save_interval=100, val_interval=100) == DISK_FULL
    assert re.search(r"\[Error\] .*--resume auto", tiny.log)
    assert verify_checkpoint(tiny.output / "latest.pth").step == 2


def test_a_short_save_interval_leaves_the_user_time_to_free_space(tiny: TinyRun, monkeypatch):
    fill_disk_in_the_loop(monkeypatch, tiny, *range(1, 12))
    assert tiny.train(val_interval=100, save_interval=1) == 0
    assert len(failed_saves(tiny)) == 1
    assert verify_checkpoint(tiny.output / "latest.pth").step == 12
