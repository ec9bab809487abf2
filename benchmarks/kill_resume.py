"""Kill trainings at random instants, resume them, and compare the ends bit by bit with a run left alone.

    python benchmarks/kill_resume.py --kills 500 --parallel 2 --output table.md

One reference run of a tiny model (dropout, accumulation, shuffling, validations, a best checkpoint) is never
interrupted. Then chains of processes, `--parallel` of them side by side, run the same command in folders of
their own, are killed and resumed with `--resume auto` until the run is finished, and begin again in a new
folder, until the kills are spent. Looked at after every kill:

- every file that a meta file commits verifies (else: an unusable file under a final name);
- the newest checkpoint is not older than before the kill (else: a checkpoint lost);
- the work lost is at most one save interval and the save being written, none after SIGTERM or SIGINT;
- the next process goes on from the newest good checkpoint, also when that was damaged on purpose;
- exit statuses are 0, 130, 143 or SIGKILL's, and no process is left over.

Exit status 0 if nothing was wrong; 1 else: what was wrong is printed, and those folders stay.
"""

import multiprocessing
import os
import platform
import shutil
import statistics
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from random import Random

import torch
import tyro

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # started as a program, from anywhere

from benchmarks.kill_chain import LONGEST_S, Arguments, Chain, Tally, command_line
from benchmarks.run_checks import metrics_lines
from benchmarks.trainer_process import TrainerProcess
from tests.tiny_run import TinyRun, make_tiny_run

NUM_PAIRS = 230  # 77 micro-batches of 3 an epoch, the last of 2: 39 steps, the last of one micro-batch
MOST_BROKEN_OFF = 5  # a chain ends after so many runs that could not be gone on with


def main(arguments: Arguments) -> int:
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="kill_resume_"))
    started = time.monotonic()
    project = make_tiny_run(folder / "project", num_train=NUM_PAIRS)
    durations_s = run_reference(project, arguments)
    print(
        f"The run left alone took {durations_s[0]:.1f} s, {durations_s[1]:.1f} s of it training", flush=True
    )
    shares = [
        arguments.kills // arguments.parallel + (number < arguments.kills % arguments.parallel)
        for number in range(arguments.parallel)
    ]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(arguments.parallel, mp_context=context) as pool:
        chains = [
            pool.submit(run_chain, folder, arguments, number, kills, durations_s)
            for number, kills in enumerate(shares)
        ]
        tally = sum((chain.result() for chain in chains), Tally())
    table = markdown_table(arguments, tally, time.monotonic() - started)
    print(table)
    if arguments.output:
        arguments.output.write_text(table, encoding="utf-8")
    for problem in tally.wrong:
        print(f"WRONG: {problem}")
    if not tally.wrong and arguments.folder is None:
        shutil.rmtree(folder)
    return 1 if tally.wrong else 0


def run_reference(project: TinyRun, arguments: Arguments) -> tuple[float, float]:
    """Train without interruption in `project`'s own run folder; return its seconds, and those of training."""
    started = time.monotonic()
    process = TrainerProcess(
        command_line(project, arguments, project.output, arguments.workers[0]), project.folder / "output.log"
    )
    status = process.wait(LONGEST_S)
    process.end()
    if status != 0:
        raise RuntimeError(f"the run left alone ended with {status}, see {project.folder / 'output.log'}")
    lines = metrics_lines(project.output)
    return time.monotonic() - started, lines[-1]["time"] - lines[0]["time"]


def run_chain(
    folder: Path, arguments: Arguments, number: int, kills: int, durations_s: tuple[float, float]
) -> Tally:
    """Kill and resume until `kills` are spent and the last run is finished."""
    chain = Chain(TinyRun(folder / "project"), arguments, Random(f"{arguments.seed} {number}"), durations_s)
    while chain.tally.kills < kills and chain.tally.broken_off < MOST_BROKEN_OFF:
        chain.run(folder / f"chain{number}_run{chain.tally.runs + 1}", kills)
        print(
            f"chain {number}: {chain.tally.kills} of {kills} kills, {chain.tally.identical} of "
            f"{chain.tally.runs} runs bit-identical, {len(chain.tally.wrong)} things wrong",
            flush=True,
        )
    return chain.tally


def markdown_table(arguments: Arguments, tally: Tally, seconds: float) -> str:
    """Return what was done and found, as a table."""
    rows = {
        "kills": tally.kills,
        "- by signal": _listed(tally.signals),
        "- by moment": _listed(tally.triggers),
        "- by what it hit": _listed(tally.phases),
        "newest checkpoint damaged": f"{tally.damages.total()} times ({_listed(tally.damages)})",
        "processes that went on from a checkpoint": tally.resumes,
        "runs that ended bit-identical": f"{tally.identical} of {tally.runs}",
        "checkpoints lost": tally.lost,
        "unusable files under a final name": tally.unusable,
        "training lost by a SIGKILL while it trained, median / longest": (
            f"{statistics.median(tally.lost_s or [0]):.2f} s / {max(tally.lost_s, default=0):.2f} s"
        ),
        "most logged steps lost by a kill": (
            f"{max(tally.lost_steps, default=0)} (saved every {arguments.save_interval})"
        ),
        "other things wrong": len(tally.wrong) - tally.lost - tally.unusable,
        "took": f"{seconds / 60:.1f} min, {arguments.parallel} side by side, seed {arguments.seed}",
        "machine": f"{_processor()}, {os.cpu_count()} cores, {platform.system()} {platform.release()}",
        "versions": f"Python {platform.python_version()}, PyTorch {torch.__version__}",
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }
    return "| | |\n|---|---|\n" + "".join(f"| {name} | {value} |\n" for name, value in rows.items())


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.most_common()) or "none"


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Arguments)))
