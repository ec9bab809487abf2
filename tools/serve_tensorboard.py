"""Serve TensorBoard over a run's event files on 127.0.0.1; the page shows it under its login."""

from collections.abc import Sequence

from indextts.command_line import parse, run
from indextts.commands import ServeTensorboard
from indextts.tensorboard_server import serve_tensorboard


def main(argv: Sequence[str] | None = None) -> int:
    serve_tensorboard(parse(ServeTensorboard, argv))
    return 0


if __name__ == "__main__":
    run(main)
