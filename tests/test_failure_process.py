"""The failure table, rows 19-24, 30, 31 and 52: signals, disks, folders and other processes.

Real trainers in their own processes. If a signal must arrive at one place of the code, the trainer runs in
this process, which sends the signal to itself.
"""

import fcntl
import json
import os
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from indextts.models.checkpoint import write_checkpoint
from indextts.runs import owner as run_owner
from indextts.runs.directory import CheckpointMeta, verify_checkpoint
from indextts.system.signals import SIGNALS
from indextts.training import loop, saving, start
from indextts.training.distributed.ranks import STOPPED_BEFORE_LOADING
from indextts.training.metrics import MetricsLog
from tests import waiting
from tests.small_disk import largest_file
from tests.test_trainer import load, numbers
from tests.tiny_run import TinyRun, make_tiny_run, signalled_in_step
from tests.trainer_process import TrainerProcess
from tests.waiting import PATIENCE_S

ENDLESS = {"epochs": 100_000, "val_interval": 100_000, "log_interval": 1, "save_interval": 10}


def wait_until(is_so: Callable[[], object], what: str) -> None:
    waiting.wait_until(is_so, lambda: what, pause_s=0.01)


@pytest.fixture
def trainers(tmp_path: Path) -> Iterator[Callable[..., TrainerProcess]]:
    """Return what starts a trainer; all are gone after the test."""
    started: list[TrainerProcess] = []

    def start_trainer(run: TinyRun, **changes: object) -> TrainerProcess:
        started.append(TrainerProcess(run.flags(**changes), tmp_path / f"screen{len(started)}.txt"))
        return started[-1]

    yield start_trainer
    for trainer in started:
        trainer.end()


def has_trained(run: TinyRun, trainer: TrainerProcess, steps: int = 1) -> bool:
    assert trainer.is_running()
    path = run.output / "metrics.jsonl"
    return path.is_file() and path.read_text().count('"kind": "train"') >= steps


def last_step(run: TinyRun) -> int:
    return max(numbers(run, kind="train"), default=0)


def newest_step(run: TinyRun) -> int:
    """Return the step of latest.pth, after verifying it; 0 before the first save."""
    try:
        return verify_checkpoint(run.output / "latest.pth").step
    except ValueError:  # between two renames
        return 0


def exit_status(run: TinyRun) -> int:
    return json.loads((run.output / "exit.json").read_text())["status"]


# ---- rows 19 to 21: signals


@pytest.mark.parametrize(
    "number",
    [signal.SIGTERM, *(pytest.param(n, marks=pytest.mark.long) for n in SIGNALS if n != signal.SIGTERM)],
)
@pytest.mark.failure(19)
def test_row_19_each_signal_has_its_status_and_the_step_is_finished(tiny: TinyRun, number: signal.Signals):
    with signalled_in_step(3, number):
        assert tiny.train(log_interval=1, save_interval=100) == exit_status(tiny) == 128 + number
    assert newest_step(tiny) == last_step(tiny) == 3


@pytest.mark.failure(19)
def test_row_19_ctrl_c_reaches_trainer_and_workers_and_the_resumed_run_continues_with_the_next_step(
    tiny: TinyRun, trainers: Callable[..., TrainerProcess]
):
    trainer = trainers(tiny, **ENDLESS | {"save_interval": 100_000, "num_workers": 2})
    wait_until(lambda: has_trained(tiny, trainer), "no step")
    trainer.send(signal.SIGINT, to_group=True)
    assert trainer.wait(PATIENCE_S) == exit_status(tiny) == 128 + signal.SIGINT
    saved = newest_step(tiny)
    assert re.search(rf"\[Info\] .*step {saved}\b.*--resume auto", tiny.log)
    assert tiny.train(resume="auto", **ENDLESS | {"max_steps": saved + 2}) == 0
    assert list(numbers(tiny, kind="train")) == list(range(1, saved + 3))


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.failure(20)
def test_row_20_a_signal_during_the_imports_ends_the_run_with_status_143(
    tiny: TinyRun, trainers: Callable[..., TrainerProcess]
):
    trainer = trainers(tiny, **ENDLESS)
    wait_until(trainer.has_loaded_torch, "no torch")
    trainer.send(signal.SIGTERM)
    assert trainer.wait(PATIENCE_S) == exit_status(tiny) == 143
    assert not list(tiny.output.glob("*.pth"))
    assert STOPPED_BEFORE_LOADING in tiny.log


PLACES: list[tuple[object, str]] = [(start, "read_weights"), (CheckpointMeta, "write")]
MORE_PLACES: list[tuple[object, str]] = [
    (loop, "validate"),
    (loop, "load_inputs"),
    (start, "build_optimizer"),
    (loop, "write_run_files"),
    (loop, "clip_and_step"),
    (MetricsLog, "train"),
    (loop, "save_checkpoint"),
    (saving.HostCopy, "take"),
    (saving, "write_checkpoint"),
    (run_owner, "_step_aside"),
    (run_owner, "link_or_copy"),
    (saving, "prune"),
    (loop, "finish_saving"),
]


@pytest.mark.parametrize(
    ("module", "name"), [*PLACES, *(pytest.param(*place, marks=pytest.mark.long) for place in MORE_PLACES)]
)
@pytest.mark.failure(20)
def test_row_20_a_signal_during_the_start_ends_the_run_with_status_143_and_the_next_resumes(
    tiny: TinyRun, monkeypatch: pytest.MonkeyPatch, module: object, name: str
):
    original = getattr(module, name)
    sent: list[int] = []

    def interrupted(*args: object, **kwargs: object) -> object:
        if not sent:
            sent.append(0)
            os.kill(os.getpid(), signal.SIGTERM)
        return original(*args, **kwargs)

    monkeypatch.setattr(module, name, interrupted)
    status = 0 if name == "finish_saving" else 143  # nothing is left to do then
    assert tiny.train(log_interval=1, save_interval=2, val_interval=2, max_steps=4) == status
    assert sent
    assert exit_status(tiny) == status
    assert not list(tiny.output.glob(".tmp-*"))
    steps = last_step(tiny) if (tiny.output / "metrics.jsonl").exists() else 0
    assert newest_step(tiny) == steps
    assert tiny.train(resume="auto", log_interval=1, save_interval=2, val_interval=2, max_steps=4) == 0
    assert list(numbers(tiny, kind="train")) == list(range(1, 5))


@pytest.mark.failure(21)
def test_row_21_the_third_signal_ends_at_once_and_the_last_checkpoint_is_valid(
    tiny: TinyRun, trainers: Callable[..., TrainerProcess]
):
    trainer = trainers(tiny, **ENDLESS)
    wait_until(lambda: has_trained(tiny, trainer) and newest_step(tiny), "no checkpoint")
    trainer.send(signal.SIGSTOP)  # so that all three are pending when it continues
    for number in (signal.SIGINT, signal.SIGUSR1, signal.SIGTERM):
        trainer.send(number)
    trainer.send(signal.SIGCONT)
    assert trainer.wait(PATIENCE_S) == 143
    assert "--resume auto" not in tiny.log
    assert not (tiny.output / "exit.json").exists()
    saved = newest_step(tiny)
    assert tiny.train(resume="auto", **ENDLESS | {"max_steps": saved + 1}) == 0
    assert newest_step(tiny) == saved + 1


# ---- rows 22 and 23: a disk that is full, as a limit on the size of files is


@pytest.mark.failure(22)
def test_row_22_a_write_that_fails_at_any_byte_leaves_the_previous_checkpoint(tiny: TinyRun):
    assert tiny.train(max_steps=2) == 0
    whole = verify_checkpoint(tiny.output / "latest.pth")
    content = load(tiny.output / "latest.pth")
    newer = whole.model_copy(update={"step": 3, "serial": whole.serial + 1})
    for number in range(50):
        with largest_file(number * whole.num_bytes // 50), pytest.raises(OSError, match="File too large"):
            write_checkpoint(tiny.output, content, newer)
        assert verify_checkpoint(tiny.output / "latest.pth") == whole
        assert not (tiny.output / "model_step3.pth").exists()
        assert not list(tiny.output.glob(".tmp-*"))


@pytest.mark.parametrize("name", ["train.log", "metrics.jsonl"])
@pytest.mark.failure(23)
def test_row_23_a_run_continues_without_a_file_on_a_full_disk(tiny: TinyRun, caplog, name: str):
    tiny.output.mkdir()
    (tiny.output / name).symlink_to("/dev/full")
    assert tiny.train(log_interval=1, max_steps=6) == 0
    assert newest_step(tiny) == 6
    if name == "metrics.jsonl":
        assert tiny.log.count("No space left on device") == 1


@pytest.mark.failure(23)
def test_row_23_a_tensorboard_folder_that_cannot_be_created_is_logged_once(tiny: TinyRun):
    tiny.output.mkdir()
    (tiny.output / "logs").touch()
    assert tiny.train(log_interval=1, max_steps=6) == 0
    assert tiny.log.count("[Errno 20] Not a directory") == 1
    assert list(numbers(tiny, kind="train")) == list(range(1, 7))


@pytest.mark.failure(24)
def test_row_24_a_start_on_a_full_disk_ends_with_4(tiny: TinyRun):
    tiny.output.mkdir()
    with largest_file((tiny.folder / "tokenizer.model").stat().st_size // 2):
        assert tiny.train(max_steps=1) == 4
    assert "[Error] " in tiny.log
    assert exit_status(tiny) == 4
    assert tiny.train(max_steps=1) == 0


# ---- rows 30 and 31: workers


@pytest.mark.failure(30)
def test_row_30_a_killed_trainer_leaves_no_worker_and_no_lock_behind(
    tiny: TinyRun, trainers: Callable[..., TrainerProcess]
):
    trainer = trainers(tiny, **ENDLESS | {"num_workers": 2})
    wait_until(lambda: has_trained(tiny, trainer) and len(workers_of(trainer)) == 2, "no workers")
    trainer.send(signal.SIGSTOP)
    for pid in workers_of(trainer):
        os.kill(pid, signal.SIGSTOP)  # as one that waits for a disk
    trainer.send(signal.SIGKILL)
    assert trainer.wait(PATIENCE_S) == -signal.SIGKILL
    assert trainer.wait_for_members(PATIENCE_S) == []
    with (tiny.output / ".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises if a worker had inherited it


def workers_of(trainer: TrainerProcess) -> list[int]:
    return [pid for pid in trainer.members() if pid != trainer.pid]


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.failure(31)
def test_row_31_a_killed_worker_ends_the_run_with_status_1_and_a_resume_continues(
    tiny: TinyRun, trainers: Callable[..., TrainerProcess]
):
    trainer = trainers(tiny, **ENDLESS | {"num_workers": 2, "save_interval": 3})
    wait_until(lambda: has_trained(tiny, trainer) and newest_step(tiny), "no checkpoint")
    status = None
    while status is None:  # an epoch's workers end with it: one that is killed just then is not missed
        for pid in workers_of(trainer)[:1]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        status = trainer.wait(5)
    assert status == exit_status(tiny) == 1
    saved = newest_step(tiny)
    assert 0 < saved <= last_step(tiny)
    assert tiny.train(resume="auto", **ENDLESS | {"max_steps": saved + 2}) == 0


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.failure(31)
def test_row_31_a_stop_ends_a_run_whose_workers_do_not_answer_and_a_resume_goes_on(
    tiny: TinyRun, trainers: Callable[..., TrainerProcess]
):
    trainer = trainers(tiny, **ENDLESS | {"num_workers": 2, "save_interval": 100_000})
    wait_until(lambda: has_trained(tiny, trainer) and len(workers_of(trainer)) == 2, "no workers")
    for pid in workers_of(trainer):
        os.kill(pid, signal.SIGSTOP)  # as one that waits for a disk
    trainer.send(signal.SIGTERM)
    assert trainer.wait(PATIENCE_S) == exit_status(tiny) == 143
    saved = newest_step(tiny)
    assert saved == last_step(tiny) > 0
    assert trainer.wait_for_members(PATIENCE_S) == []
    assert tiny.train(resume="auto", **ENDLESS | {"max_steps": saved + 2}) == 0
    assert list(numbers(tiny, kind="train")) == list(range(1, saved + 3))


# ---- row 52: names


@pytest.mark.failure(52)
def test_row_52_a_run_works_in_a_folder_of_any_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    name = "-rf $(touch canary) 'q' \"d\" `t` *?[a]\nሀ"
    monkeypatch.chdir(tmp_path)
    run = make_tiny_run(tmp_path / name / "tiny")
    assert run.train(output_dir=tmp_path / name / "tiny/run" / name, max_steps=2) == 0
    output = run.output / name
    assert verify_checkpoint(output / "latest.pth").step == 2
    assert run.train(output_dir=output, max_steps=3, resume="auto") == 0
    assert run.train(output_dir=output, max_steps=4, resume=output / "model_step3.pth") == 0
    assert verify_checkpoint(output / "latest.pth").step == 4
    assert [path.name for path in tmp_path.iterdir()] == [name]
