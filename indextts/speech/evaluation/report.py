"""Scores of many clips: a row for each checkpoint, as a Markdown table and as curves.

The first row is for the recordings, which the curves show as a dashed line.
"""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from indextts.features.recognizers.first_transcripts import counts
from indextts.speech.evaluation.judge import Judgement
from indextts.speech.evaluation.scores import Row, markdown_table
from indextts.text.transcripts import error_rate, interval


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


def summarize(name: str, step: int | None, clips: Sequence[Clip]) -> Row:
    """Return the row for the clips, at least one."""
    judgements = [clip.judgement for clip in clips]
    names = list(judgements[0].errors)
    unbounded = {name: [judgement.errors[name] for judgement in judgements] for name in names}
    errors = {name: [each.bounded for each in of_name] for name, of_name in unbounded.items()}
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
    lines = ["# Evaluation", "", *(f"* {note}" for note in notes), "", *markdown_table(rows)]
    return "\n".join(lines) + "\n"


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
