"""Fetch the published files; goes on where it was interrupted, and checks what is there."""

from collections.abc import Sequence

from indextts.commands.data import DownloadCheckpoints
from indextts.commands.terminal import parse, run
from indextts.features.download import download


def main(argv: Sequence[str] | None = None) -> int:
    print(download(parse(DownloadCheckpoints, argv)))
    return 0


if __name__ == "__main__":
    run(main)
