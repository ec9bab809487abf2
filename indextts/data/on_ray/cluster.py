"""Connection to a Ray cluster, or a temporary cluster of this machine."""

import logging
import os
import signal
import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from indextts.commands.data import Engine
from indextts.errors import UserError

OBJECT_STORE_BYTES = 2**30  # of a temporary cluster; Ray spills the rest to the disk
CONNECT_S = 5.0


@contextmanager
def running_on(engine: Engine, address: str) -> Iterator[None]:
    """Connect to a cluster for the `with` block if `engine` is "ray".

    SIGTERM then raises SystemExit in the block, so that it can clean up.

    Args:
        address: HOST:PORT as `ray start --head` prints it; empty to start a temporary cluster of this
            machine.

    Raises:
        UserError: Ray is not installed, the cluster cannot be reached, or another engine has an address.
    """
    if engine != "ray":
        if address:
            raise UserError(f"--ray-address {address}: requires --engine ray; pass that too")
        yield
        return
    if address:
        _require_reachable(address)
    else:  # Ray's default, without its warning; set before the library reads it
        os.environ.setdefault("RAY_AUTH_MODE", "token")
    try:
        import ray
    except ModuleNotFoundError as error:
        if error.name != "ray":
            raise
        raise UserError(
            "--engine ray: the package ray is not installed; run .venv/bin/pip install -e '.[distributed]'"
        ) from None
    logging.getLogger("ray").setLevel(logging.WARNING)
    before = signal.getsignal(signal.SIGTERM)
    try:
        if address:
            ray.init(address, configure_logging=False)
        else:
            ray.init(
                "local",
                include_dashboard=False,
                object_store_memory=OBJECT_STORE_BYTES,
                configure_logging=False,
            )
    except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise UserError(
            f"--ray-address {address or '(none)'}: no connection to the cluster ({_one_line(error)}); join "
            "this machine to it with `ray start`, with the same versions and the same token"
        ) from None
    received: list[int] = []

    def stop(number: int, _frame: FrameType | None) -> None:
        received.append(number)
        raise SystemExit(128 + number)

    try:
        signal.signal(signal.SIGTERM, stop)  # Ray's own handler exits with status 15
        yield
    except SystemExit:
        if received:  # Ray turns a SystemExit that reaches it in ray.wait or ray.get into SystemExit(1)
            raise SystemExit(128 + received[0]) from None
        raise
    finally:
        ray.shutdown()
        signal.signal(signal.SIGTERM, before)


def _require_reachable(address: str) -> None:
    """Raise a UserError unless something answers; Ray would wait for two minutes and end the process."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise UserError(
            f"--ray-address {address}: use HOST:PORT, as `ray start --head` prints it, such as 10.0.0.1:6379"
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_S).close()
    except (OSError, OverflowError) as error:
        raise UserError(
            f"--ray-address {address}: no answer ({_one_line(error)}); start the cluster with "
            "`ray start --head`, or check its address and the firewall"
        ) from None


def _one_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def require_folders(recordings: Iterable[Path]) -> None:
    """Raise a UserError if a recording's folder does not exist on this machine.

    A machine without the shared disk would reject all its recordings, and so quickly that it would get most
    of them.
    """
    for folder in sorted({path.parent for path in recordings}):
        try:
            is_there = folder.is_dir()
        except OSError:  # a network disk that is disconnected
            is_there = False
        if not is_there:
            raise UserError(
                f"{folder}: the folder does not exist on {socket.gethostname()}, and every machine needs the "
                "recordings at the same paths; mount the disk there, then run the same command again"
            )
