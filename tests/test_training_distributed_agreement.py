"""What processes decide together: a stop, a save, and whether they still are the same."""

import signal
from pathlib import Path

import pytest
import torch

from indextts.commands.terminal import parse
from indextts.commands.train import Train
from indextts.errors import CHECK_FAILED, USER_MISTAKE, UserError
from indextts.system.signals import StopRequest
from indextts.training.batches import load_batches
from indextts.training.distributed.agreement import (
    agree,
    fingerprint,
    require_same_start,
    require_same_weights,
)
from indextts.training.distributed.ranks import ALONE, Ranks
from indextts.training.distributed.torchrun import Place
from indextts.training.run import Run, load_inputs
from indextts.training.saving import Saver
from indextts.training.start import start_from_base
from tests.tiny_run import TinyRun, make_tiny_run


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> TinyRun:
    return make_tiny_run(tmp_path_factory.mktemp("agreement") / "tiny")


class WithAnother(Ranks):
    """Process 0 of two; of the other it is said what it has."""

    def __init__(self) -> None:
        super().__init__(Place(size=2))
        self.numbers: list[int] = []
        self.other: object = None
        self.changes: dict[str, str] = {}

    def agree(self, numbers: list[int]) -> list[int]:
        return [int(a) + b for a, b in zip(numbers, self.numbers, strict=True)]

    def gathered(self, value: object) -> list:
        return [value, {**value, **self.changes} if isinstance(value, dict) else self.other]


def new_run(project: TinyRun, ranks: Ranks = ALONE) -> Run:
    return start_from_base(load_inputs(parse(Train, project.flags()), ranks))


def test_alone_the_tokens_of_a_step_are_those_of_its_batches(project: TinyRun, tmp_path: Path):
    this = new_run(project)
    [part] = load_batches(this.inputs.train_set, [[0, 1]], 0, this.inputs.collate)
    found = agree(ALONE, [part, part], StopRequest(ends_process=False), Saver(tmp_path, 1))
    assert part.batch is not None
    assert (found.num_text, found.num_mel) == (2 * part.batch.num_text, 2 * part.batch.num_mel)
    assert (found.must_stop, found.has_failed_save, found.num_unreadable) == (False, False, 0)


def test_a_stop_that_another_process_was_asked_for_is_asked_here_by_its_signal(tmp_path: Path):
    ranks, stop = WithAnother(), StopRequest(ends_process=False)
    ranks.numbers, ranks.other = [30, 40, 0, 1, 0, 0], signal.SIGUSR1
    found = agree(ranks, None, stop, Saver(tmp_path, 1))
    assert found.must_stop
    assert found.num_tokens == 70
    assert stop.signal == signal.SIGUSR1


def test_a_fingerprint_is_of_the_bits_of_what_is_trained(project: TinyRun):
    this, other = new_run(project), new_run(project)
    before = fingerprint(this.trained)
    assert fingerprint(other.trained) == before
    with torch.no_grad():
        weight = this.trained.parameters["mel_head.bias"]
        weight[0] = weight[0].nextafter(torch.tensor(9.0))
    assert fingerprint(this.trained) != before


def test_weights_that_differ_are_not_saved_and_the_process_is_named(project: TinyRun):
    ranks = WithAnother()
    this = new_run(project, ranks)
    require_same_weights(this)
    ranks.changes = {"weights": "others"}
    with pytest.raises(UserError, match="process 1 has other weights than process 0") as refused:
        require_same_weights(this)
    assert refused.value.exit_status == CHECK_FAILED


@pytest.mark.parametrize("fact", ["training pairs", "settings", "weights", "step to go on from"])
def test_processes_that_start_from_other_files_are_refused(project: TinyRun, fact: str):
    ranks = WithAnother()
    this = new_run(project, ranks)
    require_same_start(this)
    ranks.changes = {fact: "others"}
    with pytest.raises(UserError, match=f"Process 1 has other {fact} than process 0") as refused:
        require_same_start(this)
    assert refused.value.exit_status == USER_MISTAKE


def test_one_process_has_nobody_to_differ_from(project: TinyRun):
    this = new_run(project)
    require_same_start(this)
    require_same_weights(this)
