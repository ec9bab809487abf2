"""Sharding of micro-batches over ranks, so that all ranks finish at about the same time.

All ranks wait for the slowest one before each update, so `assign_samples` balances the load by the cost of
each sample. It assigns the most expensive samples first, each to the rank with the smallest load (Graham's
"longest processing time first" rule), which leaves differences of about the cheapest sample. Then the ranks
with the largest and the smallest load swap samples until their loads are almost equal. The load of a rank is
at most the mean plus one sample. Every rank computes the shards of all ranks.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from indextts.training.batches import Collate, MicroBatch, PairDataset
from indextts.training.distributed.ranks import Ranks
from indextts.training.loading import load_batches
from indextts.training.losses import LossSums

ACCEPTED_GAP = 0.002  # between the largest and the smallest load, relative to the mean: kernels vary more
SWAPS_PER_RANK = 4


class Sharding:
    """Sharding of a data set over ranks, by the cost of each sample."""

    def __init__(self, dataset: PairDataset, model_dim: int, ranks: Ranks) -> None:
        self.costs, self.ranks = sample_costs(dataset.lengths, model_dim), ranks  # costs: (S,)

    def shards(self, batch: Sequence[int]) -> list[list[int]]:
        """Return the samples of each rank in a micro-batch."""
        shards = assign_samples(self.costs[list(batch)].tolist(), self.ranks.world_size)
        return [[batch[index] for index in shard] for shard in shards]

    def own_shards(self, batches: Iterable[Sequence[int]]) -> Iterator[list[int]]:
        """Yield this rank's shard of each micro-batch; it may be empty."""
        return (self.shards(batch)[self.ranks.rank] for batch in batches)

    def rank_costs(self, batch: Sequence[int]) -> tuple[float, ...]:
        """Return the cost of each rank's shard of a micro-batch."""
        return tuple(float(self.costs[shard].sum()) for shard in self.shards(batch))


def load_shards(
    dataset: PairDataset,
    plan: Iterable[Sequence[int]],
    sharding: Sharding,
    num_workers: int,
    collate: Collate,
    should_stop: Callable[[], bool] = lambda: False,
) -> Iterator[MicroBatch]:
    """Yield this rank's shard of each micro-batch of `plan`, with the ids of the whole micro-batch.

    Raises as `load_batches`.
    """
    loaded = load_batches(dataset, sharding.own_shards(plan), num_workers, collate, should_stop)
    for part, batch in zip(loaded, plan, strict=False):
        ids = tuple(map(dataset.pairs.id_of, batch))
        yield replace(part, ids=ids, rank_costs=sharding.rank_costs(batch))


def all_reduce_losses(sums: LossSums | None, ranks: Ranks, device: torch.device) -> LossSums | None:
    """Return the sums over all ranks, on each of them; None where no rank has any."""
    parts = [numbers for numbers in ranks.all_gather(sums.numbers() if sums else None) if numbers]
    if not parts:
        return None
    return LossSums.nothing(device).with_numbers([sum(column) for column in zip(*parts, strict=True)])


def sample_costs(lengths: NDArray[np.int64], model_dim: int) -> NDArray[np.float64]:
    """Return the cost of each sample, in positions of a very short sample.

    A block multiplies each position by 12 D^2 weights. Causal attention adds D products with half of the
    sequence for the scores and as many for the weighted sum, which is T / (12 D) of that.

    Args:
        lengths: (S,), T of each sample in positions.
        model_dim: D.
    """
    return lengths * (1 + lengths / (12 * model_dim))


def assign_samples(costs: Sequence[float], num_ranks: int) -> list[list[int]]:
    """Return each rank's samples as increasing indices into `costs`; a rank may have none.

    Depends on the arguments alone: every rank computes the same. With one rank the order is unchanged.

    Args:
        costs: of the samples of one micro-batch, 0 or more.
    """
    if num_ranks == 1:
        return [list(range(len(costs)))]
    values = np.array(costs, dtype=np.float64)
    shards: list[list[int]] = [[] for _ in range(num_ranks)]
    heap = [(0.0, rank) for rank in range(num_ranks)]  # smallest load first, then lowest rank
    for index in np.argsort(-values, kind="stable").tolist():
        load, rank = heap[0]
        shards[rank].append(index)
        heapq.heapreplace(heap, (load + float(values[index]), rank))
    loads = np.array([values[shard].sum() for shard in shards])
    for _ in range(SWAPS_PER_RANK * num_ranks):
        most, least = int(loads.argmax()), int(loads.argmin())
        if not _swap(values, shards, loads, most, least):
            break
    return [sorted(shard) for shard in shards]


def _swap(
    values: NDArray[np.float64], shards: list[list[int]], loads: NDArray[np.float64], most: int, least: int
) -> bool:
    """Swap one sample of rank `most` with one of rank `least`; return False where no swap helps."""
    gap = loads[most] - loads[least]
    if gap <= ACCEPTED_GAP * loads.mean():
        return False
    given, taken = values[shards[most]], values[shards[least]]
    moved = given[:, None] - taken[None, :]  # (samples of most, samples of least)
    is_useful = (moved > 0) & (moved < gap)
    if not is_useful.any():
        return False
    best = int(np.where(is_useful, np.abs(moved - gap / 2), np.inf).argmin())
    here, there = divmod(best, len(taken))
    shards[most][here], shards[least][there] = shards[least][there], shards[most][here]
    loads[most] -= moved[here, there]
    loads[least] += moved[here, there]
    return True
