"""Scores of many clips: a row for each checkpoint, as a Markdown table and as curves.

The first row is for the recordings. The recognizers' error rate on real speech is the practical minimum, so
the table also shows each rate relative to it, and the curves show the recordings as a dashed line.
"""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from indextts.speech.evaluation.judge import Judgement
from indextts.text.transcripts import error_rate, interval

RECORDINGS = "recordings"


@dataclass(frozen=True)
class Clip:
    """A sentence as recorded or synthesized.

    Args:
        id: of the utterance in the manifest.
        text: the reference text.
        num_syllables: of the normalised text.
        recorded_s: duration of the recording of the same text.
        prompt_id: the utterance that provides the voice.
        judgement: the scores.
        has_stopped: whether the model generated a stop token before the limit; None for a recording.
        is_loop: whether the codes contain a loop; None for a recording.
        file: the audio file, relative to the report.
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

    def record(self, name: str, step: int | None) -> dict[str, object]:
        """Return the clip's line of clips.jsonl, for the checkpoint `name`."""
        flat = asdict(self)
        return {"checkpoint": name, "step": step, **{**flat, **flat.pop("judgement")}}


@dataclass(frozen=True)
class Row:
    """The scores of a checkpoint, or of the recordings, over all clips; None for values not measured.

    Args:
        cer: character error rate by recognizer, from 0.
        cer_interval: the 95 % interval of each.
        likeness: mean cosine similarity to the prompt's voice.
        syllables_per_s: median, silence included.
        length_ratio: median of the durations relative to the recordings.
        no_stop, loops, silent: fractions of the clips.
    """

    name: str
    step: int | None
    num_clips: int
    cer: dict[str, float]
    cer_interval: dict[str, tuple[float, float]]
    likeness: float | None
    syllables_per_s: float
    length_ratio: float
    no_stop: float | None
    loops: float | None
    silent: float


def summarize(name: str, step: int | None, clips: Sequence[Clip]) -> Row:
    """Return the row for the clips, at least one."""
    judgements = [clip.judgement for clip in clips]
    names = list(judgements[0].errors)
    errors = {name: [judgement.errors[name] for judgement in judgements] for name in names}
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
    )


def _share(values: Sequence[bool | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def markdown_report(rows: Sequence[Row], notes: Sequence[str]) -> str:
    """Return the report as Markdown.

    Args:
        rows: the recordings first.
        notes: the settings of the measurement.
    """
    recognizers = list(rows[0].cer)
    titles = [
        "",
        "step",
        "clips",
        *(f"CER, {name} (95 %)" for name in recognizers),
        *(f"times the recordings', {name}" for name in recognizers),
        "likeness",
        "syllables/s",
        "length",
        "no stop",
        "loops",
        "silent",
    ]
    lines = ["# Evaluation", "", *(f"* {note}" for note in notes), ""]
    lines += [_line(titles), "|---" * len(titles) + "|"]
    lines += [_line(_cells(row, rows[0], recognizers)) for row in rows]
    return "\n".join(lines) + "\n"


def _cells(row: Row, recordings: Row, recognizers: Sequence[str]) -> list[str]:
    rates = []
    for name in recognizers:
        low, high = row.cer_interval[name]
        rates.append(f"{100 * row.cer[name]:.1f} % ({100 * low:.1f} to {100 * high:.1f})")
    times = [
        f"{row.cer[name] / recordings.cer[name]:.2f}" if recordings.cer[name] else "-" for name in recognizers
    ]
    return [
        row.name,
        _shown(row.step, "d"),
        str(row.num_clips),
        *rates,
        *times,
        _shown(row.likeness, ".3f"),
        f"{row.syllables_per_s:.1f}",
        f"{row.length_ratio:.2f}",
        _shown(row.no_stop, ".0%"),
        _shown(row.loops, ".0%"),
        f"{row.silent:.0%}",
    ]


def _shown(value: Any, format: str) -> str:
    return "-" if value is None else f"{value:{format}}"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def draw_scores(rows: Sequence[Row], path: Path) -> None:
    """Draw the scores along the checkpoints.

    Args:
        rows: the recordings first.
        path: the PNG file to write.

    Raises:
        OSError: the file cannot be written.
    """
    recognizers = list(rows[0].cer)
    figure = Figure(figsize=(10, 6), layout="constrained")
    errors, alike, length, failures = figure.subplots(2, 2).flat
    for name in recognizers:
        _curve(errors, rows, name, lambda row, name=name: 100 * row.cer[name])  # type: ignore[misc]
    errors.set(title="character error rate", ylabel="%")
    _curve(alike, rows, "to the prompt", lambda row: row.likeness)
    alike.set(title="likeness of the voice", ylabel="cosine")
    _curve(length, rows, "to the recording", lambda row: row.length_ratio)
    length.set(title="length", ylabel="ratio")
    for name in ("no_stop", "loops", "silent"):
        _curve(failures, rows, name.replace("_", " "), lambda row, name=name: _percent(getattr(row, name)))  # type: ignore[misc]
    failures.set(title="failures", ylabel="% of the clips")
    for axes in (errors, alike, length, failures):
        axes.set_xticks(range(len(rows) - 1), [_label(row) for row in rows[1:]])
        if axes.lines:
            axes.legend()
    figure.savefig(path, dpi=100, format="png")


def _curve(axes: Axes, rows: Sequence[Row], label: str, value: Callable[[Row], float | None]) -> None:
    """Draw a score of each checkpoint; nothing if no checkpoint has it."""
    values = [value(row) for row in rows[1:]]
    if all(score is None for score in values):
        return
    numbers = [float("nan") if score is None else score for score in values]
    [line] = axes.plot(range(len(numbers)), numbers, marker="o", label=label)
    recorded = value(rows[0])
    if recorded is not None:
        axes.axhline(recorded, color=line.get_color(), linestyle="--", linewidth=1)


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _label(row: Row) -> str:
    return row.name if row.step is None else str(row.step)
