"""Turn recordings into codes, conditioning and emotion vectors; goes on where it stopped."""

from collections.abc import Sequence

from indextts.commands import Preprocess, parse, run
from indextts.data.preprocess import preprocess


def main(argv: Sequence[str] | None = None) -> int:
    print(preprocess(parse(Preprocess, argv)))
    return 0


if __name__ == "__main__":
    run(main)
