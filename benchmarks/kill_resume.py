"""Kill trainings at random moments, resume them, and compare the results with an uninterrupted run.

    python -m benchmarks.kill_resume --kills 500 --parallel 2

A reference run of a tiny model (dropout, accumulation, shuffling, validations, a best checkpoint) is never
interrupted. Then `--parallel` chains of processes run the same command in their own folders. Each process is
killed and resumed with `--resume auto` until the run is finished; then the chain starts again in a new
folder, until all kills are done. The checks after every kill:

- Every file that a meta file commits verifies (otherwise: a corrupt file under a final name).
- The newest checkpoint is not older than before the kill (otherwise: a lost checkpoint).
- The lost work is at most one save interval and the save in progress; none after SIGTERM or SIGINT.
- The next process resumes from the newest valid checkpoint, also after deliberate corruption.
- The exit status is 0, 130, 143 or SIGKILL's, and no process survives.

Exits with status 1 if there were problems: prints them and keeps their folders.
"""

import multiprocessing
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from random import Random

from benchmarks.frame import publish, table, timed
from benchmarks.kill_chain import TIMEOUT_S, WORKERS, Chain, KillResume, Tally, command_line, write_parts
from indextts.commands.terminal import parse, run
from indextts.system.amounts import counted
from tests.run_checks import metrics_lines
from tests.tiny_run import TinyRun, make_tiny_run
from tests.trainer_process import TrainerProcess

NUM_PAIRS = 230  # 77 micro-batches of 3 an epoch, the last of 2: 39 steps, the last of one micro-batch
MAX_ABANDONED = 5  # a chain ends after this many runs that could not be resumed


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parse(KillResume, argv)
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="kill_resume_"))
    tally, took = timed(lambda: run_chains(folder, arguments))
    lines = [*table(["", ""], rows(arguments, tally)), "", f"Duration: {took.wall_s / 60:.1f} min."]
    publish(arguments, f"Runs killed at {tally.kills} random moments", lines)
    for problem in tally.problems:
        print(f"PROBLEM: {problem}")
    if not tally.problems and arguments.folder is None:
        shutil.rmtree(folder)
    return 1 if tally.problems else 0


def run_chains(folder: Path, arguments: KillResume) -> Tally:
    """Run the reference and all chains; return the total of their tallies."""
    project = make_tiny_run(folder / "project", num_train=NUM_PAIRS, model=arguments.base)
    if arguments.shares:
        write_parts(project)
    durations_s = run_reference(project, arguments)
    print(f"uninterrupted run: {durations_s[0]:.1f} s, {durations_s[1]:.1f} s of it training", flush=True)
    kills, more = divmod(arguments.kills, arguments.parallel)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(arguments.parallel, mp_context=context) as pool:
        chains = [
            pool.submit(run_chain, folder, arguments, number, kills + (number < more), durations_s)
            for number in range(arguments.parallel)
        ]
        return sum((chain.result() for chain in chains), Tally())


def run_reference(project: TinyRun, arguments: KillResume) -> tuple[float, float]:
    """Train without interruption; return the duration of the process and of its training."""
    started = time.monotonic()
    argv = command_line(project, arguments, project.output, (arguments.workers or WORKERS)[0])
    process = TrainerProcess(argv, project.folder / "output.log")
    status = process.wait(TIMEOUT_S)
    process.end()
    if status != 0:
        raise RuntimeError(f"the uninterrupted run: status {status}, see {project.folder}/output.log")
    lines = metrics_lines(project.output)
    return time.monotonic() - started, lines[-1]["time"] - lines[0]["time"]


def run_chain(
    folder: Path, arguments: KillResume, number: int, kills: int, durations_s: tuple[float, float]
) -> Tally:
    """Kill and resume until there were `kills` kills and the last run is finished."""
    chain = Chain(TinyRun(folder / "project"), arguments, Random(f"{arguments.seed} {number}"), durations_s)
    while chain.tally.kills < kills and chain.tally.abandoned < MAX_ABANDONED:
        chain.run(folder / f"chain{number}_run{chain.tally.runs + 1}", kills)
        print(
            f"chain {number}: {chain.tally.kills} of {kills} kills, {chain.tally.identical} of "
            f"{chain.tally.runs} runs bit-identical, {counted(len(chain.tally.problems), 'problem')}",
            flush=True,
        )
    return chain.tally


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


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.most_common()) or "none"


if __name__ == "__main__":
    run(main)
