"""Tests of indextts/training/distributed/sharding.py: balanced shards that add up to the micro-batch."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from indextts.commands.terminal import parse
from indextts.commands.train import Train
from indextts.training.distributed.ranks import Ranks
from indextts.training.distributed.sharding import (
    Sharding,
    all_reduce_losses,
    assign_samples,
    load_shards,
    sample_costs,
)
from indextts.training.gradients import LARGE_BYTES, all_reduce_tensors
from indextts.training.loading import load_batches
from indextts.training.losses import LossSums
from indextts.training.order import in_batches
from indextts.training.run import Inputs, load_inputs
from indextts.training.start import start_from_base
from tests.tiny_run import accumulate_group, make_tiny_run

NUM_RANKS = 3
PLAN = in_batches(range(22), 6)  # the last has 4 samples


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Inputs:
    folder: Path = tmp_path_factory.mktemp("shards") / "tiny"
    return load_inputs(parse(Train, make_tiny_run(folder).flags()))


def lengths_of_speech(num_samples: int, seed: int) -> np.ndarray:
    """Positions of utterances of about 2 to 20 s, with the long tail of real recordings."""
    drawn = np.random.default_rng(seed).lognormal(mean=5.8, sigma=0.45, size=num_samples)
    return drawn.clip(120, 1400).astype(np.int64)


@pytest.mark.parametrize(("num_samples", "num_ranks"), [(0, 3), (1, 1), (3, 4), (64, 4)])
def test_every_sample_is_assigned_to_one_rank(num_samples, num_ranks):
    shards = assign_samples(lengths_of_speech(num_samples, 1).tolist(), num_ranks)
    assert len(shards) == num_ranks
    assert sorted(index for shard in shards for index in shard) == list(range(num_samples))


@pytest.mark.parametrize("num_ranks", [2, 8])
def test_with_eight_samples_per_rank_the_mean_imbalance_is_below_one_percent(num_ranks):
    balanced, round_robin = [], []
    for seed in range(20):
        costs = sample_costs(lengths_of_speech(8 * num_ranks, seed), model_dim=1280)
        shards = assign_samples(costs.tolist(), num_ranks)
        mean = costs.sum() / num_ranks
        balanced.append(max(costs[shard].sum() for shard in shards) / mean)
        round_robin.append(max(costs[rank::num_ranks].sum() for rank in range(num_ranks)) / mean)
    assert np.mean(balanced) < 1.01 < np.mean(round_robin)


def loaded(inputs: Inputs, rank: int, num_ranks: int, workers: int) -> list:
    ranks = Ranks(rank=rank, world_size=num_ranks)
    sharding = Sharding(inputs.train_set, inputs.config.model_dim, ranks)
    return list(load_shards(inputs.train_set, PLAN, sharding, workers, inputs.collate))


@pytest.mark.parametrize("workers", [0, 1])
def test_the_shards_of_all_ranks_add_up_to_the_micro_batch(inputs: Inputs, workers: int):
    batches = list(load_batches(inputs.train_set, PLAN, 0, inputs.collate))
    shards = [loaded(inputs, rank, NUM_RANKS, workers) for rank in range(NUM_RANKS)]
    for number, batch in enumerate(batches):
        parts = [own[number] for own in shards]
        assert all(part.ids == batch.ids for part in parts)
        assert len({part.rank_costs for part in parts}) == 1
        assert sum(part.batch.num_samples for part in parts) == len(batch.ids)
        assert sum(part.batch.num_text for part in parts) == batch.batch.num_text
        assert sum(part.batch.num_mel for part in parts) == batch.batch.num_mel


def test_a_rank_without_samples_gets_an_empty_shard(inputs: Inputs):
    last = [loaded(inputs, rank, 6, 0)[-1] for rank in range(6)]
    assert [part.batch is None for part in last].count(True) == 2
    assert all(len(part.ids) == 4 for part in last)
    assert all((part.rank_costs[rank] == 0) == (part.batch is None) for rank, part in enumerate(last))


class RanksWithValues(Ranks):
    """Rank 0; the other ranks have the given values."""

    def __init__(self, others: Sequence[object]) -> None:
        super().__init__(world_size=1 + len(others))
        self.others = others

    def all_gather(self, value: object) -> list:
        return [value, *self.others]

    def all_reduce(self, tensor: torch.Tensor) -> None:
        tensor.mul_(self.world_size)


def sums(numbers: Sequence[float]) -> LossSums:
    return LossSums.nothing(torch.device("cpu")).with_numbers(numbers)


def test_sums_over_all_ranks_keep_their_types_and_skip_ranks_without_any():
    cpu = torch.device("cpu")
    other = sums([0.5, 20, 0.25, 40, 3, 0, 0])
    ranks = RanksWithValues([other.numbers(), None])
    found = all_reduce_losses(sums([1.5, 10, 2.5, 30, 4, 1, 1]), ranks, cpu)
    assert found.numbers() == [2, 30, 2.75, 70, 7, 1, 1]
    assert (found.text_nats.dtype, found.text_tokens.dtype) == (torch.float32, torch.int64)
    assert all_reduce_losses(None, RanksWithValues([None]), cpu) is None


def test_an_all_reduce_writes_each_tensor_back_in_any_layout():
    tensors = [torch.arange(6.0).view(2, 3).T, torch.tensor(2.0), torch.ones(LARGE_BYTES // 4, 2).T]
    wanted = [3 * tensor.clone() for tensor in tensors]
    all_reduce_tensors(tensors, RanksWithValues(["", ""]))
    for found, expected in zip(tensors, wanted, strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_every_trained_parameter_has_a_gradient_after_a_step(inputs: Inputs):
    """Otherwise zeros in its place would let weight decay move what a single process would not."""
    run = start_from_base(inputs)
    accumulate_group(run, list(load_batches(inputs.train_set, PLAN[:1], 0, inputs.collate)))
    run.trained.collect_gradients()
    assert len(run.trained.gradients()) == len(run.trained.parameters)
    run.trained.clear_gradients()
    run.trained.fill_missing_gradients()
    run.trained.collect_gradients()
    assert len(run.trained.gradients()) == len(run.trained.parameters)
    assert not any(gradient.any() for gradient in run.trained.gradients())
