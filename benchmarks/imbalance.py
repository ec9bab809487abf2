"""Load balance of a step over the ranks, simulated from the data order: no model, no processes.

    python -m benchmarks.imbalance

The trainer's own functions choose the samples (`BatchPlan`: each rank adds its --batch-size or --batch-tokens
to a global micro-batch) and shard them over the ranks (`assign_samples`). The simulation computes the time
that a rank works as the operations of its samples by the formula of `workload.py`, which includes attention's
quadratic part, at the published size. Lengths are those of `workload.py`: clips of 2 to 15 s, log-normal.

All ranks wait for the slowest one. The imbalance of a step is therefore the most loaded rank over the mean of
all, minus 1: the extra time compared with evenly spread work. Costs that do not grow with the samples (the
optimizer, the all_reduce of the gradients) make the imbalance of the whole step smaller than this.

Axes: S samples, B micro-batches, R ranks.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from benchmarks.frame import Benchmark, publish, table
from benchmarks.workload import config_of, draw_lengths, operations, positions
from indextts.commands.terminal import parse, run
from indextts.errors import UserError
from indextts.models.gpt.packed import Ints
from indextts.training.distributed.sharding import assign_samples, sample_costs
from indextts.training.order import BatchPlan, partition_ends

Floats = NDArray[np.float64]
Sharding = Callable[[Ints, int], list[list[int]]]  # lengths of a micro-batch, ranks -> samples of each rank
Slowdown = Callable[[np.random.Generator, int, int], Floats]  # of B and R -> (B, R), 1 for full speed

SEED = 0
RANKS = [8, 64]
BATCH_SIZES = [8, 16, 32, 64]
BATCH_TOKENS = [8192, 16_384, 32_768]
# After these the GPUs' speeds are drawn again, for a mean over many clusters.
MICRO_BATCHES_OF_A_CLUSTER = 100
CONFIG = config_of("published", dropout=0.0)
GOAL_PERCENT = 3


@dataclass(frozen=True)
class Share:
    """Share of a rank in a global micro-batch: `batch_size` samples, or `batch_tokens` positions."""

    batch_size: int = 0
    batch_tokens: int = 0

    def __str__(self) -> str:
        return f"{self.batch_tokens:,} tokens" if self.batch_tokens else f"{self.batch_size} samples"

    def plan(self, lengths: Ints, num_ranks: int, samples_done: int = 0) -> BatchPlan:
        """Return the global micro-batches of `num_ranks` ranks."""
        size, tokens = self.batch_size * num_ranks, self.batch_tokens * num_ranks
        return BatchPlan(lengths, SEED, size, tokens, epoch=0, samples_done=samples_done)


@dataclass(frozen=True)
class Loads:
    """Load of the ranks.

    Args:
        work: (B, R), operations.
        is_complete: (B,), False for a smaller global micro-batch at the end of an epoch.
        most_positions: largest number of positions of any rank in any micro-batch.
        sharding_s: processor time of the sharding.
    """

    work: Floats
    is_complete: NDArray[np.bool_]
    most_positions: int
    sharding_s: float

    @property
    def imbalance(self) -> float:
        """Imbalance over all micro-batches; a small one at the end of an epoch weighs little."""
        return float(self.work.max(1).sum() / self.work.mean(1).sum() - 1)

    @property
    def worst(self) -> float:
        """Largest imbalance of a complete micro-batch; 0 if none is complete."""
        of_each = self.work.max(1) / self.work.mean(1) - 1  # (B,)
        return float(of_each[self.is_complete].max(initial=0))


class Imbalance(Benchmark):
    """Simulate the load of the ranks."""

    program: ClassVar[str] = "benchmarks.imbalance"
    steps: int = Field(10_000, ge=1, description="Steps of each row.")
    samples: int = Field(1_000_000, ge=1, description="Samples of an epoch.")
    ranks: list[int] = Field([], description="Number of ranks; 8 and 64 by default.")
    batch_sizes: list[int] = Field([], description="Samples of a rank's share; 8 to 64 by default.")
    batch_tokens: list[int] = Field(
        [], description="Positions of a rank's share; 8,192 to 32,768 by default."
    )
    straggler_tokens: int = Field(
        16_384, description="Share in the table of slow ranks; one of --batch-tokens."
    )


def main(argv: Sequence[str] | None = None) -> int:
    command = parse(Imbalance, argv)
    ranks, batch_sizes = command.ranks or RANKS, command.batch_sizes or BATCH_SIZES
    batch_tokens = command.batch_tokens or BATCH_TOKENS
    if command.straggler_tokens not in batch_tokens:
        raise UserError(
            f"--straggler-tokens: {command.straggler_tokens} is not in --batch-tokens "
            f"{batch_tokens}; use one of them"
        )
    num_text, num_codes = draw_lengths(command.samples, SEED)
    lengths, work = positions(num_text, num_codes, CONFIG), operations(num_text, num_codes, CONFIG)
    shares = [Share(batch_size=size) for size in batch_sizes]
    shares += [Share(batch_tokens=tokens) for tokens in batch_tokens]
    runs = {
        (share, num_ranks): (
            loads(lengths, work, share, num_ranks, command.steps, contiguous(share)),
            loads(lengths, work, share, num_ranks, command.steps, balanced),
        )
        for num_ranks in ranks
        for share in shares
    }
    straggling = Share(batch_tokens=command.straggler_tokens)
    lines = [
        f"Each row: {command.steps:,} steps of one micro-batch, in epochs of {command.samples:,} samples of "
        f"{lengths.min()} to {lengths.max()} positions, {lengths.mean():.1f} in the mean, seed {SEED}; "
        f"{work.sum() / lengths.sum() / 1e9:.2f}e9 operations a position.",
        "",
        *balance(runs),
        "",
        *stragglers({num_ranks: runs[straggling, num_ranks] for num_ranks in ranks}, straggling),
        "",
        *exactly_once(lengths, shares, ranks),
    ]
    publish(command, "Load balance of the ranks", lines)
    return 0


def balance(runs: Mapping[tuple[Share, int], tuple[Loads, Loads]]) -> list[str]:
    """Return the first table: each share on each number of ranks, contiguous and balanced."""
    header = ["a rank's share", "ranks", "contiguous, all steps", "worst", "balanced, all steps", "worst"]
    header += ["over the budget, at most", "sharding, ms a step"]
    rows = []
    for (share, num_ranks), both in runs.items():
        cells = [str(share), str(num_ranks)]
        for found in both:
            cells += [f"{100 * found.imbalance:.2f} %", f"{100 * found.worst:.2f} %"]
        sharded = both[1]
        over = max(0, sharded.most_positions / share.batch_tokens - 1) if share.batch_tokens else None
        cells += ["-" if over is None else f"{100 * over:.2f} %"]
        cells += [f"{1000 * sharded.sharding_s / len(sharded.work):.2f}"]
        rows.append(cells)
    largest = max(100 * sharded.imbalance for _, sharded in runs.values())
    verdict = "below" if largest < GOAL_PERCENT else "NOT below"
    return [
        "## Imbalance of a step",
        "",
        "The most loaded rank over the mean of all, minus 1: over all steps, and in the worst step. "
        "Contiguous: each rank takes the next part of the order, with equally many samples or of equal "
        "length. The smaller step at the end of an epoch counts in all steps and not as the worst.",
        "",
        *table(header, rows),
        "",
        f"The largest of all rows, balanced and over all steps, is {largest:.2f} %, {verdict} "
        f"{GOAL_PERCENT} %.",
    ]


def loads(lengths: Ints, work: Floats, share: Share, num_ranks: int, steps: int, shard: Sharding) -> Loads:
    """Return the load of each rank in each of the first `steps` micro-batches of a run."""
    done = np.zeros((steps, num_ranks))
    is_complete = np.ones(steps, dtype=np.bool_)
    most_positions, sharding_s = 0, 0.0
    for step, batch in enumerate(islice(share.plan(lengths, num_ranks), steps)):
        samples = np.array(batch)
        began = time.process_time()
        sharded = shard(lengths[samples], num_ranks)
        sharding_s += time.process_time() - began
        owners = np.repeat(np.arange(num_ranks), [len(part) for part in sharded])  # (samples of the batch,)
        members = samples[flat(sharded)]
        done[step] = np.bincount(owners, work[members], num_ranks)
        most_positions = max(most_positions, int(np.bincount(owners, lengths[members], num_ranks).max()))
        is_complete[step] = len(batch) >= share.batch_size * num_ranks
    return Loads(done, is_complete, most_positions, sharding_s)


def flat(sharded: Sequence[Sequence[int]]) -> Ints:
    """Return the samples of all ranks, in the order of the ranks."""
    return np.fromiter(chain.from_iterable(sharded), np.int64)


def balanced(batch_lengths: Ints, num_ranks: int) -> list[list[int]]:
    """Return the sharding of the trainer."""
    return assign_samples(sample_costs(batch_lengths, CONFIG.model_dim).tolist(), num_ranks)


def contiguous(share: Share) -> Sharding:
    """Return the sharding without load balancing: each rank takes the next part of the order."""

    def pieces(batch_lengths: Ints, num_ranks: int) -> list[list[int]]:
        if share.batch_tokens:
            ends = partition_ends(batch_lengths, num_ranks)
        else:
            ends = [len(batch_lengths) * (rank + 1) // num_ranks for rank in range(num_ranks)]
        return [list(range(start, end)) for start, end in zip([0, *ends[:-1]], ends, strict=True)]

    return pieces


def stragglers(runs: Mapping[int, tuple[Loads, Loads]], share: Share, accumulation: int = 4) -> list[str]:
    """Return the second table: the cost of slow ranks, by the number of ranks."""
    columns: dict[str, tuple[Floats, int]] = {}
    for num_ranks, (plain, sharded) in runs.items():
        columns[f"{num_ranks} ranks, contiguous"] = plain.work, 1
        columns[f"{num_ranks} ranks, balanced"] = sharded.work, 1
        columns[f"{num_ranks} ranks, balanced, {accumulation} micro-batches a step"] = (
            sharded.work,
            accumulation,
        )
    rows = [
        [name, *(f"{100 * cost(work, slowdown, of_step):.2f} %" for work, of_step in columns.values())]
        for name, slowdown in SLOWDOWNS.items()
    ]
    return [
        "## Slow ranks",
        "",
        "Extra time of the steps compared with the mean rank's work at full speed, with a share of "
        f"{share} per rank; the ranks wait for each other once a step.",
        "",
        *table(["slowdown", *columns], rows),
    ]


def exactly_once(lengths: Ints, shares: Sequence[Share], ranks: Sequence[int]) -> list[str]:
    """Return the third table: the number of times that each sample of an epoch is seen over all ranks."""
    many = [1, *ranks, 3]
    cases = [(share, [num_ranks]) for share in (shares[0], shares[-1]) for num_ranks in ranks]
    cases += [(share, many) for share in (shares[0], shares[-1])]
    rows = []
    for share, changes in cases:
        seen = times_seen(lengths, share, changes)
        cells = [str(share), ", then ".join(map(str, changes)), f"{len(seen):,}"]
        rows.append([*cells, str(seen.min()), str(seen.max())])
    return [
        "## Times that each sample of an epoch is seen",
        "",
        "Over all ranks; where the number of ranks changes, each number runs an equal part of the epoch.",
        "",
        *table(["a rank's share", "ranks", "samples", "least", "most"], rows),
    ]


def times_seen(lengths: Ints, share: Share, ranks: Sequence[int]) -> Ints:
    """Return the number of times that each sample of an epoch goes to a rank: (S,).

    Args:
        ranks: numbers of ranks, each for an equal part of the epoch; the run resumes with the next number
            from the samples done.
    """
    seen = np.zeros(len(lengths), dtype=np.int64)
    samples_done = 0
    for part, num_ranks in enumerate(ranks, 1):
        until = len(lengths) * part // len(ranks)
        if samples_done >= until:
            continue
        for batch in share.plan(lengths, num_ranks, samples_done):
            np.add.at(seen, np.array(batch)[flat(balanced(lengths[batch], num_ranks))], 1)
            samples_done += len(batch)
            if samples_done >= until:
                break
    return seen


# --- slow ranks: the factor by which each rank takes longer in each micro-batch --------------------------


def no_slowdown(_random: np.random.Generator, num_batches: int, num_ranks: int) -> Floats:
    return np.ones((num_batches, num_ranks))


def one_slow(_random: np.random.Generator, num_batches: int, num_ranks: int) -> Floats:
    slowdown = np.ones((num_batches, num_ranks))
    slowdown[:, 0] = 1.1  # its contiguous part of a budget is half a sample shorter than the rest
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
    "each GPU its own speed, log-normal 2 %": own_speeds,
    "each micro-batch of each rank, log-normal 2 %": jitter(0.02),
    "each micro-batch of each rank, log-normal 5 %": jitter(0.05),
    "one micro-batch of a rank in 1,000 takes twice as long": hiccups,
}


def cost(work: Floats, slowdown: Slowdown, accumulation: int) -> float:
    """Return the extra time of the steps compared with the mean rank's work, as a share of it.

    Args:
        work: (B, R).
        accumulation: micro-batches in a step; an incomplete last step is not counted.
    """
    steps = len(work) // accumulation
    work = work[: steps * accumulation]
    slowed = work * slowdown(np.random.default_rng(SEED), *work.shape)
    of_steps = slowed.reshape(steps, accumulation, -1).sum(1)  # (steps, R)
    return float(of_steps.max(1).sum() / work.mean(1).sum() - 1)


if __name__ == "__main__":
    run(main)
