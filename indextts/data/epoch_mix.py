"""Shares of several pairs files in an epoch: how many pairs of each it takes.

    file    pairs  share   an epoch takes             pass over the file
    new      1000   0.85   1000: each pair once       1 per epoch
    old      5000   0.15   176: the next 176 pairs    0.035 per epoch

An epoch is one pass over the first file. The others follow by their shares: each goes through its pairs pass
after pass, in an order of its own, and an epoch takes the next ones where the last epoch ended. So the number
of times that two pairs of a file are seen never differs by more than one.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from indextts.errors import UserError
from indextts.runs.schedule import EpochSize


@dataclass(frozen=True)
class EpochMix:
    """Pairs that an epoch takes of each file; the pairs of the files lie one after another."""

    sizes: tuple[int, ...]  # pairs of each file
    counts: tuple[int, ...]  # pairs of each that an epoch takes

    @classmethod
    def of(cls, sizes: Sequence[int], shares: Sequence[float | None]) -> "EpochMix | None":
        """Return the mix of these files, None without shares; a UserError if one has no pairs."""
        if None in shares or not shares:
            return None
        if not all(sizes):
            raise UserError(
                f"--train-manifest: file {list(sizes).index(0) + 1} has no usable pair, so it cannot have a "
                "share; see the log for the skipped ones"
            )
        per_share = sizes[0] / (shares[0] or 1)
        others = (max(1, round(per_share * (share or 0))) for share in shares[1:])
        return cls(tuple(sizes), (sizes[0], *others))

    @property
    def num_samples(self) -> int:
        """Pairs in an epoch."""
        return sum(self.counts)

    def size(self, lengths: NDArray[np.int64]) -> EpochSize:
        """Return the mean size of an epoch, from the positions (S,) of each pair of all files."""
        ends = np.cumsum(self.sizes)
        means = [
            lengths[end - size : end].mean() for size, end in zip(self.sizes, ends.tolist(), strict=True)
        ]
        positions = sum(count * mean for count, mean in zip(self.counts, means, strict=True))
        return EpochSize(self.num_samples, round(positions), int(lengths.max()))


def digest_of_mix(digest: str, mix: EpochMix | None) -> str:
    """Return the digest of the order of an epoch, from that of all pairs in order."""
    return digest if mix is None else hashlib.sha256(f"{digest} {mix.counts}".encode()).hexdigest()
