"""Cores, memory, GPUs and container limits of this machine, without torch.

The page must not open a CUDA context beside the trainer, so `nvidia-smi` reports the GPUs. A GPU reports less
memory than its nominal size: an L4 of 24 GB has 22 GiB. The memory limit of a container comes from the
kernel's control groups (cgroups), version 2 or 1.
"""

import os
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from indextts.commands.launching import Launch

NATIVE_BFLOAT16 = (8, 0)  # compute capability; before it (T4: 7.5, V100: 7.0) bfloat16 is emulated
DRIVER_TIMEOUT_S = 10
QUERY = "name,memory.total,compute_cap"


@dataclass(frozen=True)
class GpuFacts:
    """Properties of an NVIDIA GPU; its number is that in nvidia-smi."""

    name: str
    memory_bytes: int
    compute_capability: tuple[int, int]
    number: int = 0

    @property
    def has_native_bfloat16(self) -> bool:
        return self.compute_capability >= NATIVE_BFLOAT16


@dataclass(frozen=True)
class MachineFacts:
    """Hardware available to a training run; indextts/webui/monitor/machine.py reports its load."""

    gpus: tuple[GpuFacts, ...]  # a single process uses the first; several processes use one each
    num_cores: int
    memory_bytes: int  # memory of the machine or the limit of its container, whichever is less
    has_native_bfloat16: bool = False

    @property
    def gpu(self) -> GpuFacts | None:
        return self.gpus[0] if self.gpus else None


@lru_cache(maxsize=1)  # nvidia-smi takes up to a second, and the result does not change while the page runs
def find_machine() -> MachineFacts:
    argv = ["nvidia-smi", f"--query-gpu={QUERY}", "--format=csv,noheader,nounits"]
    answer = ""
    with suppress(OSError, subprocess.SubprocessError):
        answer = subprocess.check_output(argv, text=True, stderr=subprocess.DEVNULL, timeout=DRIVER_TIMEOUT_S)
    gpus = visible_gpus(parse_gpus(answer.splitlines()), os.environ.get("CUDA_VISIBLE_DEVICES"))
    return replace(find_host(), gpus=gpus)


def find_host() -> MachineFacts:
    """Return this machine without its GPUs."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    flags: list[str] = []
    with suppress(OSError), Path("/proc/cpuinfo").open() as lines:
        flags = next((line.split() for line in lines if line.startswith("flags")), [])
    return MachineFacts(
        gpus=(),
        num_cores=len(os.sched_getaffinity(0)),
        memory_bytes=min(physical, container_limit() or physical),
        has_native_bfloat16=cpu_has_native_bfloat16(flags, os.environ),
    )


def share_of(machine: MachineFacts, launch: Launch) -> MachineFacts:
    """Return the share of each process of a launch: its smallest GPU, its part of the cores and memory."""
    gpus = gpus_for(machine, launch)
    smallest = min(gpus, key=lambda gpu: gpu.memory_bytes) if gpus else None
    return replace(
        machine,
        gpus=(smallest,) if smallest else (),
        num_cores=max(1, machine.num_cores // launch.processes),
        memory_bytes=machine.memory_bytes // launch.processes,
    )


def gpus_for(machine: MachineFacts, launch: Launch) -> tuple[GpuFacts, ...]:
    """Return the GPUs that the processes of a launch use here; nonexistent GPU numbers are ignored."""
    if not launch.gpus:
        return machine.gpus[: launch.processes]
    by_number = {gpu.number: gpu for gpu in machine.gpus}
    numbers = launch.gpu_numbers[: launch.processes]
    return tuple(by_number[number] for number in numbers if number in by_number)


def parse_gpus(lines: list[str]) -> tuple[GpuFacts, ...]:
    """Parse lines of `name, MiB, compute capability`."""
    gpus = []
    for number, line in enumerate(lines):
        name, memory, capability = (column.strip() for column in line.split(","))
        major, _, minor = capability.partition(".")
        if memory.isdecimal() and major.isdecimal():  # a failed GPU reports "[N/A]"
            gpus.append(GpuFacts(name, int(memory) << 20, (int(major), int(minor)), number))
    return tuple(gpus)


def visible_gpus(gpus: tuple[GpuFacts, ...], chosen: str | None) -> tuple[GpuFacts, ...]:
    """Return the GPUs by CUDA_VISIBLE_DEVICES, in CUDA's order; all for UUIDs or None."""
    if chosen is None:
        return gpus
    numbers = [part.strip() for part in chosen.split(",") if part.strip()]
    if any(not number.lstrip("-").isdecimal() for number in numbers):
        return gpus
    found = []
    for number in map(int, numbers):
        if not 0 <= number < len(gpus):
            break  # CUDA ignores everything after the first invalid number
        found.append(gpus[number])
    return tuple(found)


def cpu_has_native_bfloat16(processor_flags: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Return whether PyTorch multiplies bfloat16 natively; `environment` may exclude the instructions."""
    is_excluded = environment.get("ATEN_CPU_CAPABILITY") in ("default", "avx2")
    return "avx512_bf16" in processor_flags and not is_excluded


CGROUP = Path("/sys/fs/cgroup")


# Of each version: files of limit, usage and statistics, and the key of reclaimable file pages in the last.
VERSIONS = (
    ("memory.max", "memory.current", "memory.stat", "inactive_file"),
    (
        "memory/memory.limit_in_bytes",
        "memory/memory.usage_in_bytes",
        "memory/memory.stat",
        "total_inactive_file",
    ),
)


def container_limit(cgroup: Path = CGROUP) -> int | None:
    """Return the memory limit of the container in bytes; without one None, or in version 1 a huge number."""
    for limit, *_ in VERSIONS:
        try:
            text = (cgroup / limit).read_text().strip()
        except OSError:
            continue
        return int(text) if text.isdecimal() else None  # "max"
    return None


def container_use(cgroup: Path = CGROUP) -> int | None:
    """Return the memory of the container that cannot be reclaimed, in bytes; None outside a cgroup."""
    for _, usage_file, statistics_file, inactive_key in VERSIONS:
        try:
            usage = int((cgroup / usage_file).read_text())
            lines = (cgroup / statistics_file).read_text().splitlines()
            statistics = dict(line.split() for line in lines)
        except (OSError, ValueError):
            continue
        # the kernel reclaims inactive file pages on demand
        return usage - int(statistics.get(inactive_key, 0))
    return None
