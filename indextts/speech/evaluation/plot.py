"""Scores along the checkpoints, as a picture; what the recordings score is a dashed line."""

from collections.abc import Callable, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from indextts.speech.evaluation.report import Row


def draw(rows: Sequence[Row], path: Path) -> None:
    """Write the picture.

    Args:
        rows: the recordings first.
        path: of a PNG.

    Raises:
        OSError: it cannot be written.
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
    """Draw what each checkpoint has, where it was measured."""
    values = [value(row) for row in rows[1:]]
    if all(one is None for one in values):
        return
    numbers = [float("nan") if one is None else one for one in values]
    [line] = axes.plot(range(len(numbers)), numbers, marker="o", label=label)
    recorded = value(rows[0])
    if recorded is not None:
        axes.axhline(recorded, color=line.get_color(), linestyle="--", linewidth=1)


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _label(row: Row) -> str:
    return row.name if row.step is None else str(row.step)
