"""Tests of the times of letters, against all paths of small examples."""

from itertools import product

import numpy as np
import pytest

from indextts.features.recognizers.forced_alignment import align_letters

OUTSIDE = -1


def cheapest(costs: np.ndarray, letters: list[int]) -> float:
    """Return the lowest cost of all paths that write the letters once, with free sound around them."""
    least = np.inf
    for path in product([OUTSIDE, *range(costs.shape[1])], repeat=len(costs)):
        inner = [place for place, column in enumerate(path) if column != OUTSIDE]
        if not inner or inner[-1] - inner[0] + 1 != len(inner):
            continue  # outside within the text
        columns = [path[place] for place in inner]
        if columns[0] == 0 or columns[-1] == 0:
            continue
        runs = [column for place, column in enumerate(columns) if place == 0 or column != columns[place - 1]]
        if [column for column in runs if column] == letters:
            least = min(least, sum(float(costs[place, path[place]]) for place in inner))
    return least


@pytest.mark.parametrize("letters", [[1], [1, 2], [1, 1], [2, 1, 2]])
def test_the_cost_is_that_of_the_cheapest_path(letters):
    rng = np.random.default_rng(len(letters))
    for _ in range(3):
        costs = rng.uniform(0, 3, (5, 3)).astype(np.float32)
        found = align_letters(costs, np.array(letters))
        assert -found.score * len(letters) == pytest.approx(cheapest(costs, letters), abs=1e-4)
        assert (np.diff(found.first) > 0).all()
        assert (found.last >= found.first).all()


def test_the_times_are_those_of_the_letters():
    costs = np.full((10, 3), 5, np.float32)
    costs[:, 0] = 0
    for position, letter in ((3, 1), (4, 1), (6, 2)):
        costs[position] = 5
        costs[position, letter] = 0
    found = align_letters(costs, np.array([1, 2]))
    assert (found.first.tolist(), found.last.tolist(), found.score) == ([3, 6], [4, 6], 0.0)


@pytest.mark.parametrize("letters", [[1, 2, 1], [1, 1]])
def test_sound_that_is_too_short_has_no_place(letters):
    assert align_letters(np.zeros((2, 3), np.float32), np.array(letters)) is None
