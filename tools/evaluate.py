"""Score checkpoints on held-out sentences: intelligibility, speaker similarity, failures."""

from collections.abc import Sequence

from indextts.commands.speech import Evaluate
from indextts.commands.terminal import parse, run
from indextts.speech.evaluation.evaluate import evaluate


def main(argv: Sequence[str] | None = None) -> int:
    command = parse(Evaluate, argv)
    evaluate(command)
    print((command.output_dir / "report.md").read_text(encoding="utf-8"))
    return 0


if __name__ == "__main__":
    run(main)
