"""Launch of a trainer: as one process, or as several by torchrun, the launcher of PyTorch.

    one process          python PROGRAM FLAGS
    several              python -m torch.distributed.run --standalone --nproc-per-node=N ... PROGRAM FLAGS
    on several machines  python -m torch.distributed.run --nnodes=M --node-rank=R ... PROGRAM FLAGS

CUDA_VISIBLE_DEVICES in the environment of these processes selects the GPUs. No torch here.
"""

import re
from collections.abc import Iterable
from typing import Any, ClassVar, Self

from pydantic import Field, field_validator, model_validator

from indextts.commands.base import Command
from indextts.errors import UserError

# By default torchrun kills its processes 30 s after it forwards a signal, which is too soon to save a large
# checkpoint. The stop stages of a job end before this limit.
SHUTDOWN_S = 600
MAX_CHARACTERS = 1000
DEFAULT_PORT = 29500  # the default of torchrun

GPU_NUMBERS = re.compile(r"(0|[1-9][0-9]{0,2})(,(0|[1-9][0-9]{0,2}))*")
HOST = re.compile(r"([A-Za-z0-9][A-Za-z0-9.-]*|\[[0-9A-Fa-f:.]+\])(:([0-9]{1,5}))?")


class Launch(Command):
    """Number of processes, GPUs and machines that train together."""

    program: ClassVar[str] = "torch.distributed.run"
    processes: int = Field(1, ge=1, le=64, title="Processes")
    """Number of trainer processes on each machine, one for each GPU."""
    gpus: str = Field("", title="GPUs")
    """Numbers of the GPUs to use, as in nvidia-smi, such as 0,1; empty uses all."""
    nodes: int = Field(1, ge=1, le=128, title="Machines")
    """Number of machines that train together."""
    node_rank: int = Field(0, ge=0, title="Machine number")
    """Number of this machine, counted from 0."""
    endpoint: str = Field("", title="Endpoint")
    """Host and free port of machine 0, such as 10.0.0.1:29500, if there are several machines."""

    @field_validator("gpus", mode="before")
    @classmethod
    def _as_text(cls, given: object) -> object:
        """Accept a number or a list of numbers from a YAML file, and blanks around commas."""
        if isinstance(given, list | tuple):
            given = ",".join(map(str, given))
        text = str(given)
        if len(text) > MAX_CHARACTERS:
            raise UserError(f"--gpus: {len(text):,} characters; pass numbers of GPUs, such as 0,1")
        return ",".join(number.strip() for number in text.split(","))

    @field_validator("endpoint")
    @classmethod
    def _without_blanks(cls, given: str) -> str:
        return given.strip()

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.gpus and not GPU_NUMBERS.fullmatch(self.gpus):
            raise UserError(f"--gpus {self.gpus!r}: pass comma-separated numbers of GPUs, such as 0,1")
        if len(set(self.gpu_numbers)) < len(self.gpu_numbers):
            raise UserError(f"--gpus {self.gpus}: duplicate number; name each GPU once")
        if self.gpus and len(self.gpu_numbers) < self.processes:
            raise UserError(
                f"--processes {self.processes}: each process needs a GPU, and --gpus names "
                f"{len(self.gpu_numbers)}; name more GPUs, or reduce the processes"
            )
        if self.node_rank >= self.nodes:
            raise UserError(
                f"--node-rank {self.node_rank}: {self.nodes} machines are numbered 0 to {self.nodes - 1}; "
                "pass one of these numbers"
            )
        if self.nodes > 1 and not self.endpoint:
            raise UserError(
                f"--nodes {self.nodes}: pass --endpoint too, the address of machine 0 and a free port of it, "
                f"such as 10.0.0.1:{DEFAULT_PORT}"
            )
        found = HOST.fullmatch(self.endpoint)
        if self.endpoint and not (found and int(found[3] or DEFAULT_PORT) in range(1, 1 << 16)):
            raise UserError(
                f"--endpoint {self.endpoint!r}: pass the name or address of machine 0 and a port, such as "
                f"10.0.0.1:{DEFAULT_PORT}"
            )
        return self

    @property
    def gpu_numbers(self) -> tuple[int, ...]:
        """The named GPUs in the order of the processes; empty if all may be used."""
        return tuple(map(int, self.gpus.split(","))) if self.gpus else ()

    @property
    def num_processes(self) -> int:
        """World size: the number of processes on all machines."""
        return self.processes * self.nodes

    @property
    def prefix(self) -> list[str]:
        """Arguments between `python` and the program; empty for one process."""
        if self.num_processes == 1:
            return []
        each = [f"--nproc-per-node={self.processes}", f"--shutdown-timeout={SHUTDOWN_S}"]
        if self.nodes == 1:
            return ["-m", self.program, "--standalone", *each]
        # The backend c10d numbers the machines itself, so that rank 0, which writes the log and the
        # checkpoints, might not be on machine 0.
        machines = [f"--nnodes={self.nodes}", f"--node-rank={self.node_rank}", "--rdzv-backend=static"]
        port = "" if HOST.fullmatch(self.endpoint)[3] else f":{DEFAULT_PORT}"  # type: ignore[index]
        return ["-m", self.program, *machines, f"--rdzv-endpoint={self.endpoint}{port}", *each]

    @property
    def environment(self) -> dict[str, str]:
        if not self.gpus:
            return {}
        # CUDA numbers the fastest GPU 0 by default, and nvidia-smi numbers GPUs by bus position
        return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": self.gpus}

    def on_other_nodes(self) -> Iterable["Launch"]:
        for rank in range(self.nodes):
            if rank != self.node_rank:
                yield self.model_copy(update={"node_rank": rank})


ALONE = Launch()


def launch_of(fields: dict[str, Any]) -> Launch:
    """Return the launch of a project's settings; a UserError for an unknown field or a bad value."""
    try:
        return Launch(**fields)
    except UserError as error:
        raise UserError(f"launch: {error}") from None
