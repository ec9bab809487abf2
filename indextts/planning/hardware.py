"""The machine as the page sees it, without torch: cores, memory, and the gpus that the driver names.

The page must not open a CUDA context beside the trainer, so the driver's own tool is asked. A gpu reports
less memory than its nominal size: an L4 of 24 GB has 22 GiB.

The memory of the container that this runs in, as the kernel's control groups say it, version 2 or 1.
"""

import os
import subprocess
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from indextts.commands.launching import Launch

NATIVE_BFLOAT16 = (8, 0)  # compute capability; before it (T4: 7.5, V100: 7.0) bfloat16 is emulated
DRIVER_TIMEOUT_S = 10
QUERIES = ("name,memory.total,compute_cap", "name,memory.total")  # an old driver does not know the third


@dataclass(frozen=True)
class GpuFacts:
    """What one NVIDIA gpu is.

    Args:
        compute_capability: None where the driver does not say it.
        number: as nvidia-smi counts.
    """

    name: str
    memory_bytes: int
    compute_capability: tuple[int, int] | None
    number: int = 0

    @property
    def has_native_bfloat16(self) -> bool:
        return self.compute_capability is not None and self.compute_capability >= NATIVE_BFLOAT16


@dataclass(frozen=True)
class MachineFacts:
    """What a training can use; indextts/webui/monitor/machine.py has how busy it is.

    Args:
        gpus: one process takes the first, several take one each.
        num_cores: that this process may use.
        memory_bytes: of the machine or of its container, whichever is less.
        has_native_bfloat16: of the processor.
    """

    gpus: tuple[GpuFacts, ...]
    num_cores: int
    memory_bytes: int
    has_native_bfloat16: bool = False

    @property
    def gpu(self) -> GpuFacts | None:
        return self.gpus[0] if self.gpus else None


@lru_cache(maxsize=1)  # asking the driver takes up to a second, and none of it changes while the page runs
def find_machine() -> MachineFacts:
    """Return this machine."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return MachineFacts(
        gpus=visible(parse_gpus(_ask_driver()), os.environ.get("CUDA_VISIBLE_DEVICES")),
        num_cores=len(os.sched_getaffinity(0)),
        memory_bytes=min(physical, container_limit() or physical),
        has_native_bfloat16="avx512_bf16" in _processor_flags(Path("/proc/cpuinfo")),
    )


def share_of(machine: MachineFacts, launch: Launch) -> MachineFacts:
    """Return what each process of a launch has: the smallest of their gpus, its part of cores and memory."""
    gpus = gpus_for(machine, launch)
    smallest = min(gpus, key=lambda gpu: gpu.memory_bytes) if gpus else None
    return replace(
        machine,
        gpus=(smallest,) if smallest else (),
        num_cores=max(1, machine.num_cores // launch.processes),
        memory_bytes=machine.memory_bytes // launch.processes,
    )


def gpus_for(machine: MachineFacts, launch: Launch) -> tuple[GpuFacts, ...]:
    """Return the gpus that the processes of a launch take here; a number that does not exist names none."""
    if not launch.gpus:
        return machine.gpus[: launch.processes]
    by_number = {gpu.number: gpu for gpu in machine.gpus}
    numbers = launch.gpu_numbers[: launch.processes]
    return tuple(by_number[number] for number in numbers if number in by_number)


def parse_gpus(lines: list[str]) -> tuple[GpuFacts, ...]:
    """Return the gpus that lines of `name, MiB, compute capability` name; the last column may be absent."""
    gpus = []
    for number, line in enumerate(lines):
        name, memory, *more = [column.strip() for column in line.split(",")]
        if memory.isdecimal():  # "[N/A]" of a gpu that is lost
            gpus.append(GpuFacts(name, int(memory) << 20, _capability(more[0] if more else ""), number))
    return tuple(gpus)


def visible(gpus: tuple[GpuFacts, ...], chosen: str | None) -> tuple[GpuFacts, ...]:
    """Return the gpus that CUDA shows to a trainer, in its order.

    Args:
        chosen: CUDA_VISIBLE_DEVICES, None where it is not set; names of gpus (UUIDs) are left to CUDA.
    """
    if chosen is None:
        return gpus
    numbers = [part.strip() for part in chosen.split(",") if part.strip()]
    if any(not number.lstrip("-").isdecimal() for number in numbers):
        return gpus
    found = []
    for number in map(int, numbers):
        if not 0 <= number < len(gpus):
            break  # CUDA stops at the first that does not exist
        found.append(gpus[number])
    return tuple(found)


def _capability(text: str) -> tuple[int, int] | None:
    major, _, minor = text.partition(".")
    return (int(major), int(minor)) if major.isdecimal() and minor.isdecimal() else None


def _ask_driver() -> list[str]:
    for query in QUERIES:
        argv = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader,nounits"]
        try:
            answer = subprocess.check_output(
                argv, text=True, stderr=subprocess.DEVNULL, timeout=DRIVER_TIMEOUT_S
            )
        except (OSError, subprocess.SubprocessError):
            continue
        return answer.splitlines()
    return []


def _processor_flags(cpuinfo: Path) -> list[str]:
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:
        return []
    return next((line.split() for line in lines if line.startswith("flags")), [])


CGROUP = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class _Version:
    """The files of one version of control groups, and what memory.stat calls pages of files that can go."""

    limit: str
    held: str
    statistics: str
    inactive: str


VERSIONS = (
    _Version("memory.max", "memory.current", "memory.stat", "inactive_file"),
    _Version(
        "memory/memory.limit_in_bytes",
        "memory/memory.usage_in_bytes",
        "memory/memory.stat",
        "total_inactive_file",
    ),
)


def container_limit(cgroup: Path = CGROUP) -> int | None:
    """Return the memory limit of the container in bytes, None where there is none.

    Version 1 says "no limit" as a number that no machine has: take the less of it and the machine's memory.
    """
    for version in VERSIONS:
        try:
            text = (cgroup / version.limit).read_text().strip()
        except OSError:
            continue
        return int(text) if text.isdecimal() else None  # "max"
    return None


def container_use(cgroup: Path = CGROUP) -> int | None:
    """Return the bytes that the container holds and cannot give back at once, None where nothing says it."""
    for version in VERSIONS:
        try:
            held = int((cgroup / version.held).read_text())
            lines = (cgroup / version.statistics).read_text().splitlines()
            statistics = dict(line.split() for line in lines)
        except (OSError, ValueError):
            continue
        # what was read from files is given back when somebody needs it
        return held - int(statistics.get(version.inactive, 0))
    return None
