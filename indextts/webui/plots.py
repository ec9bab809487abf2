"""Small charts as SVG: histograms with thresholds, and curves. No Gradio here.

    figure.plot        name above; "24 rows" beside it
      svg              bars stretched to the width; values under the pointer as tooltips
      .plot-axis       lowest, middle and highest value in HTML, so that the text is never stretched
      figcaption       a remark

Colours are tokens of page_files/page.css; sizes are in page_files/plots.css. All texts are escaped.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from indextts.webui.markup import Level

WIDTH, HEIGHT = 240, 72  # of the viewBox; the style sheet stretches it


@dataclass(frozen=True)
class Threshold:
    """Line in a histogram; outside the edges it is omitted. A slider moves the line of its field."""

    value: float
    level: Level = "bad"
    field: str = ""


def histogram_svg(
    counts: Sequence[int],
    edges: Sequence[float],
    thresholds: Sequence[Threshold] = (),
    unit: str = "",
    name: str = "",
    remark: str = "",
) -> str:
    """Return a histogram; `edges` of the bins ascend, one more than `counts`; a bin may have the width 0."""
    if not counts or len(edges) != len(counts) + 1:
        return ""
    titles = [
        f"{_span(low, high)} {unit}: {count:,}".replace(" :", ":")
        for low, high, count in zip(edges, edges[1:], counts, strict=False)
    ]
    last = f"{short(edges[-1])} {unit}".strip()
    axis = [short(edges[0]), short((edges[0] + edges[-1]) / 2), last] if edges[0] < edges[-1] else [last]
    lines = "".join(_line(each, edges[0], edges[-1]) for each in thresholds)
    return _figure(_bars(counts, titles) + lines, name, axis, remark)


def curve_svg(
    points: Sequence[tuple[float, float]], name: str, axis: Sequence[str], limit: float | None = None
) -> str:
    """Return a line through points from 0 to 1, with texts below it and a vertical line at the x `limit`."""
    line = " ".join(f"{100 * x:.1f},{100 * (1 - y):.1f}" for x, y in points)
    x = 100 * (limit or 0)
    mark = "" if limit is None else f'<line x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="100"/>'
    ticks = "".join(f"<span>{escape(text)}</span>" for text in axis)
    return (
        f'<figure><b>{escape(name)}</b><svg viewBox="0 0 100 100" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(name)}">{mark}<polyline points="{line}"/></svg>'
        f'<div class="plot-axis">{ticks}</div></figure>'
    )


def short(value: float) -> str:
    """Return a number with at most three significant digits, without an exponent; a tiny one is 0."""
    if abs(value) < 5e-4:
        return "0"
    if abs(value) >= 999.5:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _span(low: float, high: float) -> str:
    return f"{short(low)} \u2013 {short(high)}" if low < high else short(low)


def _bars(values: Sequence[float], titles: Sequence[str]) -> str:
    top, step = max(values), WIDTH / len(values)
    bars = []
    for place, (value, title) in enumerate(zip(values, titles, strict=True)):
        if value <= 0:
            continue
        height = max(1.5, HEIGHT * value / top)  # a single clip among thousands is visible
        bars.append(
            f'<rect x="{step * place:.2f}" y="{HEIGHT - height:.2f}" width="{step:.2f}" '
            f'height="{height:.2f}"><title>{escape(title)}</title></rect>'
        )
    return f'<g class="bars">{"".join(bars)}</g>'


def _line(threshold: Threshold, low: float, high: float) -> str:
    if not low < high or not low <= threshold.value <= high:
        return ""
    x = WIDTH * (threshold.value - low) / (high - low)
    return (
        f'<line class="limit {threshold.level}" x1="{x:.2f}" x2="{x:.2f}" y1="0" '
        f'y2="{HEIGHT}" data-limit="{escape(threshold.field)}">'
        f"<title>{escape(short(threshold.value))}</title></line>"
    )


def _figure(marks: str, name: str, axis: Sequence[str], remark: str) -> str:
    ticks = "".join(f"<span>{escape(text)}</span>" for text in axis)
    heading = f"<b>{escape(name)}</b>" if name else ""
    caption = f"<figcaption>{escape(remark)}</figcaption>" if remark else ""
    return (
        f'<figure class="small-plot">{heading}<svg viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" '
        f'role="img" aria-label="{escape(name)}">{marks}</svg><div class="plot-axis">{ticks}</div>'
        f"{caption}</figure>"
    )
