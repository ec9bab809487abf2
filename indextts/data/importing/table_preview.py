"""Preview the tables of a source: the columns that an import would read, without importing anything.

    source -> SourcePreview(layout, tables) -> TablePreview(files, columns) -> ColumnPreview(header, use)

The preview detects the layout and decides the columns with the functions of the import, but reads only the
first lines of the tables, also of those in a zip archive. Uploads are untrusted, so the number of tables,
columns and characters is limited.
"""

import tempfile
from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from itertools import groupby, islice
from pathlib import Path

from indextts.commands.data import ImportLayout
from indextts.data.importing.archive import UNPACKED_PREFIX, is_archive, unpack_heads
from indextts.data.importing.columns import NoColumnError
from indextts.data.importing.items import KALDI_NAMES, Item, Rejection, Row
from indextts.data.importing.layouts import WITH_COLUMNS, find_tables
from indextts.data.importing.reading import SourceReader
from indextts.data.importing.references import Recordings
from indextts.data.importing.tables import open_table
from indextts.data.importing.texts import without_marks
from indextts.errors import UserError

MAX_TABLES = 20  # of a source
MAX_ROWS = 200  # of a table, for the facts
MAX_COLUMNS = 200  # of a table; one with more is left to the import
NUM_SAMPLES = 2  # values of a column
_SAMPLE_CHARS = 80

Facts = Counter[tuple[str, str]]
_HEADED_SUFFIXES = (".csv", ".tsv", ".list", ".xlsx", ".jsonl", ".txt")  # before the metadata of clips


@dataclass(frozen=True)
class ColumnPreview:
    """Column of a table."""

    number: int
    header: str  # "" if the table has none
    samples: tuple[str, ...]  # its first values, shortened
    use: str  # a name as in `Columns`; "" if the column is not read
    candidate_for: str = ""  # the name for which this column and others are equally likely; "" if decided


@dataclass(frozen=True)
class TablePreview:
    """Columns of a table, or of several with the same columns."""

    files: tuple[str, ...]  # relative to the source
    columns: tuple[ColumnPreview, ...] = ()  # all of them; empty if `problem` prevents reading them
    missing: tuple[str, ...] = ()  # names that no column has, and without which the table cannot be imported
    is_other: bool = False  # perhaps of other facts, which an import skips if it has a better table
    problem: str = ""  # why an import would refuse the table; "" if it would not
    facts: Facts = field(default_factory=Counter)  # what an import does with the first rows, see `_facts`

    @property
    def is_decided(self) -> bool:
        return not (self.missing or self.problem)

    def choice(self, uses: Sequence[tuple[int, str]]) -> str:
        """Return numbers of columns and their names as --columns, by the header where possible."""
        return ",".join(f"{use}={self._label(number)}" for number, use in uses)

    def _label(self, number: int) -> str:
        headers = [column.header.lower() for column in self.columns]
        header = headers[number] if number < len(headers) else ""
        is_name = header.isprintable() and "," not in header and not header.isdecimal()
        is_usable = header and is_name and headers.index(header) == number
        return self.columns[number].header if is_usable else str(number)


@dataclass(frozen=True)
class SourcePreview:
    """Layout of a source, its tables, and the number of those that are not shown."""

    layout: ImportLayout
    tables: tuple[TablePreview, ...]
    num_more: int = 0

    @property
    def has_choice(self) -> bool:
        """The layout has columns that --columns names."""
        return self.layout in WITH_COLUMNS

    @property
    def undecided(self) -> list[TablePreview]:
        """The tables for which an import would stop."""
        open_tables = [table for table in self.tables if not table.is_decided]
        is_skipped = self.layout == "table" and any(not table.is_other for table in self.tables)
        return [table for table in open_tables if not (is_skipped and table.is_other)]


def preview_source(
    source: Path,
    layout: ImportLayout,
    *,
    language: str,
    columns: str,
    allowed: Sequence[Path],
    keep: Collection[str] = (),
) -> SourcePreview:
    """Return the tables of a folder, file or zip archive, and how an import would read them.

    Parquet files and other archives have no preview.

    Args:
        language: of texts whose data name none.
        columns: as in --columns; "" to decide.
        allowed: folders that recordings may be in, as for SourceReader.
        keep: kinds of marks that stay in the texts.

    Raises:
        UserError: the archive is corrupt or refused.
    """
    with ExitStack() as stack:
        root = source.resolve()
        folder = root if root.is_dir() else root.parent
        recordings = Recordings(folder, [place.resolve() for place in allowed])
        if is_archive(source):
            temporary = tempfile.TemporaryDirectory(prefix=UNPACKED_PREFIX)
            root = Path(stack.enter_context(temporary))
            recordings = Recordings(root, known=frozenset(unpack_heads(source, root, _rank)))
        reader = SourceReader(recordings, language, columns)

        def preview(detected: ImportLayout, paths: Sequence[Path]) -> SourcePreview:
            found = (_preview_table(path, reader, keep) for path in paths[:MAX_TABLES])
            tables = _merged([table for table in found if table is not None])
            return SourcePreview(detected, tables, max(0, len(paths) - MAX_TABLES))

        previews = (preview(*found) for found in find_tables(root, layout))
        first = next(previews)
        if not first.tables or any(not table.is_other for table in first.tables):
            return first
        # tables of other facts, such as a list of speakers above the splits
        return next((other for other in previews if any(not table.is_other for table in other.tables)), first)


def _rank(name: Path) -> int | None:
    """Return the rank of a member that the detection of layouts reads, None for others."""
    lower = name.name.lower()
    if lower.endswith((".trans.txt", "transcripts.txt", ".json")) or name.name in KALDI_NAMES:
        return 1
    if name.suffix.lower() == ".txt" and name.stem != "metadata":
        return 2  # perhaps a list of recordings
    return 0 if name.suffix.lower() in _HEADED_SUFFIXES else None


def _preview_table(path: Path, reader: SourceReader, keep: Collection[str]) -> TablePreview | None:
    """Return the preview of a table; None if it has a single column or too many."""
    table = open_table(path, reader.language)
    rows = table.head
    if not rows or len(rows[-1]) > MAX_COLUMNS:
        return None
    name = str(path.relative_to(reader.recordings.root))
    try:
        columns = reader.columns(path, rows, has_header=table.has_header)
    except UserError as error:
        if not reader.is_chosen:
            return TablePreview((name,), problem=str(error))
        # the choice is invalid, so the columns without it
        decided = _preview_table(path, replace(reader, chosen=""), keep)
        is_other = isinstance(error, NoColumnError)
        return decided and replace(decided, is_other=is_other, problem=str(error), facts=Counter())
    body = [row for row in rows[columns.has_header :] if len(row) == len(columns.names)]
    header = [field.strip() for field in rows[0]] if columns.has_header else [""] * len(columns.names)
    of_number = {number: what for what, numbers in columns.candidates.items() for number in numbers}
    shown = tuple(
        ColumnPreview(number, label, _samples(body, number), use, of_number.get(number, ""))
        for number, (label, use) in enumerate(zip(header, columns.names, strict=False))
    )
    items: list[Item] = []
    with suppress(UserError):  # of an array that the head of an archive cuts
        items += islice(table.read(columns), MAX_ROWS)
    facts = Counter() if columns.problem else _facts(items, reader, keep)
    return TablePreview((name,), shown, tuple(columns.candidates), columns.is_other, facts=facts)


def _facts(items: Sequence[Item], reader: SourceReader, keep: Collection[str]) -> Facts:
    """Return the counts of facts and values: rows, unusable, found, spans, speakers, and kinds of marks."""
    found = reader.resolve(items)
    cleaned, marks = without_marks([item for item in found if isinstance(item, Row)], keep)
    facts: Facts = Counter({("rows", ""): len(items)})
    facts.update((kind, text[:_SAMPLE_CHARS]) for kind, text in marks)
    for item in (*cleaned, *found):
        if isinstance(item, Rejection):
            facts["unusable", item.reason[:_SAMPLE_CHARS]] += 1
    for row in (item for item in cleaned if isinstance(item, Row)):
        facts["found", row.found_by] += 1
        facts["spans", ""] += row.times is not None
        facts["speakers", (row.speaker or "")[:_SAMPLE_CHARS]] += 1
    return +facts


def _samples(rows: Sequence[Sequence[str]], number: int) -> tuple[str, ...]:
    """Return the first different values of a column, each as one short line."""
    values = (" ".join(row[number][: 4 * _SAMPLE_CHARS].split()) for row in rows)
    filled = dict.fromkeys(value for value in values if value)
    return tuple(
        value if len(value) <= _SAMPLE_CHARS else f"{value[: _SAMPLE_CHARS - 1]}…"
        for value in islice(filled, NUM_SAMPLES)
    )


def _merged(tables: Sequence[TablePreview]) -> tuple[TablePreview, ...]:
    """Return the tables; neighbours that differ in nothing but their values become one."""

    def without_values(table: TablePreview) -> TablePreview:
        columns = tuple(replace(column, samples=()) for column in table.columns)
        return replace(table, files=(), columns=columns, facts=Counter())

    merged = []
    for _, group in groupby(tables, without_values):
        first, *others = group
        files, facts = [*first.files], first.facts.copy()
        for other in others:
            files += other.files
            facts += other.facts
        merged.append(replace(first, files=tuple(files), facts=facts))
    return tuple(merged)
