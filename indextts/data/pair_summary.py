"""Statistics of a pairs file: printed by the tool and plotted by the page.

train_pairs.summary.json beside train_pairs.jsonl is a PairSummary, which saves reading a million lines.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

import numpy as np

from indextts.data.manifest import Pair
from indextts.data.report import histogram
from indextts.system.amounts import counted
from indextts.system.files import write_json
from indextts.system.messages import Message
from indextts.system.yaml_files import read_section

NUM_BINS = 20
MAX_SPEAKERS_PRINTED = 20

HEADLINE = "pairs.headline"


@dataclass(frozen=True)
class Histogram:
    """Histogram with bins of equal width, one of width 0 if all values are equal.

    `edges` has one element more than `counts`.
    """

    minimum: float
    median: float
    maximum: float
    edges: list[float]
    counts: list[int]

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        counts, edges = histogram(values, NUM_BINS)
        return cls(float(min(values)), float(np.median(values)), float(max(values)), edges, counts)

    def __str__(self) -> str:
        return f"min {self.minimum:.4g}, median {self.median:.4g}, max {self.maximum:.4g}"


@dataclass(frozen=True)
class SpeakerPairs:
    """Number of pairs of a speaker, and total duration of their distinct targets."""

    speaker: str
    num_pairs: int
    target_hours: float


@dataclass(frozen=True)
class PairSummary:
    """Statistics of a pairs file.

    Args:
        speakers: in descending order of their number of pairs.
        prompt_s: duration of each pair's prompt.
        target_s, target_codes: duration and number of codes of each target, counted once.
        prompt_uses: number of pairs that a clip is the prompt of.
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
        """Return the values of HEADLINE."""
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
            f"  uses of a prompt: {self.prompt_uses}",
        ]
        for speaker in self.speakers[:MAX_SPEAKERS_PRINTED]:
            share = speaker.num_pairs / self.num_pairs
            lines.append(
                f"  {speaker.speaker}: {counted(speaker.num_pairs, 'pair')} ({share:.1%}), "
                f"{speaker.target_hours:.2f} hours"
            )
        if len(self.speakers) > MAX_SPEAKERS_PRINTED:
            more = len(self.speakers) - MAX_SPEAKERS_PRINTED
            lines.append(f"  and {counted(more, 'more speaker')}")
        return "\n".join(lines)


def summarise(pairs: Sequence[Pair]) -> PairSummary:
    """Return the statistics of one or more pairs."""
    targets = {(pair.features, pair.target_id): pair for pair in pairs}
    num_of = Counter(pair.speaker for pair in pairs)
    seconds_of: Counter[str] = Counter()
    for target in targets.values():
        seconds_of[target.speaker] += target.target_duration_s  # type: ignore[assignment]  # floats work too
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
    """Write the summary next to the pairs file `pairs`."""
    write_json(summary_path(pairs), asdict(summary))


def read_summary(pairs: Path) -> PairSummary:
    """Return the summary next to the pairs file `pairs`.

    Raises:
        UserError: the file is missing or corrupt.
    """
    return read_section(PairSummary, summary_path(pairs), "build the pairs again")
