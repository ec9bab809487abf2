"""Models of slow ranks: by which factor each rank takes longer in each micro-batch, and what that costs.

Axes: B micro-batches, R ranks.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Slowdown = Callable[[np.random.Generator, int, int], Floats]  # of B and R -> (B, R), 1 for full speed

SEED = 0
MICRO_BATCHES_OF_A_CLUSTER = 100  # then its cards' speeds are drawn anew, so that the mean is of many


def no_slowdown(_random: np.random.Generator, num_batches: int, num_ranks: int) -> Floats:
    return np.ones((num_batches, num_ranks))


def one_slow(_random: np.random.Generator, num_batches: int, num_ranks: int) -> Floats:
    slowdown = np.ones((num_batches, num_ranks))
    slowdown[:, 0] = 1.1  # whose contiguous piece of a budget is shorter than the others' by half a sample
    return slowdown


def own_speeds(random: np.random.Generator, num_batches: int, num_ranks: int) -> Floats:
    num_clusters = -(-num_batches // MICRO_BATCHES_OF_A_CLUSTER)
    speeds = np.exp(0.02 * random.standard_normal((num_clusters, num_ranks)))
    return np.repeat(speeds, MICRO_BATCHES_OF_A_CLUSTER, axis=0)[:num_batches]


def jitter(sigma: float) -> Slowdown:
    def drawn(random: np.random.Generator, num_batches: int, num_ranks: int) -> Floats:
        return np.asarray(np.exp(sigma * random.standard_normal((num_batches, num_ranks))))

    return drawn


def hiccups(random: np.random.Generator, num_batches: int, num_ranks: int) -> Floats:
    return np.where(random.random((num_batches, num_ranks)) < 0.001, 2.0, 1.0)


SLOWDOWNS: dict[str, Slowdown] = {
    "none": no_slowdown,
    "one rank always 10 % slower": one_slow,
    "each card its own speed, log-normal 2 %": own_speeds,
    "each micro-batch of each rank, log-normal 2 %": jitter(0.02),
    "each micro-batch of each rank, log-normal 5 %": jitter(0.05),
    "one micro-batch of a rank in 1,000 takes twice as long": hiccups,
}


def cost(work: Floats, slowdown: Slowdown, accumulation: int) -> float:
    """Return by how much the steps take longer than the mean rank's work, as a share of it.

    Args:
        work: (B, R).
        accumulation: micro-batches in a step; what is left over at the end is not counted.
    """
    steps = len(work) // accumulation
    work = work[: steps * accumulation]
    slowed = work * slowdown(np.random.default_rng(SEED), *work.shape)
    of_steps = slowed.reshape(steps, accumulation, -1).sum(1)  # (steps, R)
    return float(of_steps.max(1).sum() / work.mean(1).sum() - 1)
