"""Differences between checkpoints that spoke the same sentences, and whether they are more than noise.

differences.jsonl    a `Difference` in each line: each pair of checkpoints by each measure

A paired bootstrap over sentences, each with all its seeds, gives the standard error; the interval is this
error times a quantile of Student's t. Drawing seeds too would count their noise twice, and quantiles of the
draws are too near for 20 sentences (docs/lab/evaluation.md). The confidence is that of the entire report, so
more comparisons have wider intervals (Bonferroni). It does not cover a second training run.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from indextts.speech.evaluation.report import Clip, by_sentence
from indextts.speech.evaluation.scores import Row

CONFIDENCE = 0.95
DRAWS = 1000
MIN_SENTENCES = 5  # fewer differ only by chance


@dataclass(frozen=True)
class Difference:
    """A measure of the checkpoint `second` minus that of `first`; `is_shown` if the interval excludes 0."""

    first: str
    second: str
    measure: str
    difference: float
    low: float
    high: float
    is_shown: bool

    def __str__(self) -> str:
        verdict = "differs" if self.is_shown else "no difference shown"
        middle, low, high = (f"{value:+.3f}" for value in (self.difference, self.low, self.high))
        return f"{self.second} against {self.first}, {self.measure}: {middle} ({low} to {high}), {verdict}"


def differences(clips_of: Mapping[str, Sequence[Clip]]) -> list[Difference]:
    """Return the differences between all pairs of checkpoints in what was measured of enough sentences.

    Args:
        clips_of: of each checkpoint, the same sentences with the same seeds in the same order.
    """
    found = [
        (one, two, name, sums[:, :, sums[1].all(axis=0)])
        for one, two in combinations(clips_of, 2)
        for name, sums in _sums(clips_of[one], clips_of[two]).items()
        if sums[1].all(axis=0).sum() >= MIN_SENTENCES
    ]
    return [
        Difference(one, two, name, middle, low, high, not low <= 0 <= high)
        for one, two, name, sums in found
        for middle, low, high in [interval_of(sums, 1 - (1 - CONFIDENCE) / len(found))]
    ]


def interval_of(sums: NDArray[np.float64], confidence: float) -> tuple[float, float, float]:
    """Return the difference of two rates and the limits of its interval.

    Args:
        sums: (2, 2, N), value and weight by checkpoint and sentence; a rate is their ratio.
    """
    num = sums.shape[2]
    drawn = np.random.default_rng(0).integers(num, size=(DRAWS, num))
    drawn[0] = np.arange(num)  # the measured difference
    values, weights = sums[:, :, drawn].sum(axis=3)  # (2, DRAWS)
    first, second = values / weights
    found = second - first
    error = found.std() * (num / (num - 1)) ** 0.5
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    # the quantile of Student's t from the normal one: Abramowitz and Stegun, 26.7.5
    t = z + (z**3 + z) / (4 * (num - 1)) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * (num - 1) ** 2)
    return float(found[0]), float(found[0] - t * error), float(found[0] + t * error)


def _sums(*checkpoints: Sequence[Clip]) -> dict[str, NDArray[np.float64]]:
    """Return value and weight by checkpoint and sentence, (2, 2, N), by the name of the measure."""
    names = _measures(checkpoints[0][0])
    table = np.array(
        [
            [np.array([[*_measures(clip).values()] for clip in own]) for own in by_sentence(clips)]
            for clips in checkpoints
        ]
    )  # (2, N, seeds, measures, value and weight)
    table = np.where(np.isnan(table).any(axis=(0, 4), keepdims=True), 0, table).sum(axis=2)
    return {name: table[:, :, number].transpose(2, 0, 1) for number, name in enumerate(names)}


def _measures(clip: Clip) -> dict[str, tuple[float, float]]:
    judged = clip.judgement
    has_failed = not clip.has_stopped or bool(clip.is_loop) or judged.is_silent
    return {
        **{f"CER, {name}": (each.bounded.edits, each.characters) for name, each in judged.errors.items()},
        "likeness": (math.nan if judged.likeness is None else judged.likeness, 1),
        "length": (judged.duration_s, clip.recorded_s),
        "failures": (has_failed, 1),
    }


def rising_length(found: Sequence[Difference], rows: Sequence[Row]) -> list[str]:
    """Return a warning if the last checkpoint speaks longer than the first and than the recordings."""
    in_order = sorted((row for row in rows if row.step is not None), key=lambda row: row.step or 0)
    ratios = [row.length_ratio for row in in_order]
    ends = {row.name for row in (*in_order[:1], *in_order[-1:])}
    shown = [each for each in found if each.is_shown and each.measure == "length"]
    if (
        not ratios
        or ratios[-1] <= max(1, ratios[0])
        or ends not in [{one.first, one.second} for one in shown]
    ):
        return []
    curve = ", ".join(f"{row.length_ratio:.2f} at step {row.step:,}" for row in in_order)
    return [
        f"the length rises with the steps: {curve}; listen for repeated words, prefer an earlier checkpoint"
    ]
