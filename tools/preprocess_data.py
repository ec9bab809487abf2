"""Compute codes, conditioning and emotion vectors of recordings; resume after an interruption.

With --import-features FOLDER it imports features of the predecessor instead.
"""

import sys
from collections.abc import Sequence

from indextts.commands.data import ImportFeatures, Preprocess
from indextts.commands.terminal import parse, run
from indextts.errors import CHECK_FAILED, UserError


def main(argv: Sequence[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else argv
    # Imported here, because the processes that read recordings import this file and need no torch.
    if any(argument.partition("=")[0] == "--import-features" for argument in argv):
        from indextts.data.predecessor import import_features

        print(import_features(parse(ImportFeatures, argv)))
        return 0
    from indextts.data.preprocess import preprocess

    command = parse(Preprocess, argv)
    result = preprocess(command)
    print(result)
    if result.is_mostly_rejected:
        raise UserError(
            f"{command.manifest}: most recordings were rejected, see {result.output_dir}/rejected.jsonl for "
            "the reasons; repair them and run the command again, or continue with the encoded ones",
            CHECK_FAILED,
        )
    return 0


if __name__ == "__main__":
    run(main)
