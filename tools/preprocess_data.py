"""Turn recordings into codes, conditioning and emotion vectors; goes on where it stopped.

With --import-features FOLDER it takes over the features that the predecessor made.
"""

import sys
from collections.abc import Sequence

from indextts.commands import ImportFeatures, Preprocess, parse, run
from indextts.data.predecessor_import import import_features
from indextts.data.preprocess import preprocess


def main(argv: Sequence[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else argv
    if any(argument.partition("=")[0] == "--import-features" for argument in argv):
        print(import_features(parse(ImportFeatures, argv)))
    else:
        print(preprocess(parse(Preprocess, argv)))
    return 0


if __name__ == "__main__":
    run(main)
