"""What codes tell without being heard: loops, and how often each comes, against the data.

Axes: M codes of a clip, C semantic codes.
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from indextts.features.backend import CODES_PER_SECOND

LONGEST_PERIOD = 2 * CODES_PER_SECOND
FEWEST_REPEATS = 4  # of a loop, the first time counted
SHORTEST_LOOP = 2 * CODES_PER_SECOND


def has_loop(codes: NDArray[np.int64]) -> bool:
    """Tell whether `codes` (M,) say the same again and again: four times or more, for 2 s or longer."""
    for period in range(1, min(LONGEST_PERIOD, len(codes) // FEWEST_REPEATS) + 1):
        repeated = longest_run(codes[period:] == codes[:-period])
        if repeated + period >= max(SHORTEST_LOOP, FEWEST_REPEATS * period):
            return True
    return False


def longest_run(is_true: NDArray[np.bool_]) -> int:
    """Return the length of the longest stretch of True in `is_true` (n,)."""
    ends = np.flatnonzero(~np.concatenate([[False], is_true, [False]]))
    return int(np.diff(ends).max() - 1)


def histogram(clips: Iterable[NDArray[np.int64]], num_codes: int) -> NDArray[np.float64]:
    """Return the share of each code in all clips together: (C,); all 0 where there are no codes."""
    counts = np.zeros(num_codes)
    for codes in clips:
        counts += np.bincount(codes, minlength=num_codes)
    shares: NDArray[np.float64] = counts / max(counts.sum(), 1.0)
    return shares


def histogram_distance(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    """Return the total variation distance of two histograms (C,): 0 for equal ones, 1 without overlap."""
    return float(np.abs(a - b).sum() / 2)
