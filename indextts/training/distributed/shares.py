"""The share that this process has in each micro-batch, and what all shares together gave.

Shares are dealt by what samples cost (`distributed.sharding`); every process knows those of all.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from indextts.training.batches import Collate, MicroBatch, PairDataset, load_batches
from indextts.training.distributed.ranks import Ranks
from indextts.training.distributed.sharding import costs_of, deal
from indextts.training.losses import LossSums


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
