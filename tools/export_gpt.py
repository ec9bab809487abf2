"""Write a model folder (gpt.pth, bpe.model, config.yaml) from a checkpoint."""

from collections.abc import Sequence

from indextts.commands import ExportModel, parse, run
from indextts.export import export


def main(argv: Sequence[str] | None = None) -> int:
    path = export(parse(ExportModel, argv))
    print(f"{path}: {path.stat().st_size / 1e6:.1f} MB, with its tokenizer and config beside it")
    return 0


if __name__ == "__main__":
    run(main)
