"""Tables of new sources with their columns, to confirm or change before the import. No Gradio here.

    Column      First values     Used as
    file_name   wavs/1.wav       <select data-column="0">  Recording
    text_am     ሰላም ለዓለም።       <select data-column="1">  Text

A change reports all uses of its table (page_files/columns.js), and the table keeps the focus.
"""

from collections.abc import Sequence
from html import escape

from indextts.data.importing.table_preview import ColumnPreview, TablePreview
from indextts.webui.data.import_sources import TO_CHOOSE, UNDECIDED, ImportSource, advice, shown_files
from indextts.webui.language import t

MAX_SOURCES = 10  # whose tables are shown
MAX_COLUMNS = 20

USES = ("audio", "text", "spoken", "speaker", "id", "language", "recording")


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
        parts += [f"<h3>{escape(t('data.columns_of', source=source.path.name))}</h3>", *tables, _remark(more)]
    if len(asked) > MAX_SOURCES:
        parts.append(_remark(t("data.facts.more_sources", count=len(asked) - MAX_SOURCES)))
    return "".join(parts)


def _table(source: ImportSource, table: TablePreview, *, is_undecided: bool, is_first: bool) -> str:
    """Return a table under a line that sums it up; closed if known names of the header decide its columns."""
    is_source = table.files == (source.path.name,)  # the heading names it already
    name = "" if is_source else f"<b>{escape(shown_files(table))}</b>"
    if is_undecided:
        line = f'{name} <span class="open">{escape(advice(table))}</span>'
    elif table.is_other:
        line = f"{name} {escape(t('data.table_not_read'))}"
    else:
        line = f"{name} <span>{escape(_uses_line(table))}</span>"
    if not (source.has_choice and table.columns) or (table.is_other and not is_undecided):
        return f'<p class="column-table">{line}</p>'
    is_open = " open" if is_undecided or table.basis != "header" else ""
    return (
        f'<details class="column-table"{is_open}><summary>{line}</summary>'
        f"{_columns(source, table, is_first=is_first)}</details>"
    )


def _uses_line(table: TablePreview) -> str:
    uses = (
        f"{_label(column)} → {t(f'data.uses.{column.use}')}" for column in table.columns if column.use in USES
    )
    return ", ".join(uses)


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
        + _remark(t("data.more_columns", count=more) if more else "")
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


def _remark(text: str) -> str:
    return f'<p class="remark">{escape(text)}</p>' if text else ""
