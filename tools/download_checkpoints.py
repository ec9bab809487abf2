"""Download the published files; resume after an interruption and verify existing files."""

from collections.abc import Sequence

from indextts.commands.data import DownloadCheckpoints
from indextts.commands.terminal import parse, run
from indextts.features.download import download


def main(argv: Sequence[str] | None = None) -> int:
    print(download(parse(DownloadCheckpoints, argv)))
    return 0


if __name__ == "__main__":
    run(main)
