"""Plot the distance between generated and recorded codes over checkpoints: plot_codes.py RUN_DIR PICTURE.

Each checkpoint generates codes for the texts of the run's validation pairs in the voices of their prompts.

    length      number of codes relative to the recording of the text
    stopped     share of the texts for which the model generated a stop token before the limit
    distance    total variation distance between the histograms of generated and recorded codes, 0 to 1; the
                dashed line is the distance of the training recordings

The program also prints the numbers as a Markdown table. To prepare a run, train with a small --save-interval
and a large --keep-checkpoints.
"""

import statistics
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from numpy.typing import NDArray

from indextts.commands.sampling_options import Sampling
from indextts.commands.terminal import run
from indextts.data.feature_store import FeatureStore
from indextts.data.manifest import Pair, read_pairs
from indextts.data.networks import NUM_SPECIAL_CODES
from indextts.errors import UserError
from indextts.models.gpt.generate import Prompt, generate
from indextts.models.gpt.search import Generated
from indextts.runs.directory import checkpoints, read_metrics
from indextts.speech.evaluation.judge import has_loop
from indextts.speech.synthesis.trained_model import TrainedModel, load_trained

BATCH = 10
SEEDS = (1, 2, 3)  # several samples per text reduce the variance


@dataclass(frozen=True)
class Row:
    """The scores of a checkpoint; shares are from 0 to 1."""

    step: int
    length: float
    stopped: float
    looping: float
    distance: float


def main(argv: Sequence[str]) -> int:
    run_dir, picture = map(Path, argv)
    saved = checkpoints(run_dir)
    if not saved:
        raise UserError(f"{run_dir}: holds no checkpoints; use the output folder of a training run")
    meta = saved[0][1]
    found = sorted({other.step: path for path, other in reversed(saved) if other.part == meta.part}.items())
    train, val = (read_pairs(Path(file.path)) for file in (meta.manifests[0], meta.manifests[-1]))
    store = FeatureStore.open(val[0].features)
    num_codes = meta.gpt_config["number_mel_codes"] - NUM_SPECIAL_CODES
    recorded = histogram(_recordings(store, val), num_codes)
    floor = histogram_distance(recorded, histogram(_recordings(store, train), num_codes))
    print(f"{len(val)} pairs, {len(SEEDS)} times each; distance of the training's recordings: {floor:.3f}")
    print("| step | validation mel loss | length | stopped | loops | distance |\n|---|---|---|---|---|---|")
    losses = {
        line["step"]: line["mel_loss"]
        for line in read_metrics(run_dir / "metrics.jsonl")
        if line.get("kind") == "val" and line.get("part") == meta.part
    }
    rows = []
    for step, path in found:
        row = measure(load_trained(path, torch.device("cpu")), step, store, val, recorded)
        rows.append(row)
        loss = losses.get(step, float("nan"))
        print(
            f"| {step} | {loss:.3f} | {row.length:.2f} | {row.stopped:.0%} | {row.looping:.0%} "
            f"| {row.distance:.3f} |",
            flush=True,
        )
    draw(rows, floor, picture)
    return 0


def measure(
    trained: TrainedModel,
    step: int,
    store: FeatureStore,
    pairs: Sequence[Pair],
    recorded: NDArray[np.float64],
) -> Row:
    """Compare the codes that a checkpoint generates for `pairs` with the histogram `recorded` (C,)."""
    prompts = [
        Prompt(
            torch.from_numpy(store.condition(pair.prompt_key)),
            torch.from_numpy(store.emo_vec(pair.prompt_key)),
            torch.tensor(trained.tokenizer.encode(pair.target_text)),
            seed * len(pairs) + number,
        )
        for seed in SEEDS
        for number, pair in enumerate(pairs)
    ]
    sampling = Sampling.of_backend(store.info.backend, {})
    said: list[Generated] = []
    for start in range(0, len(prompts), BATCH):
        said += generate(trained.gpt, prompts[start : start + BATCH], sampling)
    codes = [one.codes[one.codes < len(recorded)].numpy() for one in said]
    targets = [store.num_codes(pair.target_key) for pair in pairs] * len(SEEDS)
    lengths = [len(one) / target for one, target in zip(codes, targets, strict=True)]
    rate = trained.gpt.config.of_base.codes_per_second
    return Row(
        step=step,
        length=statistics.median(lengths),
        stopped=statistics.fmean(one.has_stopped for one in said),
        looping=statistics.fmean(has_loop(each, rate) for each in codes),
        distance=histogram_distance(recorded, histogram(codes, len(recorded))),
    )


def draw(rows: Sequence[Row], floor: float, picture: Path) -> None:
    figure, (length, stopped, distance) = plt.subplots(1, 3, figsize=(11, 3.2), layout="constrained")
    steps = [row.step for row in rows]
    length.plot(steps, [row.length for row in rows], marker="o")
    length.axhline(1, linestyle="--", color="gray")
    length.set(title="length, of the recording's", xlabel="step", ylim=(0, None))
    stopped.plot(steps, [100 * row.stopped for row in rows], marker="o", label="stopped by itself")
    stopped.plot(steps, [100 * row.looping for row in rows], marker="o", label="loops")
    stopped.set(title="texts, %", xlabel="step", ylim=(-3, 103))
    stopped.legend()
    distance.plot(steps, [row.distance for row in rows], marker="o")
    distance.axhline(floor, linestyle="--", color="gray")
    distance.set(title="codes: distance to the recordings", xlabel="step", ylim=(0, 1))
    figure.savefig(picture, dpi=100)


def _recordings(store: FeatureStore, pairs: Sequence[Pair]) -> list[NDArray[np.int64]]:
    """Return the codes of each target once."""
    return [store.codes(key) for key in dict.fromkeys(pair.target_key for pair in pairs)]


def histogram(clips: Iterable[NDArray[np.int64]], num_codes: int) -> NDArray[np.float64]:
    """Return the frequency of each code over all clips: (C,); zeros if there are no codes."""
    counts = np.zeros(num_codes)
    for codes in clips:
        counts += np.bincount(codes, minlength=num_codes)
    shares: NDArray[np.float64] = counts / max(counts.sum(), 1.0)
    return shares


def histogram_distance(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    """Return the total variation distance of two histograms (C,): 0 if equal, 1 without overlap."""
    return float(np.abs(a - b).sum() / 2)


if __name__ == "__main__":
    run(lambda: main(sys.argv[1:]))
