"""The shares of several processes in a micro-batch are the micro-batch, and their sums are its sums."""

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from indextts.commands.terminal import parse
from indextts.commands.train import Train
from indextts.training.batches import load_batches
from indextts.training.distributed.ranks import Ranks
from indextts.training.distributed.sharding import Shares, load_shares, total
from indextts.training.distributed.torchrun import Place
from indextts.training.losses import LossSums
from indextts.training.order import in_batches
from indextts.training.run import Inputs, load_inputs
from indextts.training.start import start_from_base
from indextts.training.step import BUCKET_BYTES, LARGE_BYTES, accumulate, add_up, in_buckets
from tests.tiny_run import make_tiny_run

NUM_RANKS = 3
PLAN = in_batches(range(22), 6)  # the last of 4


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Inputs:
    folder: Path = tmp_path_factory.mktemp("shares") / "tiny"
    return load_inputs(parse(Train, make_tiny_run(folder).flags()))


def shares_of(inputs: Inputs, rank: int, num_ranks: int = NUM_RANKS) -> Shares:
    ranks = Ranks(Place(rank=rank, size=num_ranks))
    return Shares.of(inputs.train_set, inputs.config.model_dim, ranks)


def loaded(inputs: Inputs, rank: int, num_ranks: int, workers: int) -> list:
    shares = shares_of(inputs, rank, num_ranks)
    return list(load_shares(inputs.train_set, PLAN, shares, workers, inputs.collate))


@pytest.mark.parametrize("workers", [0, 1])
def test_the_shares_of_all_processes_are_the_micro_batch(inputs: Inputs, workers: int):
    whole = list(load_batches(inputs.train_set, PLAN, 0, inputs.collate))
    parts = [loaded(inputs, rank, NUM_RANKS, workers) for rank in range(NUM_RANKS)]
    for number, one in enumerate(whole):
        several = [own[number] for own in parts]
        assert all(part.ids == one.ids for part in several)
        assert len({part.work for part in several}) == 1
        assert sum(part.batch.num_samples for part in several) == len(one.ids)
        assert sum(part.batch.num_text for part in several) == one.batch.num_text
        assert sum(part.batch.num_mel for part in several) == one.batch.num_mel


def test_a_process_without_a_sample_gets_an_empty_share(inputs: Inputs):
    last = [loaded(inputs, rank, 6, 0)[-1] for rank in range(6)]
    assert [part.batch is None for part in last].count(True) == 2
    assert all(len(part.ids) == 4 for part in last)
    assert all((part.work[rank] == 0) == (part.batch is None) for rank, part in enumerate(last))


class Told(Ranks):
    """A process that is told what the others have."""

    def __init__(self, others: Sequence[object]) -> None:
        super().__init__(Place(size=1 + len(others)))
        self.others = others

    def gathered(self, value: object) -> list:
        return [value, *self.others]

    def add_up(self, tensor: torch.Tensor) -> None:
        tensor.mul_(self.size)


def sums(numbers: Sequence[float]) -> LossSums:
    return LossSums.nothing(torch.device("cpu")).with_numbers(numbers)


def test_sums_over_all_processes_keep_their_types_and_leave_out_who_has_none():
    other = sums([0.5, 20, 0.25, 40, 3, 0, 0])
    found = total(sums([1.5, 10, 2.5, 30, 4, 1, 1]), Told([other.numbers(), None]), torch.device("cpu"))
    assert found is not None
    assert found.numbers() == [2, 30, 2.75, 70, 7, 1, 1]
    assert (found.text_nats.dtype, found.text_tokens.dtype) == (torch.float32, torch.int64)
    assert total(None, Told([None]), torch.device("cpu")) is None


def test_gradients_travel_in_buckets_and_the_large_ones_alone():
    large = torch.ones(LARGE_BYTES // 4)
    small = [torch.ones(LARGE_BYTES // 8) for _ in range(40)]
    other = torch.ones(3, dtype=torch.float64)
    buckets = list(in_buckets([small[0], large, other, *small[1:]]))
    sizes = [sum(tensor.nbytes for tensor in bucket) for bucket in buckets]
    assert [len(bucket) for bucket in buckets if bucket[0] is large] == [1]
    assert all(len({tensor.dtype for tensor in bucket}) == 1 for bucket in buckets)
    assert sum(map(len, buckets)) == 42
    assert max(sizes) <= BUCKET_BYTES
    assert len(buckets) == 5  # the large one, three of 40 small ones, the other type


def test_what_travels_comes_back_to_its_place_in_any_layout():
    tensors = [torch.arange(6.0).view(2, 3).T, torch.tensor(2.0), torch.ones(LARGE_BYTES // 4, 2).T]
    wanted = [3 * tensor.clone() for tensor in tensors]
    add_up(tensors, Told(["", ""]))
    for found, expected in zip(tensors, wanted, strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_every_trained_parameter_has_a_gradient_after_a_step(inputs: Inputs):
    """Else zeros in its place would let the decay move what one process alone would leave."""
    this = start_from_base(inputs)
    group = list(load_batches(inputs.train_set, PLAN[:1], 0, inputs.collate))
    accumulate(this, group)
    this.trained.collect_gradients()
    assert len(this.trained.gradients()) == len(this.trained.parameters)
    this.trained.clear_gradients()
    this.trained.fill_gradients()
    this.trained.collect_gradients()
    assert len(this.trained.gradients()) == len(this.trained.parameters)
    assert not any(gradient.any() for gradient in this.trained.gradients())
