"""The computer that trains: processors, memory, disk and graphics cards, as they are now. No Gradio here.

Cards are asked through the driver's own library (NVML), which opens no CUDA context: watching takes none of
their memory. In a container the memory is that of the container, where the kernel says so.
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

from indextts.planning.hardware import CGROUP, container_limit, container_use
from indextts.webui.language import t

GB = 1e9

PROCESSORS = "monitor.processors"
MEMORY = "monitor.memory"
DISK = "monitor.disk"
CARD = "monitor.card"
NUMBERED = "monitor.numbered"
USED = "monitor.used"
NO_CARD = "monitor.no_card"
UNKNOWN = "?"


@dataclass(frozen=True)
class CardState:
    """A graphics card at one moment; what its driver does not tell is None.

    Args:
        percent: of the time in which it computed, lately.
        number: as nvidia-smi counts.
    """

    name: str
    used_bytes: int
    total_bytes: int
    percent: int | None
    celsius: int | None
    number: int = 0

    def __str__(self) -> str:
        return t(
            CARD,
            name=self.name,
            percent=UNKNOWN if self.percent is None else self.percent,
            used=self.used_bytes / GB,
            total=self.total_bytes / GB,
            celsius=UNKNOWN if self.celsius is None else self.celsius,
        )


@dataclass(frozen=True)
class MachineState:
    """A computer at one moment.

    Args:
        busy_percent: of all processors, since it was asked before; 0 the first time.
        free_disk_bytes, disk_bytes: of the disk that a given folder is on.
    """

    num_processors: int
    busy_percent: float
    used_bytes: int
    memory_bytes: int
    free_disk_bytes: int
    disk_bytes: int
    cards: tuple[CardState, ...]

    def rows(self, in_training: Collection[int] = ()) -> list[list[str]]:
        """Return what is where, as lines of a table.

        Args:
            in_training: numbers of the cards that are marked as the training's.
        """
        cards = [
            [
                t(NUMBERED, number=card.number) if len(self.cards) > 1 else t("monitor.parts.card"),
                t(USED, card=str(card)) if card.number in in_training else str(card),
            ]
            for card in self.cards
        ]
        return [
            [
                t("monitor.parts.processor"),
                t(PROCESSORS, count=self.num_processors, percent=self.busy_percent),
            ],
            [t("monitor.parts.memory"), t(MEMORY, used=self.used_bytes / GB, total=self.memory_bytes / GB)],
            [t("monitor.parts.disk"), t(DISK, free=self.free_disk_bytes / GB, total=self.disk_bytes / GB)],
            *(cards or [[t("monitor.parts.card"), t(NO_CARD)]]),
        ]

    def __str__(self) -> str:
        return "\n".join(f"{what}: {state}" for what, state in self.rows())


def read_machine(folder: Path, cgroup: Path = CGROUP) -> MachineState:
    """Return the computer as it is now, with the disk that `folder` is on."""
    memory, disk = psutil.virtual_memory(), shutil.disk_usage(folder)
    used, total = memory.total - memory.available, memory.total
    limit, in_container = container_limit(cgroup), container_use(cgroup)
    if limit is not None and limit < total and in_container is not None:
        used, total = in_container, limit
    return MachineState(
        num_processors=len(os.sched_getaffinity(0)),
        busy_percent=psutil.cpu_percent(),
        used_bytes=used,
        memory_bytes=total,
        free_disk_bytes=disk.free,
        disk_bytes=disk.total,
        cards=read_cards(),
    )


def read_cards() -> tuple[CardState, ...]:
    """Return the NVIDIA cards of this computer; none without a driver."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return ()
    try:
        return tuple(map(_read_card, range(pynvml.nvmlDeviceGetCount())))
    except pynvml.NVMLError:  # a driver that was replaced meanwhile, a card that fell off the bus
        return ()
    finally:
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def _read_card(number: int) -> CardState:
    handle: Any = pynvml.nvmlDeviceGetHandleByIndex(number)
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    return CardState(
        name=str(pynvml.nvmlDeviceGetName(handle)),
        used_bytes=int(memory.used),
        total_bytes=int(memory.total),
        percent=_known(lambda: pynvml.nvmlDeviceGetUtilizationRates(handle).gpu),
        celsius=_known(lambda: pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU)),
        number=number,
    )


def _known(read: Callable[[], int]) -> int | None:
    """Return what `read` gives, None where the card does not tell it, as a slice of a shared one."""
    try:
        return int(read())
    except pynvml.NVMLError:
        return None
