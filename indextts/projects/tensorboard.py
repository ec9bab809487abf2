"""Where a project's TensorBoard listens, as its process wrote it down. No TensorBoard here.

    NAME/tensorboard.json    {"port", "process": {"pid", "start_ticks", "boot_id"}}

The port counts only as long as that very process lives: a later program may listen on the same one.
"""

from pathlib import Path

from pydantic import BaseModel, Field, ValidationError

from indextts.runs.directory import write_json
from indextts.system.processes import Process, is_alive, this_process


class TensorboardAddress(BaseModel, frozen=True):
    """A port of 127.0.0.1, and whose it is."""

    port: int = Field(ge=1, le=65535)
    process: Process


def write_address(path: Path, port: int) -> None:
    """Write down that the calling process listens on `port`."""
    write_json(path, TensorboardAddress(port=port, process=this_process()).model_dump(mode="json"))


def living_port(path: Path) -> int | None:
    """Return the port of the process that wrote `path`; None if it has ended, or never was."""
    try:
        address = TensorboardAddress.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None
    return address.port if is_alive(address.process) else None
