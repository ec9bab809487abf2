"""Serve speech over HTTP with OpenAI's interface."""

from collections.abc import Sequence

from indextts.commands.speech import Serve
from indextts.commands.terminal import parse, run


def main(argv: Sequence[str] | None = None) -> int:
    command = parse(Serve, argv)
    from indextts.speech.serving.serve import serve  # torch loads slowly; wrong flags fail first

    serve(command)
    return 0


if __name__ == "__main__":
    run(main)
