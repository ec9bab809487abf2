"""Remove the hum of the mains from clips that the check flagged; the inputs stay."""

from collections.abc import Sequence

from indextts.commands.data import CleanAudio
from indextts.commands.terminal import parse, run
from indextts.data.sound_cleaning import clean_audio


def main(argv: Sequence[str] | None = None) -> int:
    print(clean_audio(parse(CleanAudio, argv)))
    return 0


if __name__ == "__main__":
    run(main)
