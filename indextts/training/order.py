"""Which samples, in which order, in which micro-batches.

The order of an epoch is a function of the seed and the epoch alone. A position is the number of samples done,
counted along that order: with other batch sizes, workers or accumulation every sample of the epoch is still
seen exactly once, and nothing is read and thrown away to get there.

With a budget of positions the whole order of an epoch is cut into pieces of equal length, so that where a
batch ends depends on seed, epoch and budget, and not on where a run was interrupted:

    order       | s7 s3 s9 | s1 s4 | s8 s0 s2 | ...
    samples done             ^ 3: the next batch is s1 s4, 4: the next is s4 alone
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from indextts.runs.schedule import EpochSize


@dataclass(frozen=True)
class BatchPlan:
    """The micro-batches of a run from where it stands, epoch after epoch without end.

    Args:
        lengths: (S,), positions of each sample.
        seed: of the order.
        batch_size: samples in a batch.
        batch_tokens: most positions in a batch instead; 0 for none.
        epoch, samples_done: where the run stands.
    """

    lengths: NDArray[np.int64]
    seed: int
    batch_size: int
    batch_tokens: int
    epoch: int
    samples_done: int

    @property
    def size(self) -> EpochSize:
        """What an epoch holds."""
        return epoch_size(self.lengths)

    def __iter__(self) -> Iterator[list[int]]:
        """Yield the samples of each micro-batch."""
        return (batch for batch, _ in self._walk())

    def epoch_end_flags(self) -> Iterator[bool]:
        """Yield for each micro-batch whether it is the last of its epoch."""
        return (is_last for _, is_last in self._walk())

    def _walk(self) -> Iterator[tuple[list[int], bool]]:
        epoch, samples_done = self.epoch, self.samples_done
        while True:
            batches = self._batches(epoch, samples_done)
            for number, batch in enumerate(batches, 1):
                yield batch, number == len(batches)
            epoch, samples_done = epoch + 1, 0

    def _batches(self, epoch: int, samples_done: int) -> list[list[int]]:
        order = epoch_order(len(self.lengths), self.seed, epoch)
        if not self.batch_tokens:
            return in_batches(order[samples_done:], self.batch_size)
        num_batches = self.size.num_batches(self.batch_size, self.batch_tokens)
        ends = [end for end in cut(self.lengths[order], num_batches) if end > samples_done]
        starts = [samples_done, *ends[:-1]]
        return [order[start:end] for start, end in zip(starts, ends, strict=True)]


def epoch_size(lengths: NDArray[np.int64]) -> EpochSize:
    """Return the size of an epoch of samples of `lengths` (S,), S at least 1."""
    return EpochSize(len(lengths), int(lengths.sum()), int(lengths.max()))


def cut(lengths: NDArray[np.int64], num_pieces: int) -> list[int]:
    """Return where the pieces of a row of samples end, counted in samples; the last is its length.

    A piece is at most the share of all plus the longest sample.

    Args:
        lengths: (S,), of the samples in their order.
        num_pieces: of about the same sum of lengths.
    """
    sums = lengths.cumsum()
    wanted = np.arange(1, num_pieces) * int(sums[-1]) // num_pieces
    return [*np.searchsorted(sums, wanted, side="right").tolist(), len(lengths)]


def epoch_order(num_samples: int, seed: int, epoch: int) -> list[int]:
    """Return the samples of `epoch` in the order in which they are seen."""
    generator = torch.Generator().manual_seed(mix(seed, "order", epoch))
    return torch.randperm(num_samples, generator=generator).tolist()


def in_batches(order: Sequence[int], size: int) -> list[list[int]]:
    """Return `order` in batches of `size`; the last may be smaller."""
    return [list(order[start : start + size]) for start in range(0, len(order), size)]


def mix(*parts: int | str) -> int:
    """Return a 63-bit seed that depends on all `parts`."""
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=8).digest(), "little") >> 1
