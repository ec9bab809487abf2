"""Import recordings with their texts into a project; list the recordings that cannot be used."""

from collections.abc import Sequence

from indextts.commands.data import ImportDataset
from indextts.commands.terminal import parse, run
from indextts.data.importing.importer import import_dataset


def main(argv: Sequence[str] | None = None) -> int:
    args = parse(ImportDataset, argv)
    print(import_dataset(args))
    return 0


if __name__ == "__main__":
    run(main)
