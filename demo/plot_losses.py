"""Draw the losses of a run from its metrics.jsonl: python demo/plot_losses.py RUN_DIR PICTURE."""

import sys
from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt

from indextts.runs.directory import read_metrics


def main(argv: Sequence[str]) -> int:
    run_dir, picture = map(Path, argv)
    lines = read_metrics(run_dir / "metrics.jsonl")
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
    for axis, loss, title in zip(
        axes, ("mel_loss", "new_text_loss"), ("semantic codes", "appended text pieces"), strict=True
    ):
        for kind, label in (("train", "training"), ("val", "validation")):
            of_kind = [line for line in lines if line["kind"] == kind]
            axis.plot([line["step"] for line in of_kind], [line[loss] for line in of_kind], label=label)
        axis.set(title=title, xlabel="step", ylabel="nats per token")
        axis.set_ylim(bottom=0)
        axis.legend()
    figure.savefig(picture, dpi=100)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
