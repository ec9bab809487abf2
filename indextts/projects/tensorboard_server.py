"""TensorBoard over a run's event files, for this machine only; it ends by a signal.

Only what shows scalars is loaded: the other plugins read files that the event files name. Nothing is asked of
or told to any other host.
"""

import threading
from urllib.parse import urlsplit

from tensorboard import program
from tensorboard.plugins.core import core_plugin
from tensorboard.plugins.metrics import metrics_plugin
from tensorboard.plugins.scalar import scalars_plugin

from indextts.commands.app import ServeTensorboard
from indextts.errors import UserError
from indextts.projects.tensorboard import write_address

PLUGINS = [
    core_plugin.CorePluginLoader(include_debug_info=False),
    metrics_plugin.MetricsPlugin,
    scalars_plugin.ScalarsPlugin,
]


def serve_tensorboard(command: ServeTensorboard) -> None:
    """Serve until a signal ends the process, on a free port that is written to the address file.

    Raises:
        UserError: there are no event files yet, or no port.
    """
    if not any(command.logdir.rglob("*tfevents*")):
        raise UserError(f"--logdir {command.logdir}: no event files in it; a training writes them")
    board = program.TensorBoard(plugins=PLUGINS)
    board.configure(
        logdir=str(command.logdir),
        host="127.0.0.1",
        port=0,
        path_prefix=command.path_prefix,
        load_fast="false",  # its other way is a second process, with a second port
        reload_interval=command.reload_s,
    )
    try:
        url = board.launch()
    except program.TensorBoardServerException as error:
        raise UserError(f"TensorBoard cannot be started ({error.msg}); stop what listens here") from None
    port = urlsplit(url).port
    assert port is not None
    write_address(command.address_file, port)
    print(f"TensorBoard listens on 127.0.0.1:{port}; the page shows it in the tab Monitor", flush=True)  # noqa: T201
    threading.Event().wait()
