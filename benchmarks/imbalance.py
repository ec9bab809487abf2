"""How evenly a step's work lies on the ranks, by simulation of the data order alone: no model, no processes.

    python -m benchmarks.imbalance --output benchmarks/results/imbalance.md

The trainer's own functions choose the samples (`BatchPlan`: each process adds its --batch-size or
--batch-tokens to a global micro-batch) and the shards (`assign_samples`). What is simulated is how long a
rank works: the operations of its samples by the formula of `workload.py`, which has attention's quadratic
part, at the published size. Lengths are those of `workload.py`: clips of 2 to 15 s, log-normal.

All ranks wait for the slowest one. So the imbalance of a step is the most loaded rank over the mean of all,
minus 1: what the step takes longer than if its work were spread evenly. Whatever a step takes that does not
grow with its samples (the optimizer, the sum of gradients) makes the share of the whole smaller than this.

Axes: S samples, B micro-batches, R ranks.
"""

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain, islice
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.stragglers import SLOWDOWNS, Floats, cost
from benchmarks.workload import config_of, draw_lengths, git_commit, machine, operations, positions
from indextts.models.gpt.packed import Ints
from indextts.training.distributed.sharding import assign_samples, sample_costs
from indextts.training.order import BatchPlan, cut

Deal = Callable[[Ints, int], list[list[int]]]  # lengths of a micro-batch, ranks -> samples of each rank

SEED = 0
CONFIG = config_of("published", dropout=0.0)
GOAL_PERCENT = 3


@dataclass(frozen=True)
class Share:
    """What each process adds to a global micro-batch: `batch_size` samples, or `batch_tokens` positions."""

    batch_size: int = 0
    batch_tokens: int = 0

    def __str__(self) -> str:
        return f"{self.batch_tokens:,} tokens" if self.batch_tokens else f"{self.batch_size} samples"

    def plan(self, lengths: Ints, num_ranks: int, samples_done: int = 0) -> BatchPlan:
        """Return the global micro-batches of `num_ranks` processes."""
        size, tokens = self.batch_size * num_ranks, self.batch_tokens * num_ranks
        return BatchPlan(lengths, SEED, size, tokens, epoch=0, samples_done=samples_done)


@dataclass(frozen=True)
class Loads:
    """What the ranks have to do.

    Args:
        work: (B, R), operations.
        is_whole: (B,), whether nothing is missing of the global micro-batch, as of an epoch's last.
        most_positions: of the model's sequence, of any rank in any micro-batch.
        dealing_s: processor time of the dealing.
    """

    work: Floats
    is_whole: NDArray[np.bool_]
    most_positions: int
    dealing_s: float

    @property
    def imbalance(self) -> float:
        """Of all micro-batches together: a small one at an epoch's end weighs as little as it takes."""
        return float(self.work.max(1).sum() / self.work.mean(1).sum() - 1)

    @property
    def worst(self) -> float:
        """The largest imbalance of a whole micro-batch; 0 where none is whole."""
        of_each = self.work.max(1) / self.work.mean(1) - 1  # (B,)
        return float(of_each[self.is_whole].max(initial=0))


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.imbalance")
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--samples", type=int, default=1_000_000, help="of an epoch")
    parser.add_argument("--ranks", type=int, nargs="+", default=[8, 64])
    parser.add_argument("--batch-sizes", type=int, nargs="*", default=[8, 16, 32, 64])
    parser.add_argument("--batch-tokens", type=int, nargs="*", default=[8192, 16_384, 32_768])
    parser.add_argument("--straggler-tokens", type=int, default=16_384, help="of the slow ranks; one of them")
    parser.add_argument("--output", type=Path, help="file for the tables")
    args = parser.parse_args(argv)
    if args.straggler_tokens not in args.batch_tokens:
        parser.error(f"--straggler-tokens {args.straggler_tokens} is none of --batch-tokens")
    num_text, num_codes = draw_lengths(args.samples, SEED)
    lengths, work = positions(num_text, num_codes, CONFIG), operations(num_text, num_codes, CONFIG)
    shares = [Share(batch_size=size) for size in args.batch_sizes]
    shares += [Share(batch_tokens=tokens) for tokens in args.batch_tokens]
    runs = {
        (share, num_ranks): (
            loads(lengths, work, share, num_ranks, args.steps, contiguous(share)),
            loads(lengths, work, share, num_ranks, args.steps, balanced),
        )
        for num_ranks in args.ranks
        for share in shares
    }
    straggling = Share(batch_tokens=args.straggler_tokens)
    lines = [
        "# The work of the ranks",
        "",
        f"{datetime.now(UTC):%Y-%m-%d}, commit {git_commit()}; {machine(torch.device('cpu'))}",
        "",
        f"`python -m benchmarks.imbalance`: {args.steps:,} steps of one micro-batch for each row, in epochs "
        f"of {args.samples:,} samples of {lengths.min()} to {lengths.max()} positions, {lengths.mean():.1f} "
        f"in the mean, seed {SEED}; {work.sum() / lengths.sum() / 1e9:.2f}e9 operations a position.",
        "",
        *balance(runs),
        "",
        *stragglers({num_ranks: runs[straggling, num_ranks] for num_ranks in args.ranks}, straggling),
        "",
        *exactly_once(lengths, shares, args.ranks),
        "",
    ]
    table = "\n".join(lines)
    print(table, end="")
    if args.output:
        args.output.write_text(table, encoding="utf-8")
    return 0


def balance(runs: Mapping[tuple[Share, int], tuple[Loads, Loads]]) -> list[str]:
    """Return the first table: each share on each number of ranks, contiguous and dealt."""
    lines = [
        "## Imbalance of a step",
        "",
        "The most loaded rank over the mean of all, minus 1; of all steps together, and of the worst one. "
        "Contiguous: each rank takes the next piece of the order, of equally many samples or of equal "
        "length. What is left at the end of an epoch is a smaller step: it counts in all steps and not as "
        "the worst.",
        "",
        "| a rank's share | ranks | contiguous, all steps | worst | dealt, all steps | worst "
        "| over the budget, at most | dealing, ms a step |",
        "|---" * 8 + "|",
    ]
    for (share, num_ranks), (plain, dealt) in runs.items():
        cells = [str(share), str(num_ranks)]
        for found in (plain, dealt):
            cells += [f"{100 * found.imbalance:.2f} %", f"{100 * found.worst:.2f} %"]
        over = max(0, dealt.most_positions / share.batch_tokens - 1) if share.batch_tokens else None
        cells += ["-" if over is None else f"{100 * over:.2f} %"]
        cells += [f"{1000 * dealt.dealing_s / len(dealt.work):.2f}"]
        lines.append("| " + " | ".join(cells) + " |")
    largest = max(100 * dealt.imbalance for _, dealt in runs.values())
    verdict = "below" if largest < GOAL_PERCENT else "NOT below"
    return [
        *lines,
        "",
        f"The largest of all rows, dealt and over all steps, is {largest:.2f} %, {verdict} {GOAL_PERCENT} %.",
    ]


def loads(lengths: Ints, work: Floats, share: Share, num_ranks: int, steps: int, deal_out: Deal) -> Loads:
    """Return what each rank has to do in each of the first `steps` micro-batches of a run."""
    done = np.zeros((steps, num_ranks))
    is_whole = np.ones(steps, dtype=np.bool_)
    most_positions, dealing_s = 0, 0.0
    for step, batch in enumerate(islice(share.plan(lengths, num_ranks), steps)):
        samples = np.array(batch)
        began = time.process_time()
        dealt = deal_out(lengths[samples], num_ranks)
        dealing_s += time.process_time() - began
        owners = np.repeat(np.arange(num_ranks), [len(part) for part in dealt])  # (samples of the batch,)
        members = samples[flat(dealt)]
        done[step] = np.bincount(owners, work[members], num_ranks)
        most_positions = max(most_positions, int(np.bincount(owners, lengths[members], num_ranks).max()))
        is_whole[step] = len(batch) >= share.batch_size * num_ranks
    return Loads(done, is_whole, most_positions, dealing_s)


def flat(dealt: Sequence[Sequence[int]]) -> Ints:
    """Return the samples of all ranks, one rank's behind the other's."""
    return np.fromiter(chain.from_iterable(dealt), np.int64)


def balanced(batch_lengths: Ints, num_ranks: int) -> list[list[int]]:
    """Return the dealing of the trainer."""
    return assign_samples(sample_costs(batch_lengths, CONFIG.model_dim).tolist(), num_ranks)


def contiguous(share: Share) -> Deal:
    """Return the dealing that a trainer without balance has: each rank takes the next piece of the order."""

    def pieces(batch_lengths: Ints, num_ranks: int) -> list[list[int]]:
        if share.batch_tokens:
            ends = cut(batch_lengths, num_ranks)
        else:
            ends = [len(batch_lengths) * (rank + 1) // num_ranks for rank in range(num_ranks)]
        return [list(range(start, end)) for start, end in zip([0, *ends[:-1]], ends, strict=True)]

    return pieces


def stragglers(runs: Mapping[int, tuple[Loads, Loads]], share: Share, accumulation: int = 4) -> list[str]:
    """Return the second table: what slow ranks cost, by the number of ranks."""
    columns: dict[str, tuple[Floats, int]] = {}
    for num_ranks, (plain, dealt) in runs.items():
        columns[f"{num_ranks} ranks, contiguous"] = plain.work, 1
        columns[f"{num_ranks} ranks, dealt"] = dealt.work, 1
        columns[f"{num_ranks} ranks, dealt, {accumulation} micro-batches a step"] = dealt.work, accumulation
    lines = [
        "## Slow ranks",
        "",
        "How much longer the steps take than the mean rank's work at full speed, with a share of "
        f"{share} a rank; the ranks wait for each other once a step.",
        "",
        "| slowdown | " + " | ".join(columns) + " |",
        "|---" * (1 + len(columns)) + "|",
    ]
    for name, slowdown in SLOWDOWNS.items():
        costs = [cost(work, slowdown, of_step) for work, of_step in columns.values()]
        lines.append(f"| {name} | " + " | ".join(f"{100 * each:.2f} %" for each in costs) + " |")
    return lines


def exactly_once(lengths: Ints, shares: Sequence[Share], ranks: Sequence[int]) -> list[str]:
    """Return the third table: how often each sample of an epoch is seen over all ranks."""
    many = [1, *ranks, 3]
    rows = [(share, [num_ranks]) for share in (shares[0], shares[-1]) for num_ranks in ranks]
    rows += [(share, many) for share in (shares[0], shares[-1])]
    lines = [
        "## How often each sample of an epoch is seen",
        "",
        "Over all ranks together; where ranks change, each number of them does an equal part of the epoch.",
        "",
        "| a rank's share | ranks | samples | least | most |",
        "|---|---|---|---|---|",
    ]
    for share, changes in rows:
        seen = times_seen(lengths, share, changes)
        cells = [str(share), ", then ".join(map(str, changes)), f"{len(seen):,}"]
        lines.append("| " + " | ".join([*cells, str(seen.min()), str(seen.max())]) + " |")
    return lines


def times_seen(lengths: Ints, share: Share, ranks: Sequence[int]) -> Ints:
    """Return how often each sample of an epoch is dealt to some rank: (S,).

    Args:
        ranks: their number, one after the other, each for an equal part of the epoch; then the run goes on
            from the samples done, as after a resume with other processes.
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


if __name__ == "__main__":
    sys.exit(main())
