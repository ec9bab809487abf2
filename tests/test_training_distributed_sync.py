"""Tests of indextts/training/distributed/sync.py: a stop, a save, and checks that the ranks are identical."""

import signal
from dataclasses import replace

import pytest
import torch

from indextts.commands.terminal import parse
from indextts.commands.train import Train
from indextts.errors import CHECK_FAILED, USER_MISTAKE, UserError
from indextts.system.signals import StopRequest
from indextts.training.decision import Signals
from indextts.training.distributed.ranks import SINGLE_PROCESS, Ranks
from indextts.training.distributed.sync import fingerprint, require_same_start, require_same_weights
from indextts.training.groups import count_tokens
from indextts.training.loading import load_batches
from indextts.training.loop import gather_signals
from indextts.training.metrics import SpeedMeter
from indextts.training.run import Run, load_inputs
from indextts.training.saving import Saver
from indextts.training.start import start_from_base
from tests.tiny_run import TinyRun, make_tiny_run


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> TinyRun:
    return make_tiny_run(tmp_path_factory.mktemp("sync") / "tiny")


class TwoRanks(Ranks):
    """Rank 0 of two; rank 1 has what the test sets."""

    def __init__(self) -> None:
        super().__init__(world_size=2)
        self.numbers: list[int] = []
        self.other: object = None
        self.changes: dict[str, str] = {}

    def all_reduce_ints(self, numbers: list[int]) -> list[int]:
        return [int(a) + b for a, b in zip(numbers, self.numbers or [0] * len(numbers), strict=True)]

    def all_gather(self, value: object) -> list:
        return [value, {**value, **self.changes} if isinstance(value, dict) else self.other]


def new_run(project: TinyRun, ranks: Ranks = SINGLE_PROCESS) -> Run:
    return start_from_base(replace(load_inputs(parse(Train, project.flags())), ranks=ranks))


def test_a_step_is_left_out_where_the_workers_of_another_rank_do_not_answer(project: TinyRun):
    run, ranks = new_run(project), TwoRanks()
    [part] = load_batches(run.inputs.train_set, [[0, 1]], 0, run.inputs.collate)
    ranks.numbers = [0, 0, 0, 1]
    assert count_tokens([part], ranks) is None
    ranks.numbers = [0, 0, 0, 0]
    assert count_tokens([part], ranks) is not None
    assert count_tokens(None, ranks) is None


def test_a_stop_requested_on_another_rank_stops_this_rank_with_the_same_signal(project: TinyRun, tmp_path):
    run, ranks, stop = new_run(project), TwoRanks(), StopRequest(ends_process=False)
    ranks.numbers, ranks.other = [1, 0, 0], signal.SIGUSR1
    saver, speed = Saver(tmp_path, 1), SpeedMeter(run.inputs.device)
    found = gather_signals(run.state, ranks, saver, stop, speed, save_interval=10)
    assert found == Signals(stop_requested=True)
    assert stop.signal == signal.SIGUSR1


def test_a_fingerprint_changes_with_the_last_bit_of_a_trained_weight(project: TinyRun):
    run, other = new_run(project), new_run(project)
    before = fingerprint(run.trained)
    assert fingerprint(other.trained) == before
    with torch.no_grad():
        weight = run.trained.parameters["mel_head.bias"]
        weight[0] = weight[0].nextafter(torch.tensor(9.0))
    assert fingerprint(run.trained) != before


def test_weights_that_differ_are_refused_and_the_rank_is_named(project: TinyRun):
    ranks = TwoRanks()
    run = new_run(project, ranks)
    require_same_weights(run)
    ranks.changes = {"weights": "others"}
    with pytest.raises(UserError, match="rank 1") as refused:
        require_same_weights(run)
    assert refused.value.exit_status == CHECK_FAILED


@pytest.mark.parametrize("fact", ["training pairs", "weights"])
def test_ranks_that_start_with_other_files_are_refused(project: TinyRun, fact: str):
    ranks = TwoRanks()
    run = new_run(project, ranks)
    require_same_start(run, {"seed": 1})
    ranks.changes = {fact: "others"}
    with pytest.raises(UserError, match=f"Rank 1 .*: {fact}") as refused:
        require_same_start(run, {"seed": 1})
    assert refused.value.exit_status == USER_MISTAKE
