import multiprocessing
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from indextts.commands.terminal import parse
from indextts.commands.train import Train
from indextts.errors import CHECK_FAILED, UserError
from indextts.training import loading
from indextts.training.batches import MicroBatch, Sample
from indextts.training.loading import StoppedWhileLoadingError, load_batches
from indextts.training.order import BatchPlan, derive_seed, epoch_permutation, in_batches
from indextts.training.run import Inputs, load_inputs
from tests.tiny_run import make_tiny_run
from tests.waiting import wait_until

LENGTHS = np.random.default_rng(0).integers(120, 900, 400)


def plan(epoch: int = 0, samples_done: int = 0, **changes: int) -> BatchPlan:
    settings = {"seed": 7, "batch_size": 8, "batch_tokens": 4000, **changes}
    return BatchPlan(LENGTHS, **settings, epoch=epoch, samples_done=samples_done)


def epochs(these: BatchPlan, number: int) -> list[list[list[int]]]:
    """Return the batches of the first epochs, by their marks."""
    found: list[list[list[int]]] = [[]]
    for batch, is_last in zip(these, these.epoch_end_flags(), strict=False):
        found[-1].append(batch)
        if is_last:
            if len(found) == number:
                return found
            found.append([])
    raise AssertionError("a plan has no end")


def test_each_epoch_has_every_sample_once_in_its_own_order():
    orders = [epoch_permutation(50, seed=1, epoch=epoch).tolist() for epoch in range(3)]
    assert all(sorted(order) == list(range(50)) for order in orders)
    assert len({tuple(order) for order in orders} | {tuple(range(50))}) == 4


def test_seeds_differ_with_every_part_and_fit_a_generator():
    seeds = {
        derive_seed(1, "order", 2),
        derive_seed(2, "order", 1),
        derive_seed(1, "dropout", 2),
        derive_seed(1, "order", 3),
    }
    assert len(seeds) == 4
    assert all(0 <= seed < 2**63 for seed in seeds)


@pytest.mark.parametrize("batch_tokens", [0, 2700, 4000, 50_000, 10**9])
def test_every_epoch_has_each_sample_once_in_its_order(batch_tokens: int):
    for epoch, batches in enumerate(epochs(plan(batch_tokens=batch_tokens), 3)):
        assert [sample for batch in batches for sample in batch] == epoch_permutation(400, 7, epoch).tolist()


@pytest.mark.parametrize("batch_tokens", [2700, 4000, 50_000, 10**9])
def test_batches_keep_the_budget_and_have_the_computed_number(batch_tokens: int):
    these = plan(batch_tokens=batch_tokens)
    for batches in epochs(these, 3):
        assert len(batches) == these.size.num_batches(these.batch_size, batch_tokens)
        assert all(0 < LENGTHS[batch].sum() <= batch_tokens for batch in batches)


def test_after_an_interruption_the_remaining_batches_follow():
    first, second = epochs(plan(), 2)
    for number in (1, 5, len(first) - 1):
        done = sum(map(len, first[:number]))
        rest = epochs(plan(samples_done=done), 2)
        assert rest == [first[number:], second]


def test_a_position_within_a_batch_leaves_its_other_samples():
    first = epochs(plan(), 1)[0]
    assert epochs(plan(samples_done=len(first[0]) + 1), 1)[0] == [first[1][1:], *first[2:]]


def test_a_change_from_size_to_budget_loses_no_sample():
    done = 8 * 11
    order = epoch_permutation(400, 7, 0).tolist()
    rest = epochs(plan(samples_done=done), 1)[0]
    assert order[:done] + [sample for batch in rest for sample in batch] == order


def test_batches_of_a_size_end_with_a_smaller_one():
    assert in_batches(range(7), 3) == [[0, 1, 2], [3, 4, 5], [6]]


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
