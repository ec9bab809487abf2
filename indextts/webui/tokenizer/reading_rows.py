"""Rows of the table of readings, with the texts of the project that they change. No Gradio here.

    written   spoken   match   language   texts   three of them

A click on a row selects its key (`ReadingRow.key`).
"""

import html
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from indextts.commands.normalizer_options import NormalizerOptions, Reading
from indextts.data.review import overlay_files, read_reviewed_texts
from indextts.errors import UserError
from indextts.projects.project import Project, ProjectSettings
from indextts.projects.readings import read_readings
from indextts.text.characters import clean_characters
from indextts.text.normalize import explain, normalize
from indextts.text.readings import ReadingRow, readings_for, used_readings
from indextts.webui.language import t
from indextts.webui.markup import empty_html, sent
from indextts.webui.view_versions import files_version

NUM_EXAMPLES = 3
MAX_ROWS_SHOWN = 300
EXAMPLE_CHARS = 30  # on each side of the written form
MATCHES = ("word", "prefix", "number")
HEADERS = (
    ("readings.headers.written", ""),
    ("readings.headers.spoken", ""),
    ("readings.headers.match", "wide-only"),
    ("readings.headers.language", "wide-only"),
    ("readings.headers.texts", "number"),
    ("readings.headers.examples", ""),
)


@dataclass(frozen=True)
class Usage:
    """The texts that a reading changes, and some of them."""

    num_texts: int
    examples: tuple[str, ...]


def usage_of(project: Project, readings: Sequence[Reading]) -> dict[Reading, Usage]:
    """Return the usage of each reading in the texts of a project; unused ones are absent."""
    files = (project.manifest, *overlay_files(project.manifest))
    if not project.manifest.is_file() or not readings:
        return {}
    return _usage(project.manifest, files_version(*files), tuple(readings))


@lru_cache(maxsize=4)  # a second for 20,000 texts
def _usage(manifest: Path, _version: str, readings: tuple[Reading, ...]) -> dict[Reading, Usage]:
    counts: dict[Reading, int] = {}
    examples: dict[Reading, list[str]] = {}
    for text in read_reviewed_texts(manifest):
        for reading in dict.fromkeys(used_readings(clean_characters(text), readings)):
            counts[reading] = counts.get(reading, 0) + 1
            if len(shown := examples.setdefault(reading, [])) < NUM_EXAMPLES and text not in shown:
                shown.append(text)
    return {reading: Usage(count, tuple(examples[reading])) for reading, count in counts.items()}


def table_html(project: Project, settings: ProjectSettings, chosen: str = "") -> str:
    """Return the table, or the sentence for an empty or invalid one.

    Args:
        chosen: key of the row in the editor.
    """
    try:
        rows = read_readings(project)
    except UserError as error:
        return f'<p class="empty bad">{html.escape(str(error))}</p>'
    if not rows:
        return empty_html(t("readings.none"))
    usage = usage_of(project, readings_for(rows, settings.language))
    head = "".join(f'<th class="{css}">{html.escape(t(name))}</th>' for name, css in HEADERS)
    shown = [
        _row_html(row, usage.get(row.reading), is_chosen=row.key == chosen) for row in rows[:MAX_ROWS_SHOWN]
    ]
    more = ""
    if len(rows) > MAX_ROWS_SHOWN:
        more = f'<p class="remark">{html.escape(t("readings.more", count=len(rows) - MAX_ROWS_SHOWN))}</p>'
    return (
        f'<table class="list readings"><thead><tr>{head}</tr></thead><tbody>{"".join(shown)}</tbody></table>'
        f"{more}"
    )


def _row_html(row: ReadingRow, usage: Usage | None, *, is_chosen: bool) -> str:
    examples = (
        "".join(f"<span>{_example(text, row.written)}</span>" for text in usage.examples) if usage else ""
    )
    match, count = html.escape(t(f"readings.match.{row.match}")), usage.num_texts if usage else 0
    return (
        f'<tr {sent(row.key)} tabindex="0" class="{"chosen" if is_chosen else ""}">'
        f"<td><b>{html.escape(row.written)}</b></td><td>{html.escape(row.spoken)}</td>"
        f'<td class="wide-only">{match}</td><td class="wide-only">{html.escape(row.language)}</td>'
        f'<td class="number">{count:,}</td><td class="examples">{examples}</td></tr>'
    )


def _example(text: str, written: str) -> str:
    """Return the part of a text around a written form, with the form in bold where it is found."""
    text = " ".join(text.split())
    place = text.find(written)
    if place < 0:  # of a pattern with a number
        return html.escape(text[: 2 * EXAMPLE_CHARS]) + ("…" if len(text) > 2 * EXAMPLE_CHARS else "")
    start, end = max(0, place - EXAMPLE_CHARS), place + len(written) + EXAMPLE_CHARS
    before, after = text[start:place], text[place + len(written) : end]
    return (
        f"{'…' if start else ''}{html.escape(before)}<b>{html.escape(written)}</b>{html.escape(after)}"
        f"{'…' if end < len(text) else ''}"
    )


def try_html(settings: ProjectSettings, rows: Sequence[ReadingRow], text: str) -> str:
    """Return the spoken form of a text and the changes that lead to it."""
    readings = readings_for(rows, settings.language)
    options = NormalizerOptions(**settings.normalizer, language=settings.language, readings=readings)
    changes = "".join(
        f"<tr><td>{html.escape(_rule_name(change.rule))}</td><td>{html.escape(change.before)}</td>"
        f"<td>{html.escape(change.after)}</td></tr>"
        for change in explain(text, options)
        if change.before.strip() or change.after.strip()
    )
    spoken = (
        f"<p><b>{html.escape(t('tokenizer.spoken_form'))}</b>: {html.escape(normalize(text, options))}</p>"
    )
    return f'{spoken}<table class="list changes"><tbody>{changes}</tbody></table>' if changes else spoken


def _rule_name(rule: str) -> str:
    return t("readings.heading") if rule == "readings" else rule
