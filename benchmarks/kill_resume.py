"""Kill trainings at random moments, resume them, and compare the results with an uninterrupted run.

    python -m benchmarks.kill_resume --parallel 2

Of each kind of run (both bases, LoRA, shares, the settings of the recipes, listening) a reference run of a
tiny model (dropout, accumulation, shuffling, validations, a best checkpoint) is never interrupted. Then
`--parallel` chains of processes run the same commands in their own folders. Each process is killed and
resumed with `--resume auto` until the run is finished; then the chain starts a run of the next kind in a new
folder, until all kills are done. The checks after every kill:

- Every file that a meta file commits verifies (otherwise: a corrupt file under a final name).
- The newest checkpoint is not older than before the kill (otherwise: a lost checkpoint).
- The lost work is at most one save interval and the save in progress; none after SIGTERM or SIGINT.
- The next process resumes from the newest valid checkpoint, also after deliberate corruption.
- The exit status is 0, 130, 143 or SIGKILL's, and no process survives.

Exits with status 1 if there were problems: prints them and keeps their folders.
"""

import math
import multiprocessing
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from random import Random

from benchmarks.frame import publish, table, timed
from benchmarks.kill_chain import (
    KINDS,
    TIMEOUT_S,
    WORKERS,
    Chain,
    KillResume,
    Reference,
    Tally,
    command_line,
    write_parts,
)
from indextts.commands.terminal import parse, run
from indextts.system.amounts import counted
from tests.run_checks import metrics_lines
from tests.tiny_run import make_tiny_run
from tests.trainer_process import TrainerProcess

NUM_PAIRS = 116  # 39 micro-batches of 3 an epoch, the last of 2: 20 steps, the last of one micro-batch
MAX_ABANDONED = 5  # a chain of a kind ends after this many runs that could not be resumed


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parse(KillResume, argv)
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="kill_resume_"))
    tallies, took = timed(lambda: run_chains(folder, arguments))
    tally = sum(tallies.values(), Tally())
    lines = [
        *table(["", ""], rows(arguments, tally)),
        "",
        *table(
            ["kind of run", "kills", "resumes", "runs bit-identical", "lost", "corrupt", "other problems"],
            [[kind, *rows_of_kind(tally)] for kind, tally in tallies.items()],
        ),
        "",
        f"Duration: {took.wall_s / 60:.1f} min.",
    ]
    publish(arguments, f"Runs killed at {tally.kills:,} random moments", lines)
    for problem in tally.problems:
        print(f"PROBLEM: {problem}")
    if not tally.problems and arguments.folder is None:
        shutil.rmtree(folder)
    return 1 if tally.problems else 0


def run_chains(folder: Path, arguments: KillResume) -> dict[str, Tally]:
    """Run the references and all chains; return the total of their tallies by kind."""
    end = time.monotonic() + (arguments.minutes * 60 or math.inf)
    projects = {}
    references = []
    for kind in arguments.kind or KINDS:
        base = kind.split()[0]
        if base not in projects:
            projects[base] = make_tiny_run(folder / base, num_train=NUM_PAIRS, model=base)
            write_parts(projects[base])
        references.append(run_reference(Reference(kind, projects[base]), arguments))
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(arguments.parallel, mp_context=context) as pool:
        chains = [
            pool.submit(run_chain, folder, arguments, number, references, end)
            for number in range(arguments.parallel)
        ]
        found = [chain.result() for chain in chains]
    return {kind: sum((tallies[kind] for tallies in found), Tally()) for kind in found[0]}


def run_reference(reference: Reference, arguments: KillResume) -> Reference:
    """Train without interruption; return the reference with its durations."""
    started = time.monotonic()
    argv = command_line(reference, arguments, reference.output, (arguments.workers or WORKERS)[0])
    log = reference.output.with_name(f"{reference.output.name}.log")
    process = TrainerProcess(argv, log)
    status = process.wait(TIMEOUT_S)
    process.end()
    if status != 0:
        raise RuntimeError(f"the uninterrupted run: status {status}, see {log}")
    lines = metrics_lines(reference.output)
    durations_s = (time.monotonic() - started, lines[-1]["time"] - lines[0]["time"])
    print(f"{reference.kind}: {durations_s[0]:.1f} s, {durations_s[1]:.1f} s of it training", flush=True)
    return replace(reference, durations_s=durations_s)


def run_chain(
    folder: Path, arguments: KillResume, number: int, references: Sequence[Reference], end: float
) -> dict[str, Tally]:
    """Kill and resume runs of each kind in turn; return the tallies by kind."""
    quotient, more = divmod(arguments.kills, arguments.parallel)
    kills = quotient + (number < more)
    chains = [
        Chain(each, arguments, Random(f"{arguments.seed} {number} {each.kind}"), kills, end)
        for each in references
    ]
    while due := [chain for chain in chains if chain.is_due and chain.tally.abandoned < MAX_ABANDONED]:
        for chain in due:
            chain.run(folder / f"chain{number}_{chain.reference.output.name}_{chain.tally.runs + 1}")
        tally = sum((chain.tally for chain in chains), Tally())
        print(
            f"chain {number}: {tally.kills} of {kills * len(chains)} kills, {tally.identical} of "
            f"{tally.runs} runs bit-identical, {counted(len(tally.problems), 'problem')}",
            flush=True,
        )
    return {chain.reference.kind: chain.tally for chain in chains}


def rows(arguments: KillResume, tally: Tally) -> list[list[str]]:
    """Return the counts as rows of a table."""
    cells = {
        "kills": tally.kills,
        "- by signal": _listed(tally.signals),
        "- by moment": _listed(tally.triggers),
        "newest checkpoint corrupted": f"{tally.corruptions.total()} times ({_listed(tally.corruptions)})",
        "processes that resumed from a checkpoint": tally.resumes,
        "runs that ended bit-identical": f"{tally.identical} of {tally.runs}",
        "lost checkpoints": tally.lost,
        "corrupt files under a final name": tally.corrupt,
        "most logged steps lost by a kill": (
            f"{max(tally.lost_steps, default=0)} (saved every {arguments.save_interval})"
        ),
        "other problems": len(tally.problems) - tally.lost - tally.corrupt,
    }
    return [[name, str(value)] for name, value in cells.items()]


def rows_of_kind(tally: Tally) -> list[str]:
    return [
        f"{tally.kills}",
        f"{tally.resumes}",
        f"{tally.identical} of {tally.runs}",
        f"{tally.lost}",
        f"{tally.corrupt}",
        f"{len(tally.problems) - tally.lost - tally.corrupt}",
    ]


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.most_common()) or "none"


if __name__ == "__main__":
    run(main)
