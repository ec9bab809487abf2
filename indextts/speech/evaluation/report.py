"""Scores of many clips: a row for each checkpoint, as a Markdown table and as curves.

The first row is for the recordings, which the curves show as a dashed line. Groups of sentences are scored
apart, because an average hides what they lose:

    short        at most SHORT_SYLLABLES syllables; measured fine-tuned models make most errors in them
    numbers      a digit, or a number word of the Amharic normaliser
    questions    a question mark of any script that the normaliser reads

A text can be in several groups or in none. A text does not show its names: the field `group` of the manifest
adds a group.
"""

import math
import re
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from indextts.commands.normalizer_options import DEFAULT_OPTIONS, NormalizerOptions
from indextts.data.quality.measures import measure_text
from indextts.features.recognizers.first_transcripts import counts
from indextts.speech.evaluation.judge import Judgement
from indextts.speech.evaluation.scores import SHARES, Row, markdown_table
from indextts.text.languages import AMHARIC
from indextts.text.normalize import normalize
from indextts.text.number_words import has_number_word
from indextts.text.transcripts import error_rate, interval, total

ALL = ""  # the group of every sentence
SHORT_SYLLABLES = 15
_DIGIT = re.compile("[\\d\u1369-\u137c]")  # the range is the Ethiopic numerals


def groups_of(text: str, options: NormalizerOptions = DEFAULT_OPTIONS) -> list[str]:
    """Return the groups of a text of a manifest."""
    spoken = normalize(text, options)
    is_member = {
        "short": measure_text(text, options).num_syllables <= SHORT_SYLLABLES,
        "numbers": _DIGIT.search(text) or (options.language == AMHARIC and has_number_word(spoken)),
        "questions": "?" in spoken,
    }
    return [name for name, holds in is_member.items() if holds]


@dataclass(frozen=True)
class Clip:
    """A sentence as recorded or synthesized.

    Args:
        id: of the utterance in the manifest.
        num_syllables: of the normalised text.
        recorded_s: duration of the recording of the same text.
        prompt_id: the utterance that provides the voice.
        has_stopped: whether the model generated a stop token before the limit; None for a recording.
        is_loop: whether the codes contain a loop; None for a recording.
        file: the audio file, relative to the report.
        seed: of the sampling; None for a recording.
        paces: syllables per second of each segment.
        groups: that the sentence belongs to, ALL among them unless its prompt was added.
    """

    id: str
    text: str
    num_syllables: float
    recorded_s: float
    prompt_id: str
    judgement: Judgement
    has_stopped: bool | None = None
    is_loop: bool | None = None
    file: str | None = None
    seed: int | None = None
    paces: Sequence[float] = ()
    groups: Sequence[str] = (ALL,)

    def record(self, name: str, step: int | None) -> dict[str, object]:
        """Return the clip's line of clips.jsonl, for the checkpoint `name`."""
        flat = asdict(self)
        return {"checkpoint": name, "step": step, **{**flat, **flat.pop("judgement")}}


def pace_range(recorded: Sequence[Clip]) -> tuple[float, float]:
    """Return the range of 95 % of the paces of recordings, in syllables per second."""
    low, high = np.quantile([pace for clip in recorded for pace in clip.paces], [0.025, 0.975])
    return float(low), float(high)


def by_sentence(clips: Sequence[Clip]) -> list[list[Clip]]:
    """Return the clips of each sentence and prompt, of all seeds: these are not independent."""
    of_sentence: dict[tuple[str, str], list[Clip]] = {}
    for clip in clips:
        of_sentence.setdefault((clip.id, clip.prompt_id), []).append(clip)
    return list(of_sentence.values())


def summarize(
    name: str,
    step: int | None,
    clips: Sequence[Clip],
    group: str = ALL,
    usual_pace: tuple[float, float] | None = None,
) -> Row:
    """Return the row for the clips, at least one.

    Args:
        usual_pace: of the recordings, from `pace_range`.
    """
    judgements = [clip.judgement for clip in clips]
    names = list(judgements[0].errors)
    unbounded = {name: [judgement.errors[name] for judgement in judgements] for name in names}
    spoken = by_sentence(clips)
    errors = {
        id: [total([clip.judgement.errors[id].bounded for clip in own]) for own in spoken] for id in names
    }
    words = [judgement.words for judgement in judgements if judgement.words is not None]
    low, high = usual_pace or (0.0, math.inf)
    failed = {name: counts([judgement.heard[name] for judgement in judgements]) for name in names}
    alike = [judgement.likeness for judgement in judgements if judgement.likeness is not None]
    rates = [c.num_syllables / c.judgement.duration_s for c in clips if c.judgement.duration_s > 0]
    return Row(
        name=name,
        step=step,
        num_clips=len(clips),
        cer={name: error_rate(errors[name]) for name in names},
        cer_interval={name: interval(errors[name]) for name in names},
        likeness=statistics.fmean(alike) if alike else None,
        syllables_per_s=statistics.median(rates) if rates else 0.0,
        length_ratio=statistics.median(clip.judgement.duration_s / clip.recorded_s for clip in clips),
        no_stop=_share([None if clip.has_stopped is None else not clip.has_stopped for clip in clips]),
        loops=_share([clip.is_loop for clip in clips]),
        silent=_share([judgement.is_silent for judgement in judgements]) or 0.0,
        cer_unbounded={name: error_rate(unbounded[name]) for name in names},
        asr_loops={name: num_loops for name, (num_loops, _) in failed.items()},
        asr_empty={name: num_empty for name, (_, num_empty) in failed.items()},
        group=group,
        first_lost=_share([each.first_lost for each in words]),
        last_lost=_share([each.last_lost for each in words]),
        leaks=_share([each.leaked > 0 for each in words]),
        pace_outside=_share([not low <= pace <= high for clip in clips for pace in clip.paces]),
    )


def _share(values: Sequence[bool | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def markdown_report(rows: Sequence[Row], notes: Sequence[str]) -> str:
    """Return the report as Markdown.

    Args:
        rows: the recordings first.
    """
    lines = ["# Evaluation", "", *(f"* {note}" for note in notes), "", *markdown_table(rows)]
    return "\n".join(lines) + "\n"


def draw_scores(rows: Sequence[Row], path: Path) -> None:
    """Draw the scores over all clips along the checkpoints.

    Args:
        rows: the recordings first.

    Raises:
        OSError: the file cannot be written.
    """
    rows = [row for row in rows if row.group == ALL]
    failures = ("no_stop", "loops", "silent")
    curves: dict[str, dict[str, list[float | None]]] = {
        "character error rate": {name: [row.cer[name] for row in rows] for name in rows[0].cer},
        "likeness of the voice, cosine": {"to the prompt": [row.likeness for row in rows]},
        "length, ratio": {"to the recording": [row.length_ratio for row in rows]},
        "failures, share of the clips": {SHARES[id]: [getattr(row, id) for row in rows] for id in failures},
    }
    figure = Figure(figsize=(10, 6), layout="constrained")
    for axes, (title, named) in zip(figure.subplots(2, 2).flat, curves.items(), strict=True):
        axes.set(title=title)
        axes.set_xticks(range(len(rows) - 1), [_label(row) for row in rows[1:]])
        for label, values in named.items():
            recorded, *numbers = np.array(values, np.float64)  # None becomes NaN
            if not np.isnan(numbers).all():
                [line] = axes.plot(numbers, marker="o", label=label)
                axes.axhline(recorded, color=line.get_color(), linestyle="--", linewidth=1)
                axes.legend()
    figure.savefig(path, dpi=100, format="png")


def _label(row: Row) -> str:
    return row.name if row.step is None else str(row.step)
