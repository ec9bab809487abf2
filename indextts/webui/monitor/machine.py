"""Current state of the machine: processors, memory, disk and GPUs; its tiles in tabs 1 and 7. No Gradio here.

GPUs are read through NVML, which opens no CUDA context, so monitoring uses no GPU memory. In a container, the
memory is the container's limit if the kernel reports it.
"""

import os
import shutil
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pynvml

from indextts.planning.hardware import container_limit, container_use
from indextts.webui.language import t
from indextts.webui.markup import Level, Tile

GB = 1e9
FULL = 0.9  # share of the memory in use, or of the disk, from which a tile warns
NOT_REPORTED = "?"


@dataclass(frozen=True)
class GpuState:
    """State of a GPU, its number as in nvidia-smi; values that the driver does not report are None."""

    name: str
    used_bytes: int
    total_bytes: int
    percent: int | None
    celsius: int | None
    number: int = 0


@dataclass(frozen=True)
class MachineState:
    """State of a machine.

    Args:
        busy_percent: of all processors since the previous call; 0 at the first call.
        free_disk_bytes, disk_bytes: of the disk that contains a given folder.
    """

    num_processors: int
    busy_percent: float
    used_bytes: int
    memory_bytes: int
    free_disk_bytes: int
    disk_bytes: int
    gpus: tuple[GpuState, ...]


def read_machine(folder: Path) -> MachineState:
    memory, disk = psutil.virtual_memory(), shutil.disk_usage(folder)
    used, total = memory.total - memory.available, memory.total
    limit, in_container = container_limit(), container_use()
    if limit is not None and limit < total and in_container is not None:
        used, total = in_container, limit
    return MachineState(
        num_processors=len(os.sched_getaffinity(0)),
        busy_percent=psutil.cpu_percent(),
        used_bytes=used,
        memory_bytes=total,
        free_disk_bytes=disk.free,
        disk_bytes=disk.total,
        gpus=read_gpus(),
    )


def read_gpus() -> tuple[GpuState, ...]:
    """Return the NVIDIA GPUs of this machine; empty without a driver."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return ()
    try:
        return tuple(map(_read_gpu, range(pynvml.nvmlDeviceGetCount())))
    except pynvml.NVMLError:  # the driver was replaced meanwhile, or a GPU fell off the bus
        return ()
    finally:
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def _read_gpu(number: int) -> GpuState:
    handle: Any = pynvml.nvmlDeviceGetHandleByIndex(number)
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    return GpuState(
        name=str(pynvml.nvmlDeviceGetName(handle)),
        used_bytes=int(memory.used),
        total_bytes=int(memory.total),
        percent=_known(lambda: pynvml.nvmlDeviceGetUtilizationRates(handle).gpu),
        celsius=_known(lambda: pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU)),
        number=number,
    )


def _known(read: Callable[[], int]) -> int | None:
    """Return the result of `read`, or None if the GPU does not report it, as a MIG slice does not."""
    try:
        return int(read())
    except pynvml.NVMLError:
        return None


def machine_tiles(state: MachineState, in_training: Collection[int] = ()) -> list[Tile]:
    """Return a tile for each part of the machine; `in_training` are the numbers of the run's GPUs."""
    tiles = [tile for gpu in state.gpus for tile in _gpu_tiles(gpu, len(state.gpus), in_training)]
    if not tiles:
        tiles = [Tile(t("monitor.parts.gpu"), t("machine.none"), t("monitor.no_gpu"))]
    used = state.used_bytes / max(1, state.memory_bytes)
    filled = 1 - state.free_disk_bytes / max(1, state.disk_bytes)
    return [
        *tiles,
        Tile(
            t("machine.processors"), f"{state.num_processors}", t("machine.busy", percent=state.busy_percent)
        ),
        Tile(
            t("monitor.parts.memory"),
            f"{state.used_bytes / GB:.1f} GB",
            t("machine.in_use", total=state.memory_bytes / GB),
            _level(used),
        ),
        Tile(
            t("monitor.parts.disk"),
            f"{state.free_disk_bytes / GB:,.0f} GB",
            t("machine.free", total=state.disk_bytes / GB),
            _level(filled),
        ),
    ]


def _gpu_tiles(gpu: GpuState, num_gpus: int, in_training: Collection[int]) -> list[Tile]:
    name = t("monitor.gpu_number", number=gpu.number) if num_gpus > 1 else t("monitor.parts.gpu")
    percent = NOT_REPORTED if gpu.percent is None else f"{gpu.percent}"
    celsius = NOT_REPORTED if gpu.celsius is None else f"{gpu.celsius}"
    remark = t("machine.gpu", percent=percent, celsius=celsius)
    if gpu.number in in_training:
        remark = t("machine.trains", state=remark)
    used = gpu.used_bytes / max(1, gpu.total_bytes)
    return [
        Tile(name, gpu.name.removeprefix("NVIDIA ").removeprefix("GeForce "), remark),
        Tile(
            t("machine.gpu_memory"),
            f"{gpu.used_bytes / GB:.1f} GB",
            t("machine.in_use", total=gpu.total_bytes / GB),
            "" if gpu.number in in_training else _level(used),
        ),
    ]


def _level(share: float) -> Level:
    return "warn" if share >= FULL else ""
