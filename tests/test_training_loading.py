"""Tests of indextts/training/loading.py: the same batches from workers, which may die, stop or fail."""

import multiprocessing
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from indextts.commands.terminal import parse
from indextts.commands.train import Train
from indextts.errors import CHECK_FAILED, UserError
from indextts.training import loading
from indextts.training.batches import MicroBatch, Sample
from indextts.training.loading import StoppedWhileLoadingError, load_batches
from indextts.training.run import Inputs, load_inputs
from tests.tiny_run import make_tiny_run
from tests.waiting import wait_until

PLAN = [[3, 1], [0], [5, 4, 2], [7, 6], [8], [10, 9, 11]]


@pytest.fixture(scope="module", params=["none", "reference"])
def inputs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Inputs:
    run = make_tiny_run(tmp_path_factory.mktemp("loading") / "tiny")
    return load_inputs(parse(Train, run.flags(padding=request.param)))


def worker_pids() -> list[int]:
    return sorted(process.pid or 0 for process in multiprocessing.active_children())


def loaded(inputs: Inputs, num_workers: int) -> Iterator[MicroBatch]:
    return load_batches(inputs.train_set, PLAN, num_workers, inputs.collate)


def test_workers_build_the_batches_that_this_process_builds(inputs: Inputs):
    expected, found = list(loaded(inputs, 0)), list(loaded(inputs, 2))
    assert [part.ids for part in found] == [part.ids for part in expected]
    assert len(found) == len(PLAN)
    for mine, other in zip(found, expected, strict=True):
        for name, value in vars(other.batch).items():
            mine_value = getattr(mine.batch, name)
            assert torch.equal(mine_value, value) if isinstance(value, torch.Tensor) else mine_value == value
    assert worker_pids() == []


def test_a_loader_that_is_left_early_ends_its_workers(inputs: Inputs):
    batches = loaded(inputs, 2)
    next(batches)
    assert len(worker_pids()) == 2
    batches.close()  # type: ignore[attr-defined]
    assert worker_pids() == []


def test_a_killed_worker_is_an_error_with_its_process_and_signal(inputs: Inputs):
    batches = load_batches(inputs.train_set, PLAN * 1000, 2, inputs.collate)
    next(batches)
    pid = worker_pids()[1]
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(UserError, match=rf"\b{pid}\b.*signal 9\b.*--num-workers") as caught:
        list(batches)
    assert caught.value.exit_status == CHECK_FAILED
    assert worker_pids() == []


def test_a_stop_ends_the_wait_for_a_worker_that_does_not_answer(inputs: Inputs):
    is_stopping = [False]
    plan = PLAN * 1000
    batches = load_batches(inputs.train_set, plan, 1, inputs.collate, should_stop=lambda: is_stopping[0])
    next(batches)
    [pid] = worker_pids()
    os.kill(pid, signal.SIGSTOP)  # as on storage that does not answer
    wait_until(lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")
    is_stopping[0] = True
    with pytest.raises(StoppedWhileLoadingError):
        list(batches)
    assert worker_pids() == []


def test_a_long_silence_is_an_error_that_names_the_worker(inputs: Inputs, monkeypatch: pytest.MonkeyPatch):
    batches = load_batches(inputs.train_set, PLAN * 1000, 2, inputs.collate)
    next(batches)
    pids = worker_pids()
    monkeypatch.setattr(loading, "MAX_SILENCE_S", 0.5)
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    with pytest.raises(UserError) as caught:
        list(batches)
    assert re.search("|".join(rf"\b{pid}\b" for pid in pids), str(caught.value))
    assert worker_pids() == []


def test_an_error_in_a_worker_keeps_its_traceback(inputs: Inputs):
    def fail(samples: list[Sample]) -> None:
        raise KeyError(samples[0].id)

    with pytest.raises(RuntimeError, match=r"(?s)in fail.*KeyError"):
        next(load_batches(inputs.train_set, PLAN, 1, fail))  # type: ignore[arg-type]
    assert worker_pids() == []
