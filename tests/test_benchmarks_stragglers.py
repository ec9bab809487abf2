"""Tests of benchmarks/stragglers.py."""

import numpy as np
import pytest

from benchmarks.stragglers import SLOWDOWNS, cost


def test_slow_ranks_cost_what_the_theory_of_the_largest_of_many_says():
    even = {num_ranks: np.ones((4000, num_ranks)) for num_ranks in (8, 64)}
    expected = {8: 1.4236, 64: 2.3437}  # standard deviations of the largest of so many normal numbers
    for num_ranks, work in even.items():
        assert cost(work, SLOWDOWNS["none"], 1) == 0
        assert cost(work, SLOWDOWNS["one rank always 10 % slower"], 1) == pytest.approx(0.1)
        drawn = cost(work, SLOWDOWNS["each micro-batch of each rank, log-normal 2 %"], 1)
        assert drawn == pytest.approx(0.02 * expected[num_ranks], rel=0.04)
        averaged = cost(work, SLOWDOWNS["each micro-batch of each rank, log-normal 2 %"], 4)
        assert averaged == pytest.approx(drawn / 2, rel=0.04)
        constant = cost(work, SLOWDOWNS["each card its own speed, log-normal 2 %"], 4)
        assert constant == pytest.approx(0.02 * expected[num_ranks], rel=0.15)  # 40 clusters
        rare = cost(work, SLOWDOWNS["one micro-batch of a rank in 1,000 takes twice as long"], 1)
        assert rare == pytest.approx(1 - 0.999**num_ranks, rel=0.3)
