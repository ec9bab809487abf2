"""Sources of an import with their tables, and the columns that the user chose for them. No Gradio here.

The page keeps a choice as the text of --columns, until the import stores it with the source:

    {"<key of a source>": "audio=file_name,text=text_am"}

In a table, a change reports all uses of its columns (page_files/columns.js), and the table keeps the focus:

    Column      First values     Used as
    file_name   wavs/1.wav       <select data-column="0">  Recording
"""

import hashlib
import json
import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from html import escape
from itertools import chain
from pathlib import Path
from typing import Any, cast

from indextts.commands.base import Command
from indextts.commands.data import ImportDataset, ImportLayout
from indextts.data.importing.headers import CHOOSABLE
from indextts.data.importing.items import source_name
from indextts.data.importing.speakers import answered, read_answers
from indextts.data.importing.table_preview import ColumnPreview, SourcePreview, TablePreview, preview_source
from indextts.data.importing.texts import kinds_to_keep
from indextts.errors import UserError
from indextts.projects.project import Project
from indextts.text.transcript_marks import BRACKETS, KINDS
from indextts.webui.language import t, t_or
from indextts.webui.markup import remark_html, table_html
from indextts.webui.running.outlook import Notice
from indextts.webui.view_versions import files_version

FOLDER_AGE_S = 60  # after which the tables in a folder are read again
UNDECIDED = "?"  # use of a column that is one of several candidates
TO_CHOOSE = "choose-column"  # id of the first column to choose

_NO_HUB = {"hub": "", "hub_subset": "", "hub_split": [], "hub_revision": ""}
_USE = re.compile(r"(\d{1,3})=(\w{1,20}|\?)", re.ASCII)


@dataclass(frozen=True)
class ImportSource:
    """Source of an import with its tables."""

    path: Path
    key: str  # names this version of the source in the choices
    preview: SourcePreview
    is_asked: bool  # the page shows the tables, because the source is new, chosen or cannot be imported
    is_manifest: bool = False  # the fields of --manifest have fixed names

    @property
    def has_choice(self) -> bool:
        """The user can choose the columns."""
        return self.preview.has_choice and not self.is_manifest


def import_sources(project: Project, commands: Sequence[Command], chosen: str = "") -> list[ImportSource]:
    """Return the readable sources of the commands; `chosen` names the one that the answers are for."""
    known = read_answers(project.dataset)
    found = []
    for command in commands:
        if not isinstance(command, ImportDataset):
            continue
        for path in sources_of(command):
            name = source_name(path, project.dataset)
            answers = answered(command, known.get(name, {}))
            layout = "jsonl" if path == command.manifest else answers["layout"]
            version = files_version(path) + (f" {time.time() // FOLDER_AGE_S}" if path.is_dir() else "")
            roots = tuple(command.audio_root)
            chosen_fields = answers["columns"], answers["keep"]
            preview = _preview(path, version, layout, command.language, *chosen_fields, roots)
            if preview is not None:
                is_asked = name not in known or chosen == path.name or bool(preview.undecided)
                found.append(
                    ImportSource(path, source_key(path), preview, is_asked, path == command.manifest)
                )
    return found


def sources_of(command: ImportDataset) -> list[Path]:
    return [*([command.manifest] if command.manifest is not None else []), *command.source]


def source_key(path: Path) -> str:
    """Return the name of a version of a source in the choices."""
    return hashlib.sha256(f"{path} {files_version(path)}".encode()).hexdigest()[:16]


def read_choices(text: str) -> dict[str, str]:
    """Return the columns by the key of their source, without invalid ones; the text is from a browser."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    items = found.items() if isinstance(found, dict) else ()
    return {key: columns for key, columns in items if isinstance(columns, str) and columns.isprintable()}


def with_choice(
    choices: Mapping[str, str], sources: Sequence[ImportSource], row: Sequence[Any]
) -> dict[str, str]:
    """Return the choices with those of a table: key of the source, file, and uses such as "2=text"."""
    kept = {source.key: choices[source.key] for source in sources if source.key in choices}
    key, file, *uses = map(str, row) if len(row) > 1 else ("", "")
    own = (source.preview.tables for source in sources if source.key == key and source.has_choice)
    table = next((table for table in chain.from_iterable(own) if file in table.files), None)
    matches = [match for use in uses if (match := _USE.fullmatch(use))]
    if table is None or any(match[2] == UNDECIDED for match in matches):
        return {other: columns for other, columns in kept.items() if other != key}
    chosen = [(int(match[1]), match[2]) for match in matches]
    chosen = [(number, use) for number, use in chosen if number < len(table.columns) and use in CHOOSABLE]
    return kept | {key: table.choice(chosen) or ","}  # "," is invalid, and "" would leave it to the import


def with_chosen_columns(command: ImportDataset, choices: Mapping[str, str]) -> list[ImportDataset]:
    """Return the command with the chosen columns, with a command of its own for each source with a choice."""
    chosen = {path: choices[key] for path in command.source if (key := source_key(path)) in choices}
    others = [path for path in command.source if path not in chosen]
    own = [
        command.model_copy(
            update={"manifest": None, "url": [], **_NO_HUB, "source": [path], "columns": columns}
        )
        for path, columns in chosen.items()
    ]
    has_more = bool(others or command.manifest is not None or command.url or command.hub or not own)
    return [*([command.model_copy(update={"source": others})] if has_more else []), *own]


def column_blockers(sources: Sequence[ImportSource]) -> list[Notice]:
    """Return what to choose before the tables can be imported."""

    def place(source: ImportSource, table: TablePreview) -> str:
        name, files = source.path.name, shown_files(table)
        return files if table.files[0] == name else f"{name}/{files}"

    return [
        Notice(
            f"{place(source, table)}: {advice(table)}",
            f"#data/{TO_CHOOSE}" if source.has_choice and table.columns else "",
            t("data.choose_columns"),
        )
        for source in sources
        for table in source.preview.undecided
    ]


def advice(table: TablePreview) -> str:
    return table.problem or ", ".join(
        filter(None, (t_or(f"data.choose_column.{name}", "") for name in table.missing))
    )


def shown_files(table: TablePreview) -> str:
    """Return the name of the first file of a table, and how many others have the same columns."""
    first, *others = table.files
    return t("data.and_more_files", name=first, count=len(others)) if others else first


@lru_cache(maxsize=64)
def _preview(
    path: Path, _version: str, layout: str, language: str, columns: str, keep: str, allowed: tuple[Path, ...]
) -> SourcePreview | None:
    """Return the tables of a source; None if it cannot be read, which the import reports."""
    try:
        return preview_source(
            path,
            cast(ImportLayout, layout),
            language=language,
            columns=columns,
            allowed=allowed,
            keep=kinds_to_keep(keep),
        )
    except (UserError, OSError):
        return None


MAX_SOURCES = 10  # whose tables are shown
MAX_COLUMNS = 20
MAX_EXAMPLES = 4  # of a fact
# Facts of the first rows in the order of the page
FACTS = ("unusable", "found", "spans", "speakers", "no_speaker", *KINDS, BRACKETS)

USES = (
    *("audio", "text", "spoken", "speaker", "id", "language", "recording"),
    *("start", "end", "duration", "split", "license"),
)


def column_tables_html(sources: Sequence[ImportSource]) -> str:
    """Return the tables of the sources that the page asks about; "" without any."""
    asked = [source for source in sources if source.is_asked and source.preview.tables]
    undecided = [table for source in asked for table in source.preview.undecided]
    to_choose = next((table for table in undecided if table.columns), None)
    parts = []
    for source in asked[:MAX_SOURCES]:
        tables = (
            _table(source, table, is_undecided=table in undecided, is_first=table is to_choose)
            for table in source.preview.tables
        )
        more = t("data.more_tables", count=source.preview.num_more) if source.preview.num_more else ""
        parts += [
            f"<h3>{escape(t('data.columns_of', source=source.path.name))}</h3>",
            *tables,
            remark_html(more),
        ]
    if len(asked) > MAX_SOURCES:
        parts.append(remark_html(t("data.facts.more_sources", count=len(asked) - MAX_SOURCES)))
    return "".join(parts)


def first_rows_html(sources: Sequence[ImportSource]) -> str:
    """Return what the import does with the first rows of the tables that the page asks about."""
    asked = [source for source in sources if source.is_asked][:MAX_SOURCES]
    tables = [(source, table) for source in asked for table in source.preview.tables if table.facts]
    return "".join(_first_rows(source, table) for source, table in tables)


def _first_rows(source: ImportSource, table: TablePreview) -> str:
    name = shown_files(table) if len(source.preview.tables) > 1 else source.path.name
    title = t("data.rows_of", count=table.facts["rows", ""], source=name)
    by_fact: dict[str, Counter[str]] = {}
    for (fact, value), count in table.facts.items():
        fact = "no_speaker" if fact == "speakers" and not value else fact
        by_fact.setdefault(fact, Counter())[value] += count
    rows = []
    for fact in (fact for fact in FACTS if fact in by_fact):
        values = by_fact[fact]
        count = len(values) if fact == "speakers" else values.total()
        label = t(f"data.rows.{fact}")
        label = t("data.rows.removed", kind=label) if fact in KINDS else label
        rows.append((escape(label), f"{count:,}", _examples(fact, values)))
    heads = [(t("data.row_fact"), ""), (t("data.row_count"), "number"), (t("data.row_examples"), "")]
    marked = ('class="open"' if fact == "unusable" else "" for fact in FACTS if fact in by_fact)
    return f"<h3>{escape(title)}</h3>{table_html(heads, rows, 'first-rows', marked)}"


def _examples(fact: str, values: Counter[str]) -> str:
    shown = [
        (t_or(f"data.ways.{value}", value) if fact == "found" else value, count)
        for value, count in values.most_common(MAX_EXAMPLES)
        if value
    ]
    marks = (
        f'<span dir="auto">{escape(value)}</span>{f" ×{count:,}" if count > 1 else ""}'
        for value, count in shown
    )
    separator = "<br>" if fact == "unusable" else ", "
    return separator.join(marks) + (f"{separator}…" if len(values) > MAX_EXAMPLES else "")


def _table(source: ImportSource, table: TablePreview, *, is_undecided: bool, is_first: bool) -> str:
    """Return a table under a line that sums it up; closed if its columns are decided."""
    is_source = table.files == (source.path.name,)  # the heading names it already
    name = "" if is_source else f"<b>{escape(shown_files(table))}</b>"
    if is_undecided:
        line = f'{name} <span class="open">{escape(advice(table))}</span>'
    elif table.is_other:
        line = f"{name} {escape(t('data.table_not_read'))}"
    else:
        used = [column for column in table.columns if column.use in USES]
        uses = ", ".join(f"{_label(column)} → {t(f'data.uses.{column.use}')}" for column in used)
        line = f"{name} <span>{escape(uses)}</span>"
    if not (source.has_choice and table.columns) or (table.is_other and not is_undecided):
        return f'<p class="column-table">{line}</p>'
    is_open = " open" if is_undecided else ""
    return (
        f'<details class="column-table"{is_open}><summary>{line}</summary>'
        f"{_columns(source, table, is_first=is_first)}</details>"
    )


def _columns(source: ImportSource, table: TablePreview, *, is_first: bool) -> str:
    """Return a table with a dropdown for each column, those with a use before others if there are many."""
    by_use = sorted(table.columns, key=lambda column: not (column.use or column.candidate_for))
    shown = sorted(by_use[:MAX_COLUMNS], key=lambda column: column.number)
    candidates = [column for column in shown if column.candidate_for]
    target = (candidates or shown)[0] if is_first else None
    heads = (t("data.column"), t("data.first_values"), t("data.used_as"))
    head = "".join(f"<th>{escape(text)}</th>" for text in heads)
    rows = "".join(_row(column, is_target=column is target) for column in shown)
    more = len(table.columns) - len(shown)
    return (
        f'<table class="list" data-source="{escape(source.key)}" data-file="{escape(table.files[0])}">'
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
        + remark_html(t("data.more_columns", count=more) if more else "")
    )


def _row(column: ColumnPreview, *, is_target: bool) -> str:
    samples = "".join(f'<span dir="auto">{escape(sample)}</span>' for sample in column.samples)
    anchor = f' id="{TO_CHOOSE}"' if is_target else ""
    return f"<tr><td>{escape(_label(column))}</td><td>{samples}</td><td{anchor}>{_dropdown(column)}</td></tr>"


def _dropdown(column: ColumnPreview) -> str:
    value = UNDECIDED if column.candidate_for else column.use
    options = {"": t("data.uses.none")} | {use: t(f"data.uses.{use}") for use in USES}
    choices = f'<option value="{UNDECIDED}" disabled hidden>{escape(t("data.choose_use"))}</option>'
    choices += "".join(f'<option value="{use}">{escape(text)}</option>' for use, text in options.items())
    choices = choices.replace(f'value="{value}"', f'value="{value}" selected')
    label = escape(t("data.use_of", column=_label(column)))
    return (
        f'<select data-column="{column.number}" data-use="{value}" data-candidate="{column.candidate_for}" '
        f'class="{"open" if column.candidate_for else ""}" aria-label="{label}">{choices}</select>'
    )


def _label(column: ColumnPreview) -> str:
    header = column.header if len(column.header) <= 40 else f"{column.header[:39]}…"
    return header or t("data.column_number", number=column.number)
