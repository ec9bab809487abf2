"""The frame of every benchmark: flags, clocks, interleaved repeats, memory, machine, Markdown results.

    class Speech(Benchmark):                            flags, as for every program of the project
        program: ClassVar[str] = "benchmarks.speech"

    def main(argv: Sequence[str] | None = None) -> int:
        command = parse(Speech, argv)
        ...                                             measure with `timed` and `interleaved`
        publish(command, "Title", table(header, rows))  prints, and writes benchmarks/results/speech.md
        return 0

Importing this module does not import torch: reader processes and the measurement of opening files must not.
"""

import os
import platform
import re
import shlex
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar, TypeVar

from pydantic import Field

from indextts.commands.base import Command
from indextts.commands.terminal import to_argv

REPOSITORY = Path(__file__).resolve().parent.parent
RESULTS = REPOSITORY / "benchmarks/results"

ResultT = TypeVar("ResultT")


class Benchmark(Command):
    """Base of the benchmarks' commands; `program` is the module that `python -m` runs."""

    program: ClassVar[str]
    output: Path | None = Field(None, description="Results file; benchmarks/results/NAME.md by default.")

    @property
    def name(self) -> str:
        """Name of the results file without its suffix."""
        return self.program.rpartition(".")[2]

    @property
    def command_line(self) -> str:
        """The command that repeats this measurement, without its folders."""
        flags = to_argv(self)
        flags = [flag for flag in flags if not flag.startswith(("--output=", "--folder=", "--asr="))]
        return shlex.join(["python", "-m", self.program, *flags])


# --- time ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Took:
    """Time of one measurement.

    Attributes:
        wall_s: wall clock; includes what other programs on the machine cost.
        cpu_s: processor time of all threads of this process.
    """

    wall_s: float
    cpu_s: float


def timed(work: Callable[[], ResultT], device: str = "cpu") -> tuple[ResultT, Took]:
    """Return the result of `work` and its time; waits for the GPU before and after."""
    wait_for_device(device)
    wall, cpu = time.perf_counter(), time.process_time()
    result = work()
    wait_for_device(device)
    return result, Took(time.perf_counter() - wall, time.process_time() - cpu)


def interleaved(cases: Mapping[str, Callable[[int], ResultT]], repeats: int) -> dict[str, list[ResultT]]:
    """Measure every case once per repeat, in turn, so that a change in the machine's load affects all.

    Args:
        cases: name -> measurement, which gets the number of the repeat.
    """
    found: dict[str, list[ResultT]] = {name: [] for name in cases}
    for number in range(repeats):
        for name, measure in cases.items():
            found[name].append(measure(number))
    return found


def wait_for_device(device: str) -> None:
    """Block until the GPU has finished its queue; do nothing on a CPU."""
    if device.startswith("cuda"):
        import torch

        torch.cuda.synchronize(device)


# --- memory -------------------------------------------------------------------------------------------


def reset_peak(device: str = "cpu") -> None:
    """Restart the measurement of peak memory; on a CPU where the kernel allows it."""
    if device.startswith("cuda"):
        import torch

        torch.cuda.reset_peak_memory_stats(device)
        return
    file = Path("/proc/self/clear_refs")
    if file.exists():
        file.write_text("5")


def peak_bytes(device: str = "cpu") -> int:
    """Return the peak memory since `reset_peak`: allocated on the GPU, or resident of this process."""
    if device.startswith("cuda"):
        import torch

        return torch.cuda.max_memory_allocated(device)
    return process_memory(os.getpid(), "VmHWM")


def process_memory(pid: int, field: str) -> int:
    """Return a field of /proc/PID/status in bytes, such as VmHWM or RssAnon; 0 if the process has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    found = re.search(rf"{field}:\s+(\d+) kB", status)
    return int(found[1]) * 1024 if found else 0


# --- results ------------------------------------------------------------------------------------------


def publish(command: Benchmark, title: str, lines: Sequence[str], device: str = "cpu") -> None:
    """Print the report of a benchmark and write it to its results file."""
    path = command.output or RESULTS / f"{command.name}.md"
    origin = [f"{measured_on(device)}", "", f"`{command.command_line}`"]
    report = "\n".join([f"# {title}", "", *origin, "", *lines]).rstrip("\n") + "\n"
    print(report, end="")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(report, encoding="utf-8")


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table."""
    lines = [row(header), "|---" * len(header) + "|"]
    return [*lines, *(row(cells) for cells in rows)]


def row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def measured_on(device: str = "cpu") -> str:
    """Return date, commit, machine, versions and load in one line."""
    load = os.getloadavg()[0]
    return f"{datetime.now(UTC):%Y-%m-%d}, commit {git_commit()}; {machine(device)}; load {load:.1f}"


def machine(device: str = "cpu") -> str:
    """Return processor and threads or GPU, and versions."""
    import torch

    if device.startswith("cuda"):
        where = f"{torch.cuda.get_device_name(device)}, CUDA {torch.version.cuda}"
    else:
        where = f"{processor_name()}, {torch.get_num_threads()} of {os.cpu_count()} cores"
    return f"{where}; Python {platform.python_version()}, torch {torch.__version__}"


def processor_name() -> str:
    """Return the name of the CPU as Linux shows it."""
    path = Path("/proc/cpuinfo")
    names = re.findall(r"model name\s*: (.*)", path.read_text()) if path.is_file() else []
    return names[0] if names else platform.processor() or platform.machine()


def git_commit() -> str:
    """Return the commit that is measured, with "-dirty" if the working tree differs from it."""
    argv = ["git", "describe", "--always", "--dirty"]
    answer = subprocess.run(argv, cwd=REPOSITORY, capture_output=True, text=True)
    return answer.stdout.strip() or "unknown"
