"""Write a model folder (gpt.pth, bpe.model, config.yaml, model card) from a checkpoint."""

from collections.abc import Sequence

from indextts.commands.speech import ExportModel
from indextts.commands.terminal import parse, run
from indextts.speech.export import export
from indextts.system.amounts import shown_size


def main(argv: Sequence[str] | None = None) -> int:
    weights = export(parse(ExportModel, argv))
    for path in sorted(weights.parent.iterdir()):
        print(f"{path}: {shown_size(path.stat().st_size)}")
    return 0


if __name__ == "__main__":
    run(main)
