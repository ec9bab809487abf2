"""Times of the letters of a text in the output of a CTC model, by the Viterbi algorithm.

A position costs log p(best) - log p(chosen) nats, so the best path costs nothing. Sound before and after the
text costs nothing either: the text may be anywhere in the sound, once and without interruption.

Axes: T positions, L columns of `alignment.merged_columns` (0 is the blank), N letters, S states.

    states    outside, letter 1, blank, letter 2, blank, ..., letter N, outside        S = 2 N + 1
    steps     to the same state, to the next, and from a letter to the next if they differ
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MAX_COST = 12.0  # nats: a letter that the model excludes costs no more than a dozen doubtful ones

Costs = NDArray[np.float32] | NDArray[np.float16]


@dataclass(frozen=True)
class Alignment:
    """Place of a text in the sound."""

    first: NDArray[np.int64]  # (N,), the position where each letter begins
    last: NDArray[np.int64]  # (N,), the last position of each letter
    score: float  # in nats per letter, at most 0; near 0 if the text is spoken there


def align_letters(costs: Costs, letters: NDArray[np.int64]) -> Alignment | None:
    """Return the cheapest place of a text in the sound; None if the sound is too short for it.

    Args:
        costs: (T, L), in nats, at least 0.
        letters: (N,), columns, at least one.
    """
    num_positions, num_states = len(costs), 2 * len(letters) + 1
    if num_positions < len(letters):
        return None
    of_state = np.zeros((num_positions, num_states), np.float32)  # outside costs nothing
    of_state[:, 1::2] = costs[:, letters]
    of_state[:, 2:-1:2] = costs[:, :1]
    may_skip = np.zeros(num_states, bool)  # the blank before a letter
    may_skip[3::2] = letters[1:] != letters[:-1]
    best = np.full(num_states, np.inf, np.float32)
    best[:2] = of_state[0, :2]
    steps = np.zeros((num_positions, num_states), np.uint8)  # how many states each came from before
    for position in range(1, num_positions):
        from_before = np.concatenate([[np.inf], best[:-1]]).astype(np.float32)
        from_letter = np.where(may_skip, np.concatenate([[np.inf, np.inf], best[:-2]]), np.inf)
        step = steps[position]
        step[from_before < best] = 1
        np.minimum(best, from_before, out=best)
        step[from_letter < best] = 2
        best = np.minimum(best, from_letter).astype(np.float32) + of_state[position]
    state = num_states - 1 if best[-1] <= best[-2] else num_states - 2
    total = float(best[state])
    if not np.isfinite(total):  # equal letters need a blank between them
        return None
    path = np.empty(num_positions, np.int64)  # (T,)
    for position in range(num_positions - 1, -1, -1):
        path[position] = state
        state -= int(steps[position, state])
    states = np.arange(1, num_states, 2)
    first, last = np.searchsorted(path, states), np.searchsorted(path, states, side="right") - 1
    return Alignment(first, last, -total / len(letters))
