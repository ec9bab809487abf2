"""Turn recordings into codes, conditioning and emotion vectors; goes on where it stopped.

With --import-features FOLDER it takes over the features that the predecessor made.
"""

import sys
from collections.abc import Sequence

from indextts.commands.data import ImportFeatures, Preprocess
from indextts.commands.terminal import parse, run
from indextts.errors import CHECK_FAILED, UserError


def main(argv: Sequence[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else argv
    # the libraries here, because the processes that read recordings import this file and need no torch
    if any(argument.partition("=")[0] == "--import-features" for argument in argv):
        from indextts.data.predecessor_import import import_features

        print(import_features(parse(ImportFeatures, argv)))
        return 0
    from indextts.data.preprocess import preprocess

    command = parse(Preprocess, argv)
    result = preprocess(command)
    print(result)
    if result.is_mostly_rejected:
        raise UserError(
            f"{command.manifest}: most recordings were rejected; {result.output_dir}/rejected.jsonl says "
            "why, repair them and run the same command again, or go on with what was encoded",
            CHECK_FAILED,
        )
    return 0


if __name__ == "__main__":
    run(main)
