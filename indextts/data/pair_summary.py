"""Statistics of a pairs file: printed by the tool and plotted by the page.

train_pairs.summary.json beside train_pairs.jsonl is a PairSummary, which saves reading a million lines.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

import numpy as np

from indextts.data.pairs import PairsResult
from indextts.data.report import histogram
from indextts.system.amounts import counted
from indextts.system.files import write_json
from indextts.system.messages import Message
from indextts.system.yaml_files import read_section
from indextts.text.ethiopic import letters_of
from indextts.text.languages import count_syllables

NUM_BINS = 20
MAX_SPEAKERS_PRINTED = 20
SHORT_SYLLABLES = (
    15  # texts up to here had twice the character errors of long ones in a published fine-tuning
)

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
    unlike_percent: float | None = None  # of two random clips, with different voices; None if unknown
    num_without: int = 0  # utterances that are no targets, because no other clip has a similar voice


@dataclass(frozen=True)
class PairSummary:
    """Statistics of a pairs file."""

    num_pairs: int
    num_targets: int
    speakers: list[SpeakerPairs]  # in descending order of their number of pairs
    prompt_s: Histogram  # duration of each pair's prompt
    target_s: Histogram  # duration of each target, counted once
    prompt_uses: Histogram  # number of pairs that a clip is the prompt of
    similarity: Histogram | None = None  # of the voices of two random clips of a speaker; None if unknown
    min_similarity: float | None = None  # of a pair; `unlike_percent` of the random clips are below it
    unlike_percent: float | None = None
    num_short: int | None = None  # targets below SHORT_SYLLABLES; None in a summary of an earlier version

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
            f"  uses of a prompt: {self.prompt_uses}",
        ]
        if self.num_short is not None:
            lines.append(
                f"  texts under {SHORT_SYLLABLES} syllables: {self.num_short / self.num_targets:.1%}"
            )
        if self.similarity is not None:
            lines.append(f"  voice similarity: {self.similarity}; of a pair at least {self.min_similarity:g}")
        for speaker in self.speakers[:MAX_SPEAKERS_PRINTED]:
            share, percent = speaker.num_pairs / self.num_pairs, speaker.unlike_percent
            voices = f", {percent or 0:.0f} % below the limit, {speaker.num_without:,} without a prompt"
            lines.append(
                f"  {speaker.speaker}: {counted(speaker.num_pairs, 'pair')} ({share:.1%}), "
                f"{speaker.target_hours:.2f} hours{'' if percent is None else voices}"
            )
        if len(self.speakers) > MAX_SPEAKERS_PRINTED:
            more = len(self.speakers) - MAX_SPEAKERS_PRINTED
            lines.append(f"  and {counted(more, 'more speaker')}")
        return "\n".join(lines)


def summarise(result: PairsResult) -> PairSummary:
    """Return the statistics of one or more pairs."""
    pairs, limit = result.pairs, result.min_similarity or 0.0
    targets = {(pair.features, pair.target_id): pair for pair in pairs}
    num_of = Counter(dict.fromkeys(result.without_similar, 0))  # a speaker may have no pair left
    num_of.update(pair.speaker for pair in pairs)
    seconds_of: Counter[str] = Counter()
    for target in targets.values():
        seconds_of[target.speaker] += target.target_duration_s  # type: ignore[assignment]  # floats work too
    similarities = [each for found in result.similarities.values() for each in found]
    return PairSummary(
        num_pairs=len(pairs),
        num_targets=len(targets),
        speakers=[
            SpeakerPairs(
                speaker,
                num,
                seconds_of[speaker] / 3600,
                _percent_below(limit, result.similarities.get(speaker, [])),
                result.without_similar[speaker],
            )
            for speaker, num in sorted(num_of.items(), key=lambda item: (-item[1], item[0]))
        ],
        prompt_s=Histogram.of([pair.prompt_duration_s for pair in pairs]),
        target_s=Histogram.of([target.target_duration_s for target in targets.values()]),
        prompt_uses=Histogram.of(list(Counter((p.features, p.prompt_id) for p in pairs).values())),
        similarity=Histogram.of(similarities) if similarities else None,
        min_similarity=result.min_similarity,
        unlike_percent=_percent_below(limit, similarities),
        num_short=sum(
            count_syllables(letters_of(target.target_text)) < SHORT_SYLLABLES for target in targets.values()
        ),
    )


def _percent_below(limit: float, values: Sequence[float]) -> float | None:
    return 100 * sum(value < limit for value in values) / len(values) if values else None


def summary_path(pairs: Path) -> Path:
    return pairs.with_suffix(".summary.json")


def write_summary(pairs: Path, summary: PairSummary) -> None:
    """Write the summary next to the pairs file `pairs`."""
    write_json(summary_path(pairs), asdict(summary))


def read_summary(pairs: Path) -> PairSummary:
    """Return the summary next to the pairs file `pairs`; a UserError if it is missing or corrupt."""
    return read_section(PairSummary, summary_path(pairs), "build the pairs again")
