"""Serve TensorBoard for the event files of a run on 127.0.0.1; the page shows it behind its login."""

from collections.abc import Sequence

from indextts.commands.app import ServeTensorboard
from indextts.commands.terminal import parse, run
from indextts.projects.tensorboard import serve_tensorboard


def main(argv: Sequence[str] | None = None) -> int:
    serve_tensorboard(parse(ServeTensorboard, argv))
    return 0


if __name__ == "__main__":
    run(main)
