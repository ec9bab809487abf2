"""Rank and world size of this process, from the environment variables that torchrun sets. No torch here.

Without torchrun there is one process, and none of the variables is set.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True)
class RankInfo:
    """Rank and world size of this process."""

    rank: int = 0  # 0 to `world_size` - 1; only rank 0 writes the run directory
    world_size: int = 1
    local_rank: int = 0  # 0 to `local_world_size` - 1, on this machine; it selects the GPU
    local_world_size: int = 1
    num_restarts: int = 0

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Self:
        """Return the rank that torchrun, or another launcher with the same variables, gave this process."""
        # a cluster may set one of the two for every program
        if "RANK" not in environment or "WORLD_SIZE" not in environment:
            return cls()
        return cls(
            rank=int(environment["RANK"]),
            world_size=int(environment["WORLD_SIZE"]),
            local_rank=int(environment.get("LOCAL_RANK", 0)),
            local_world_size=int(environment.get("LOCAL_WORLD_SIZE", 1)),
            num_restarts=int(environment.get("TORCHELASTIC_RESTART_COUNT", 0)),
        )

    @property
    def is_main(self) -> bool:
        """True on rank 0, the main process."""
        return self.rank == 0


def log_name(rank: int) -> str:
    """Return the file in the run directory to which `rank` writes its log."""
    return f"train_rank{rank}.log" if rank else "train.log"
