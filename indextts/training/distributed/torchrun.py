"""What torchrun tells a process of its place among the others, in its environment. No torch here.

Without torchrun there is one process, and nothing of this is there.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from indextts.errors import UserError


@dataclass(frozen=True)
class Place:
    """The place of a process among those that train together.

    Args:
        rank: 0 to `size` - 1; 0 alone writes the run directory.
        size: processes in all.
        local_rank: 0 to `local_size` - 1, on this machine; which card it takes.
        local_size: processes on this machine.
        restarts: how often torchrun started the processes again.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    restarts: int = 0

    @classmethod
    def of_this_process(cls, environment: Mapping[str, str] = os.environ) -> Self:
        """Return the place that torchrun, or who else sets its variables, gave this process.

        Raises:
            UserError: the variables contradict each other.
        """
        if "RANK" not in environment or "WORLD_SIZE" not in environment:
            return cls()

        def number(name: str, otherwise: int) -> int:
            value = environment.get(name, str(otherwise))
            if not value.isdecimal():
                raise UserError(f"{name}={value!r} in the environment is no number; start with torchrun")
            return int(value)

        place = cls(
            rank=number("RANK", 0),
            size=number("WORLD_SIZE", 1),
            local_rank=number("LOCAL_RANK", 0),
            local_size=number("LOCAL_WORLD_SIZE", 1),
            restarts=number("TORCHELASTIC_RESTART_COUNT", 0),
        )
        if place.rank >= place.size or place.local_rank >= place.local_size:
            raise UserError(
                f"RANK={place.rank} of WORLD_SIZE={place.size} and LOCAL_RANK={place.local_rank} of "
                f"LOCAL_WORLD_SIZE={place.local_size} in the environment cannot be; start with torchrun, or "
                "remove these variables"
            )
        return place

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    @property
    def log_name(self) -> str:
        """The file in the run directory that this process writes its log to."""
        return log_name(self.rank)


def log_name(rank: int) -> str:
    """Return the file in the run directory that process `rank` writes its log to."""
    return f"train_rank{rank}.log" if rank else "train.log"
