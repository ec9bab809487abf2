"""State of the machine as tiles, for tabs 1 and 7."""

from collections.abc import Collection

from indextts.webui.language import t
from indextts.webui.markup import Level, Tile
from indextts.webui.monitor.machine import GB, GpuState, MachineState

FULL = 0.9  # share of the memory in use, or of the disk, from which a tile warns
NOT_REPORTED = "?"


def machine_tiles(state: MachineState, in_training: Collection[int] = ()) -> list[Tile]:
    """Return a tile for each part of the machine, the GPUs first.

    Args:
        in_training: numbers of the GPUs that the training run uses.
    """
    tiles = [tile for gpu in state.gpus for tile in _gpu_tiles(gpu, len(state.gpus), in_training)]
    if not tiles:
        tiles = [Tile(t("monitor.parts.gpu"), t("machine.none"), t("monitor.no_gpu"))]
    used = state.used_bytes / max(1, state.memory_bytes)
    filled = 1 - state.free_disk_bytes / max(1, state.disk_bytes)
    return [
        *tiles,
        Tile(
            t("machine.processors"),
            f"{state.num_processors}",
            t("machine.busy", percent=state.busy_percent),
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
