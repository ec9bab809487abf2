"""What is in a pairs file, counted: printed by the tool, drawn as a picture, shown by the page.

It stands beside the pairs, so that nobody needs to read a million lines for a few numbers:

    train_pairs.jsonl            the pairs
    train_pairs.summary.json     a PairSummary
    train_pairs.png              the same, drawn

The distribution of a pairs file as a picture.
"""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

import numpy as np

from indextts.data.manifest import Pair
from indextts.errors import UserError
from indextts.system.files import write_json
from indextts.system.messages import Message

NUM_BINS = 20
MAX_SPEAKERS_PRINTED = 20
NUM_BARS = 50  # speakers in a picture

HEADLINE = "pairs.headline"


@dataclass(frozen=True)
class Histogram:
    """Values in bins of equal width; `edges` has one number more than `counts`."""

    minimum: float
    median: float
    maximum: float
    edges: list[float]
    counts: list[int]

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        counts, edges = np.histogram(values, bins=NUM_BINS)
        return cls(
            float(min(values)), float(np.median(values)), float(max(values)), edges.tolist(), counts.tolist()
        )

    @property
    def centres(self) -> list[float]:
        return [(low + high) / 2 for low, high in zip(self.edges, self.edges[1:], strict=False)]

    def __str__(self) -> str:
        return f"min {self.minimum:.4g}, median {self.median:.4g}, max {self.maximum:.4g}"


@dataclass(frozen=True)
class SpeakerPairs:
    """Pairs of one speaker, and hours of their different targets."""

    speaker: str
    num_pairs: int
    target_hours: float


@dataclass(frozen=True)
class PairSummary:
    """The distribution of a pairs file.

    Args:
        speakers: the one with the most pairs first.
        prompt_s: of each pair's prompt; target_s and target_codes: of each target once.
        prompt_uses: how often a clip is a prompt.
    """

    num_pairs: int
    num_targets: int
    speakers: list[SpeakerPairs]
    prompt_s: Histogram
    target_s: Histogram
    target_codes: Histogram
    prompt_uses: Histogram

    @property
    def numbers(self) -> dict[str, float]:
        """The values of HEADLINE."""
        return {
            "pairs": self.num_pairs,
            "targets": self.num_targets,
            "speakers": len(self.speakers),
            "hours": sum(speaker.target_hours for speaker in self.speakers),
        }

    def __str__(self) -> str:
        lines = [
            str(Message(HEADLINE, self.numbers)),
            f"  prompts in s: {self.prompt_s}",
            f"  targets in s: {self.target_s}",
            f"  codes of a target: {self.target_codes}",
            f"  pairs of a clip as prompt: {self.prompt_uses}",
        ]
        for speaker in self.speakers[:MAX_SPEAKERS_PRINTED]:
            share = speaker.num_pairs / self.num_pairs
            lines.append(
                f"  {speaker.speaker}: {speaker.num_pairs} pairs ({share:.1%}), "
                f"{speaker.target_hours:.2f} hours"
            )
        if len(self.speakers) > MAX_SPEAKERS_PRINTED:
            lines.append(f"  and {len(self.speakers) - MAX_SPEAKERS_PRINTED} more speakers")
        return "\n".join(lines)


def summarise(pairs: Sequence[Pair]) -> PairSummary:
    """Return the distribution of at least one pair."""
    targets = {(pair.features, pair.target_id): pair for pair in pairs}
    num_of = Counter(pair.speaker for pair in pairs)
    seconds_of: Counter[str] = Counter()
    for target in targets.values():
        seconds_of[target.speaker] += target.target_duration_s  # type: ignore[assignment]  # holds any number
    return PairSummary(
        num_pairs=len(pairs),
        num_targets=len(targets),
        speakers=[
            SpeakerPairs(speaker, num, seconds_of[speaker] / 3600)
            for speaker, num in sorted(num_of.items(), key=lambda item: (-item[1], item[0]))
        ],
        prompt_s=Histogram.of([pair.prompt_duration_s for pair in pairs]),
        target_s=Histogram.of([target.target_duration_s for target in targets.values()]),
        target_codes=Histogram.of([target.target_num_codes for target in targets.values()]),
        prompt_uses=Histogram.of(list(Counter((p.features, p.prompt_id) for p in pairs).values())),
    )


def summary_path(pairs: Path) -> Path:
    return pairs.with_suffix(".summary.json")


def write_summary(pairs: Path, summary: PairSummary) -> None:
    """Write the summary beside the pairs file `pairs`."""
    write_json(summary_path(pairs), asdict(summary))


def read_summary(pairs: Path) -> PairSummary:
    """Return the summary beside the pairs file `pairs`.

    Raises:
        UserError: there is none, or it is damaged.
    """
    path = summary_path(pairs)
    try:
        content = json.loads(path.read_bytes())
        names = ("prompt_s", "target_s", "target_codes", "prompt_uses")
        content |= {name: Histogram(**content[name]) for name in names}
        content["speakers"] = [SpeakerPairs(**speaker) for speaker in content["speakers"]]
        return PairSummary(**content)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}), build the pairs again") from None
    except (ValueError, TypeError, KeyError) as error:
        raise UserError(f"{path}: is damaged ({error}), build the pairs again") from None


def draw(summary: PairSummary, picture: Path) -> None:
    """Write a PNG with pairs and hours of each speaker and the lengths of prompts and targets."""
    from matplotlib.figure import Figure  # half a second to import, and the page only reads summaries

    figure = Figure(figsize=(12, 6.5), layout="constrained")
    axes = figure.subplots(2, 3)
    shown = summary.speakers[:NUM_BARS]
    places = range(1, len(shown) + 1)  # names may be of any length and script: the text output has them
    for axis, values, title in (
        (axes[0][0], [speaker.num_pairs for speaker in shown], "pairs of a speaker"),
        (axes[0][1], [speaker.target_hours for speaker in shown], "hours of targets of a speaker"),
    ):
        axis.bar(places, values)
        axis.set(title=title, xlabel="speakers, most pairs first")
    histograms: tuple[tuple[Histogram, str, str], ...] = (
        (summary.prompt_uses, "how often a clip is a prompt", "times"),
        (summary.prompt_s, "length of prompts", "s"),
        (summary.target_s, "length of targets", "s"),
        (summary.target_codes, "codes of targets", "codes"),
    )
    for axis, (histogram, title, unit) in zip((axes[0][2], *axes[1]), histograms, strict=True):
        axis.stairs(histogram.counts, histogram.edges, fill=True)
        axis.set(title=title, xlabel=unit)
    figure.suptitle(f"{summary.num_pairs} pairs of {len(summary.speakers)} speakers")
    figure.savefig(picture, dpi=100)
