"""Synthesize texts with a checkpoint, in the voice of a recording."""

from collections.abc import Sequence

from indextts.commands.speech import Synthesize
from indextts.commands.terminal import parse, run


def main(argv: Sequence[str] | None = None) -> int:
    command = parse(Synthesize, argv)
    from indextts.speech.synthesis.synthesize import synthesize  # torch loads slowly; wrong flags fail first

    for line in synthesize(command):
        print(line, flush=True)
    return 0


if __name__ == "__main__":
    run(main)
