"""Transcribe recordings without texts with one or two recognizers, and keep the texts that both hear."""

import signal
from collections.abc import Sequence

from indextts.commands.data import Transcribe
from indextts.commands.terminal import parse, run
from indextts.data.transcribing.transcribe import MANIFEST_NAME, transcribe


def main(argv: Sequence[str] | None = None) -> int:
    args = parse(Transcribe, argv)
    report = transcribe(args)
    print(f"{args.output_dir / MANIFEST_NAME}: {report}")
    return 0


if __name__ == "__main__":
    # At once, as a kill, after which it resumes: Python would wait for the clip that is heard, and for the
    # recordings that threads cut.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    run(main)
