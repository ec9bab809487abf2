"""Which process computes which samples of a micro-batch, so that all have done at about the same time.

All processes wait for the slowest one before each update. So samples are dealt by what they cost: the longest
first, each to the process that has the least so far (Graham's rule for machines, "longest processing time
first"), which leaves differences of about the shortest sample. Then the process with the most exchanges
samples with the one with the least, until they differ by little. No process gets more than the mean and one
sample. No torch here: simulations use it too.

The share that this process has in each micro-batch, and what all shares together gave.

Shares are dealt by what samples cost (`distributed.sharding`); every process knows those of all.
"""

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from indextts.training.batches import Collate, MicroBatch, PairDataset, load_batches
from indextts.training.distributed.ranks import Ranks
from indextts.training.losses import LossSums

SMALL_GAP = 0.002  # between the most and the least, of the mean: kernels differ by more
EXCHANGES_PER_RANK = 4


def costs_of(lengths: NDArray[np.int64], model_dim: int) -> NDArray[np.float64]:
    """Return what samples cost, in positions of a very short sample.

    A block multiplies each position by 12 D^2 weights; causal attention adds D products with half of the
    sequence for the scores and as many for their sum, which is T / (12 D) of that.

    Args:
        lengths: (S,), T of each sample in positions.
        model_dim: D.
    """
    return lengths * (1 + lengths / (12 * model_dim))


def deal(costs: Sequence[float], num_ranks: int) -> list[list[int]]:
    """Return for each rank which samples are its own, as rising indices into `costs`; some may have none.

    A function of its arguments alone: every rank finds the same. With one rank the order stays as it is.

    Args:
        costs: of the samples of one micro-batch, 0 or more.
        num_ranks: 1 or more.
    """
    if num_ranks == 1:
        return [list(range(len(costs)))]
    values = np.array(costs, dtype=np.float64)
    shares: list[list[int]] = [[] for _ in range(num_ranks)]
    heap = [(0.0, rank) for rank in range(num_ranks)]  # the least first, then the lowest rank
    for index in np.argsort(-values, kind="stable").tolist():
        load, rank = heap[0]
        shares[rank].append(index)
        heapq.heapreplace(heap, (load + float(values[index]), rank))
    loads = np.array([values[share].sum() for share in shares])
    for _ in range(EXCHANGES_PER_RANK * num_ranks):
        most, least = int(loads.argmax()), int(loads.argmin())
        if not _exchange(values, shares, loads, most, least):
            break
    return [sorted(share) for share in shares]


def _exchange(
    values: NDArray[np.float64], shares: list[list[int]], loads: NDArray[np.float64], most: int, least: int
) -> bool:
    """Give one sample of `most` to `least`, against one of its own; return whether that was of use."""
    gap = loads[most] - loads[least]
    if gap <= SMALL_GAP * loads.mean():
        return False
    given, taken = values[shares[most]], values[shares[least]]
    moved = given[:, None] - taken[None, :]  # (samples of most, samples of least)
    useful = (moved > 0) & (moved < gap)
    if not useful.any():
        return False
    best = int(np.where(useful, np.abs(moved - gap / 2), np.inf).argmin())
    here, there = divmod(best, len(taken))
    shares[most][here], shares[least][there] = shares[least][there], shares[most][here]
    loads[most] -= moved[here, there]
    loads[least] += moved[here, there]
    return True


class Balance:
    """How much the slowest process had to do, of many steps."""

    def __init__(self) -> None:
        self._slowest = self._mean = 0.0

    def add(self, loads: Sequence[float]) -> None:
        """Take in a step, by the load of each process; all wait for its slowest."""
        self._slowest += max(loads)
        self._mean += sum(loads) / len(loads)

    def read(self) -> float:
        """Return the slowest over the mean, in the steps since the last reading."""
        found = self._slowest / self._mean if self._mean else 1.0
        self._slowest = self._mean = 0.0
        return found


def imbalance(loads: Sequence[float]) -> float:
    """Return the largest load over the mean; 1.0 where all are equal, or there is none."""
    total = sum(loads)
    return max(loads) * len(loads) / total if total else 1.0


@dataclass(frozen=True)
class Shares:
    """How the samples of a data set are dealt to processes.

    Args:
        costs: (S,), of each sample, as `dealing.costs_of`.
    """

    costs: NDArray[np.float64]
    ranks: Ranks

    @classmethod
    def of(cls, dataset: PairDataset, model_dim: int, ranks: Ranks) -> "Shares":
        return cls(costs_of(dataset.lengths, model_dim), ranks)

    def dealt(self, batch: Sequence[int]) -> list[list[int]]:
        """Return the share of each process in a micro-batch, as samples."""
        shares = deal(self.costs[list(batch)].tolist(), self.ranks.size)
        return [[batch[index] for index in share] for share in shares]

    def own(self, batches: Iterable[Sequence[int]]) -> Iterator[list[int]]:
        """Yield the own share in each micro-batch; it may be empty."""
        return (self.dealt(batch)[self.ranks.rank] for batch in batches)

    def work(self, batch: Sequence[int]) -> tuple[float, ...]:
        """Return what the share of each process costs."""
        return tuple(float(self.costs[share].sum()) for share in self.dealt(batch))


def load_shares(
    dataset: PairDataset, plan: Iterable[Sequence[int]], shares: Shares, num_workers: int, collate: Collate
) -> Iterator[MicroBatch]:
    """Yield the own share in each micro-batch of `plan`, named by the ids of all of it."""
    loaded = load_batches(dataset, shares.own(plan), num_workers, collate)
    for part, batch in zip(loaded, plan, strict=False):
        ids = tuple(dataset.pairs[index].id for index in batch)
        yield replace(part, ids=ids, work=shares.work(batch))


def total(sums: LossSums | None, ranks: Ranks, device: torch.device) -> LossSums | None:
    """Return the sums over all processes, on all of them; None where none of them has any."""
    parts = [numbers for numbers in ranks.gathered(sums.numbers() if sums else None) if numbers]
    if not parts:
        return None
    return LossSums.nothing(device).with_numbers([sum(column) for column in zip(*parts, strict=True)])
