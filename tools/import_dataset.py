"""Copy recordings and their manifest into a project, each line and file checked."""

from collections.abc import Sequence

from indextts.commands import ImportDataset, parse, run
from indextts.data.importing import import_dataset


def main(argv: Sequence[str] | None = None) -> int:
    args = parse(ImportDataset, argv)
    print(import_dataset(args.manifest, args.output_dir))
    return 0


if __name__ == "__main__":
    run(main)
