"""TensorBoard server of a project, and the file with its address.

    NAME/tensorboard.json    {"port", "process": {"pid", "start_ticks", "boot_id"}}

The port is valid only while that process is alive, because a later program may use the same port. The server
listens on 127.0.0.1, contacts no other host, and runs until a signal ends it.
"""

import threading
from dataclasses import asdict
from pathlib import Path
from urllib.parse import urlsplit

from indextts.commands.app import ServeTensorboard
from indextts.errors import UserError
from indextts.system.files import read_object, write_json
from indextts.system.processes import Process, is_alive, this_process


def write_address(path: Path, port: int) -> None:
    """Record that the calling process listens on `port`."""
    write_json(path, {"port": port, "process": asdict(this_process())})


def live_port(path: Path) -> int | None:
    """Return the port recorded in `path`; None if its process has ended or there is no valid record."""
    fields = read_object(path)
    port, process = fields.get("port"), Process.recorded(fields.get("process"))
    is_valid = type(port) is int and 1 <= port <= 65535 and process is not None and is_alive(process)
    return port if is_valid else None


def serve_tensorboard(command: ServeTensorboard) -> None:
    """Serve on a free port, recorded in a file, until a signal; a UserError without event files or a port."""
    if not any(command.logdir.rglob("*tfevents*")):
        raise UserError(
            f"--logdir {command.logdir}: no TensorBoard event files; start a training run, which writes them"
        )
    from tensorboard import program  # takes seconds, and the page needs only the address
    from tensorboard.plugins.core import core_plugin
    from tensorboard.plugins.metrics import metrics_plugin
    from tensorboard.plugins.scalar import scalars_plugin

    core = core_plugin.CorePluginLoader(include_debug_info=False)
    # scalars only: other plugins read any file that an event file names
    board = program.TensorBoard(plugins=[core, metrics_plugin.MetricsPlugin, scalars_plugin.ScalarsPlugin])
    board.configure(
        logdir=str(command.logdir),
        host="127.0.0.1",
        port=0,
        path_prefix=command.path_prefix,
        load_fast="false",  # the fast loader is a second process with a second port
        reload_interval=command.reload_s,
    )
    try:
        url = board.launch()
    except program.TensorBoardServerException as error:
        raise UserError(
            f"TensorBoard cannot start ({error.msg}); stop the program that uses its port"
        ) from None
    port = urlsplit(url).port
    assert port is not None
    write_address(command.address_file, port)
    print(f"TensorBoard listens on 127.0.0.1:{port}; the page shows it in tab 7", flush=True)  # noqa: T201
    threading.Event().wait()
