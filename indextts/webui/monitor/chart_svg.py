"""A chart as SVG with HTML labels, from series of points. No Gradio here.

    figure.chart
      figcaption    title, unit, a key for each series; while zoomed, a button that shows all steps
      div.plot      svg (grid, lines, points), labels, marks, and what page_files/charts.js fills
        data-points {"span": [first, last], "step": "step", "series": [{name, css, steps, values}]}

The svg has SIZE units in both directions and is stretched to the plot; its strokes keep their width.
"""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from indextts.webui.language import t

SIZE = 1_000
MARGIN = 0.05  # of the values, above and below the lines
STEP_MARGIN = 0.008  # of the steps, before and after the lines
POINTED = 40  # a series with fewer points shows each as a dot
OUTLIERS = (2, 98)  # percentiles of unsmoothed values that stay in view
ROWS, COLUMNS = 5, 6  # about this many lines across, and steps below
FLAG_SHARE = 0.14  # of the width that the text of a mark takes

NO_VALUES = "monitor.no_values"

Points = NDArray[np.float64]  # (N, 2): step and value, in the order of steps
Kind = Literal["raw", "training", "validation"]


@dataclass(frozen=True)
class Series:
    """A line of a chart.

    Args:
        points: within the span, and one beyond each end.
        run: from 1; chooses the colour.
        kind: "raw" for the unsmoothed values of a smoothed line.
    """

    name: str
    points: Points
    run: int = 1
    kind: Kind = "training"


@dataclass(frozen=True)
class Mark:
    """A step to mark, with a dot at `value` if there is one."""

    step: float
    text: str
    kind: Literal["resume", "best"]
    value: float | None = None


@dataclass(frozen=True)
class Chart:
    """A chart.

    Args:
        span: first and last step to draw.
        is_zoomed: the span is a part of the run.
    """

    title: str
    unit: str
    series: Sequence[Series]
    span: tuple[float, float]
    marks: Sequence[Mark] = ()
    is_log: bool = False
    is_zoomed: bool = False


@dataclass(frozen=True)
class Scale:
    """Conversion of steps or values to units of the svg, from 0 at `low` to SIZE at `high`."""

    low: float
    high: float
    is_log: bool = False

    def at(self, values: Points | float) -> Points:
        """Return the places of values; on a logarithmic scale they are above 0."""
        low, high, numbers = self.low, self.high, np.asarray(values, dtype=np.float64)
        if self.is_log:
            low, high, numbers = math.log10(low), math.log10(high), np.log10(numbers)
        return (numbers - low) / (high - low) * SIZE

    def ticks(self, wanted: int) -> list[float]:
        """Return about this many round numbers within the scale."""
        if self.is_log:
            powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            for factors in ((1, 2, 5), (1,)):
                found = [factor * 10.0**power for power in powers for factor in factors]
                found = [value for value in found if self.low <= value <= self.high]
                if 2 <= len(found) <= 2 * wanted:
                    return found
        rough = (self.high - self.low) / wanted
        unit = 10.0 ** math.floor(math.log10(rough))
        unit = next(unit * factor for factor in (1, 2, 2.5, 5, 10) if unit * factor >= rough * 0.999)
        first, last = math.ceil(self.low / unit), math.floor(self.high / unit)
        return [number * unit for number in range(first, last + 1)]


def chart_html(chart: Chart) -> str:
    """Return the chart."""
    drawn = [each for each in chart.series if len(each.points)]
    is_alone = all(each.kind != "validation" for each in drawn)
    head = f"<b>{escape(chart.title)}</b> <span>{escape(chart.unit)}</span>{_keys(chart.series)}"
    if chart.is_zoomed:
        head += f'<button type="button" class="quiet" data-show-all>{escape(t("monitor.show_all"))}</button>'
    body = _plot(chart, drawn) if drawn else f'<p class="empty">{escape(t(NO_VALUES))}</p>'
    css = "chart alone" if is_alone else "chart"
    return f'<figure class="{css}"><figcaption>{head}</figcaption>{body}</figure>'


def number(value: float) -> str:
    """Return a value for reading: "0", "5e-5", "0.25", "1.642", "1,480"."""
    if value == 0:
        return "0"
    if abs(value) < 1e-3:
        mantissa, exponent = f"{value:.2e}".split("e")
        return f"{float(mantissa):g}e{int(exponent)}"
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.4g}"


def _keys(series: Iterable[Series]) -> str:
    """Return the legend."""
    names = {each.name: f"run-{each.run} {each.kind}" for each in series if each.kind != "raw"}
    keys = (f'<span class="key {css}">{escape(name)}</span>' for name, css in names.items())
    return f'<span class="keys">{"".join(keys)}</span>'


def _plot(chart: Chart, drawn: Sequence[Series]) -> str:
    x, y = _step_scale(chart.span), _value_scale(chart, drawn)
    marks = [mark for mark in chart.marks if chart.span[0] <= mark.step <= chart.span[1]]
    grid = "".join(f"M0 {_down(y, value)}h{SIZE}" for value in y.ticks(ROWS))
    lines = [f'<path class="grid" d="{grid}"/>']
    for kind in ("resume", "best"):
        at = "".join(f"M{round(float(x.at(mark.step)))} 0v{SIZE}" for mark in marks if mark.kind == kind)
        lines += [f'<path class="{kind}" d="{at}"/>'] if at else []
    lines += [line for each in drawn for line in _lines(each, x, y)]
    svg = f'<svg viewBox="0 0 {SIZE} {SIZE}" preserveAspectRatio="none" aria-hidden="true">'
    about = escape(f"{chart.title}. {t('monitor.read_by_keys')}")
    return (
        f'<div class="plot" tabindex="0" role="img" aria-label="{about}" '
        f"data-points='{_data(x, drawn)}'>"
        f"{svg}{''.join(lines)}</svg>{_labels(x, y)}{_flags(marks, x, y)}"
        '<div class="cross"></div><div class="drag"></div><output></output></div>'
    )


def _labels(x: Scale, y: Scale) -> str:
    """Return the numbers of both axes; those of steps are whole."""
    rows = (f'<span class="y" style="top:{_down(y, v) / 10:g}%">{number(v)}</span>' for v in y.ticks(ROWS))
    steps = [step for step in x.ticks(COLUMNS) if step == int(step) and step >= 0]
    columns = (
        f'<span class="x" style="left:{float(x.at(step)) / 10:.2f}%">{number(step)}</span>' for step in steps
    )
    return "".join((*rows, *columns))


def _step_scale(span: tuple[float, float]) -> Scale:
    """Return the scale of the steps, with room for the dots at both ends."""
    margin = STEP_MARGIN * (span[1] - span[0])
    return Scale(span[0] - margin, span[1] + margin)


def _value_scale(chart: Chart, drawn: Sequence[Series]) -> Scale:
    """Return the scale of all lines within the span; outliers of unsmoothed values may lie outside."""
    first, last = chart.span
    found: list[float] = []
    for each in drawn:
        steps, values = each.points.T
        inside = values[(steps >= first) & (steps <= last)]
        inside = inside if len(inside) else values
        ends = np.percentile(inside, OUTLIERS) if each.kind == "raw" else (inside.min(), inside.max())
        found += [float(end) for end in ends]
    low, high = min(found), max(found)
    if chart.is_log:
        margin = max((high / low) ** MARGIN, 1.05)
        return Scale(low / margin, high * margin, is_log=True)
    margin = MARGIN * (high - low) or 0.1 * abs(high) or 1.0
    return Scale(low - margin, high + margin)


def _lines(series: Series, x: Scale, y: Scale) -> list[str]:
    """Return a series as a path, with dots if it has few points."""
    across, up = x.at(series.points[:, 0]).round(), y.at(series.points[:, 1]).round()
    places = np.stack([across, SIZE - up], axis=1).astype(int)  # (N, 2)
    moves = np.diff(places, axis=0)
    css = f"run-{series.run} {series.kind}"
    line = "".join(f"{right} {down} " for right, down in moves.tolist()).strip()
    paths = [f'<path class="{css}" d="M{places[0, 0]} {places[0, 1]}l{line}"/>'] if line else []
    if len(places) < POINTED:
        dots = "".join(f"M{right} {down}h0" for right, down in places.tolist())
        paths.append(f'<path class="{css} dots" d="{dots}"/>')
    return paths


def _flags(marks: Sequence[Mark], x: Scale, y: Scale) -> str:
    """Return the texts of the marks that have room, the best step first, and its dot."""
    shown, taken = [], list[float]()
    for mark in sorted(marks, key=lambda mark: (mark.kind != "best", mark.step)):
        share = float(x.at(mark.step)) / SIZE
        if mark.value is not None and (mark.value > 0 or not y.is_log):
            top = _down(y, mark.value) / 10
            shown.append(f'<i class="best-dot" style="left:{100 * share:.2f}%;top:{top:g}%"></i>')
        if any(abs(share - other) < FLAG_SHARE for other in taken):
            continue
        taken.append(share)
        css = f"flag {mark.kind}" + (" before" if share > 1 - FLAG_SHARE else "")
        shown.append(f'<span class="{css}" style="left:{100 * share:.2f}%">{escape(mark.text)}</span>')
    return "".join(shown)


def _data(x: Scale, drawn: Sequence[Series]) -> str:
    """Return the values that the pointer reads, for an attribute in single quotes."""
    series = [
        {
            "name": each.name,
            "css": f"run-{each.run} {each.kind}",
            "steps": each.points[:, 0].astype(int).tolist(),
            "values": [float(f"{value:.5g}") for value in each.points[:, 1].tolist()],
        }
        for each in drawn
        if each.kind != "raw"
    ]
    found = {"span": [round(x.low, 3), round(x.high, 3)], "step": t("monitor.headers.step"), "series": series}
    text = json.dumps(found, ensure_ascii=False, separators=(",", ":"))
    return text.replace("&", "&amp;").replace("<", "&lt;").replace("'", "&#39;")


def _down(y: Scale, value: float) -> int:
    """Return the distance of a value from the upper edge."""
    return SIZE - round(float(y.at(value)))
