"""Curve of tokens per word by tokenizer size, as SVG with the numbers in a table below it. No Gradio here."""

from html import escape

from indextts.text.size_summary import SizePoint, SizeSummary
from indextts.webui.language import t

WIDTH, HEIGHT = 100, 100  # of the drawing, which is stretched
HEADERS = ("tokenizer.size", "tokenizer.tokens_per_word", "tokenizer.rare_pieces")


def size_curve_html(summary: SizeSummary) -> str:
    """Return the curve and the table of a tokenizer."""
    names = "".join(f'<th class="number">{escape(t(name))}</th>' for name in HEADERS)
    rows = "".join(_row(point, summary.base_size) for point in summary.points)
    return (
        f"<h3>{escape(t('tokenizer.size_heading'))}</h3>"
        f'<p class="lead">{escape(t("tokenizer.size_lead", texts=f"{summary.num_texts:,}"))}</p>'
        f'<div class="size-curve">{_svg(summary)}'
        f'<table class="list"><tr>{names}</tr>{rows}</table></div>'
    )


def _row(point: SizePoint, base_size: int) -> str:
    appended = point.size - base_size
    share = 100 * point.num_rare / appended if appended else 0
    cells = (f"{point.size:,}", f"{point.tokens_per_word:.2f}", f"{point.num_rare:,} ({share:.0f} %)")
    shown = "".join(f'<td class="number">{cell}</td>' for cell in cells)
    return f"<tr>{shown}</tr>"


def _end(point: SizePoint) -> str:
    return escape(t("tokenizer.curve_end", size=f"{point.size:,}", rate=point.tokens_per_word))


def _svg(summary: SizeSummary) -> str:
    sizes = [point.size for point in summary.points]
    rates = [point.tokens_per_word for point in summary.points]
    width, height = max(1, sizes[-1] - sizes[0]), max(rates) * 1.1 or 1
    places = [
        (WIDTH * (size - sizes[0]) / width, HEIGHT * (1 - rate / height))
        for size, rate in zip(sizes, rates, strict=True)
    ]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    title = escape(t("tokenizer.tokens_per_word"))
    return (
        f"<figure><b>{title}</b>"
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" role="img" aria-label="{title}">'
        f'<polyline points="{line}"/></svg><div class="plot-axis"><span>{_end(summary.points[0])}</span>'
        f"<span>{_end(summary.points[-1])}</span></div></figure>"
    )
