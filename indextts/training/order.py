"""Order of the samples and their micro-batches.

The order of an epoch is a function of the seed and the epoch alone. A position in the data is the number of
samples done in that order. So with other batch sizes, workers or accumulation each sample of the epoch is
still seen exactly once, and a resume does not read and discard any samples.

With --batch-tokens the order of an epoch is divided into parts of equal length, so that the end of a batch
depends on seed, epoch and --batch-tokens, but not on interruptions:

With shares (indextts/data/epoch_mix.py) an epoch has the samples that are due of each file, again a function
of seed and epoch.

    order       | s7 s3 s9 | s1 s4 | s8 s0 s2 | ...
    samples done             ^ 3: the next batch is s1 s4; 4: the next batch is s4
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray

from indextts.data.epoch_mix import EpochMix
from indextts.runs.schedule import EpochSize

# Not the seed of the run, so that two runs can be compared.
VALIDATION_SEED = 0
SEED_BITS = 63


@dataclass(frozen=True)
class BatchPlan:
    """Endless micro-batches of a run from its current position, epoch after epoch."""

    lengths: NDArray[np.int64]  # (S,), positions of each sample
    seed: int
    batch_size: int
    batch_tokens: int  # maximum number of positions per batch; replaces `batch_size` unless 0
    epoch: int
    samples_done: int
    mix: EpochMix | None = None  # shares of several files in an epoch; None for all samples

    @property
    def size(self) -> EpochSize:
        """Size of an epoch."""
        return epoch_size(self.lengths) if self.mix is None else self.mix.size(self.lengths)

    def __iter__(self) -> Iterator[list[int]]:
        """Yield the samples of each micro-batch."""
        return (batch for batch, _ in self._walk())

    def epoch_end_flags(self) -> Iterator[bool]:
        """Yield True for the last micro-batch of each epoch, False for the others."""
        return (is_last for _, is_last in self._walk())

    def _walk(self) -> Iterator[tuple[list[int], bool]]:
        epoch, samples_done = self.epoch, self.samples_done
        while True:
            if self.mix is None:
                order = epoch_permutation(len(self.lengths), self.seed, epoch)
            else:
                order = mixed_order(self.mix, self.seed, epoch)
            ends = self._ends(order, samples_done)
            for start, end in pairwise([samples_done, *ends]):
                yield order[start:end].tolist(), end == ends[-1]
            epoch, samples_done = epoch + 1, 0

    def _ends(self, order: NDArray[np.int64], samples_done: int) -> list[int]:
        """Return the ends of the batches after a position, as positions in the order of the epoch."""
        if not self.batch_tokens:
            ends = range(samples_done + self.batch_size, len(order), self.batch_size)
            return [*ends, len(order)]
        num_batches = self.size.num_batches(self.batch_size, self.batch_tokens)
        return [end for end in partition_ends(self.lengths[order], num_batches) if end > samples_done]


def epoch_size(lengths: NDArray[np.int64]) -> EpochSize:
    """Return the size of an epoch of samples of `lengths` (S,), S at least 1."""
    return EpochSize(len(lengths), int(lengths.sum()), int(lengths.max()))


def partition_ends(lengths: NDArray[np.int64], num_parts: int) -> list[int]:
    """Return the ends of `num_parts` consecutive parts of a sequence of samples, as numbers of samples.

    The length of a part is at most the mean plus the longest sample.

    Args:
        lengths: (S,), of the samples in order.
    """
    sums = lengths.cumsum()
    targets = np.arange(1, num_parts) * int(sums[-1]) // num_parts
    return [*np.searchsorted(sums, targets, side="right").tolist(), len(lengths)]


def epoch_permutation(num_samples: int, seed: int, epoch: int) -> NDArray[np.int64]:
    """Return the samples of `epoch` in training order: (S,)."""
    generator = torch.Generator().manual_seed(derive_seed(seed, "order", epoch))
    return torch.randperm(num_samples, generator=generator).numpy()


def mixed_order(mix: EpochMix, seed: int, epoch: int) -> NDArray[np.int64]:
    """Return the samples of `epoch` in training order, those that are due of each file: (E,)."""
    first, taken = 0, []
    for file, (size, count) in enumerate(zip(mix.sizes, mix.counts, strict=True)):
        places = np.arange(epoch * count, (epoch + 1) * count)  # of all passes over the file, end to end
        for number in range(int(places[0]) // size, int(places[-1]) // size + 1):
            generator = torch.Generator().manual_seed(derive_seed(seed, "pass", file, number))
            order = torch.randperm(size, generator=generator).numpy()
            taken.append(first + order[places[places // size == number] % size])
        first += size
    samples = np.concatenate(taken)
    return samples[epoch_permutation(len(samples), seed, epoch)]


def validation_order(num_pairs: int, batch_size: int, max_batches: int) -> list[int]:
    """Return the pairs that a validation uses, in order.

    Args:
        batch_size: of all ranks together.
        max_batches: maximum number of batches; 0 for all pairs.
    """
    order: list[int] = epoch_permutation(num_pairs, VALIDATION_SEED, epoch=0).tolist()
    return order[: max_batches * batch_size] if max_batches else order


def in_batches(order: Sequence[int], size: int) -> list[list[int]]:
    """Return `order` in batches of `size`; the last may be smaller."""
    return [list(order[start : start + size]) for start in range(0, len(order), size)]


def derive_seed(*parts: int | str) -> int:
    """Return a seed of SEED_BITS bits that depends on all `parts`."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> (64 - SEED_BITS)
