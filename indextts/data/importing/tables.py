"""Read rows of tables: CSV with any common delimiter, with or without a header, and JSON lines or arrays.

columns.py decides which columns are the recording, the text and so on, by the first rows of a table.
"""

import contextlib
import csv
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path

from pydantic import ValidationError

from indextts.data.importing.columns import COLUMN_OF, Columns, is_known_header
from indextts.data.importing.items import Items, Location, Rejection, Row, row_of
from indextts.data.importing.reading import SourceReader
from indextts.data.importing.text_lines import text_lines
from indextts.data.manifest import Provenance
from indextts.errors import UserError
from indextts.system.amounts import counted, shown_size

_DELIMITERS = "|\t,;"
_SAMPLED_LINES, _SAMPLED_CHARS = 200, 500_000
_HEAD_CHARS = 100_000
_MAX_ARRAY_BYTES = 500_000_000  # it is read at once
_MAX_JOINED_LINES = 5  # a quoted field may contain line ends; beyond, the closing quote is missing


def table_rows(path: Path, reader: SourceReader, columns: Columns | None = None) -> Items:
    """Yield the rows of a table in file order, and rejections of invalid ones.

    Args:
        columns: those of the layout; None to decide.

    Raises:
        UserError: the columns cannot be decided.
        OSError: the file cannot be read.
    """
    delimiter, head = table_head(path)
    if columns is None:
        columns = reader.decide(path, head) if head else Columns(("audio", "text"), has_header=False)
    lines = [(where, line) for where, line in text_lines(path) if isinstance(line, Rejection) or line.strip()]
    is_header = columns.has_header
    first = 0
    while first < len(lines):
        where, line = lines[first]
        num_lines = 1
        if isinstance(line, Rejection):
            yield line
        else:
            fields, num_lines = _record(lines[first : first + 1 + _MAX_JOINED_LINES], delimiter, columns)
            if not is_header:
                yield _row(where, fields, delimiter, columns)
            is_header = False
        first += num_lines


def _record(
    lines: Sequence[tuple[Location, str | Rejection]], delimiter: str, columns: Columns
) -> tuple[list[str] | None, int]:
    """Return the fields of the row that begins at the first line, and the number of its lines.

    A quoted field may contain line ends. Without a closing quote, the fields are None, for one line.
    """
    joined = ""
    for number, (_, line) in enumerate(lines, start=1):
        if isinstance(line, Rejection):
            break
        joined = f"{joined} {line}" if joined else line
        fields = _fields(joined, delimiter)
        if fields is not None:
            return (fields, number) if number == 1 or len(fields) == len(columns.names) else (None, 1)
    return None, 1


def json_rows(path: Path, reader: SourceReader) -> Items:
    """Yield the rows of JSON lines or of a JSON array in file order, and rejections of invalid ones.

    Each field of the first objects is a column.

    Raises:
        UserError: the array is invalid or too large, or the columns cannot be decided.
        OSError: the file cannot be read.
    """
    records = _records(path)
    first = list(islice(records, _SAMPLED_LINES))
    columns = _columns_of_fields(path, [record for _, record, _ in first], reader)
    for where, record, place in chain(first, records):
        row = record if isinstance(record, Rejection) else _record_row(where, record, columns)
        yield replace(row, reason=place + row.reason) if isinstance(row, Rejection) else row


def _records(path: Path) -> Iterator[tuple[Location, object, str]]:
    """Yield the objects of JSON lines or of an array, and rejections of lines, with the place in the array.

    Raises:
        UserError: the array is invalid, or larger than _MAX_ARRAY_BYTES.
        OSError: the file cannot be read.
    """
    if not _head(path).startswith("["):
        for where, line in text_lines(path):
            if isinstance(line, Rejection):
                yield where, line, ""
            elif line.strip():
                yield where, _parsed(where, line), ""
        return
    if path.stat().st_size > _MAX_ARRAY_BYTES:
        limit = shown_size(_MAX_ARRAY_BYTES)
        raise UserError(f"{path.name}: an array of more than {limit}; write one JSON object in each line")
    try:
        found = json.loads(path.read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path.name}: not JSON ({error})") from None
    for number, record in enumerate(found, start=1):
        yield Location(path), record, f"object {number}: "


def is_manifest(path: Path) -> bool:
    """Return whether the first objects of a .json file are utterances, as in the manifests of NeMo.

    Raises:
        OSError: the file cannot be read.
    """
    fields = next(iter(record_rows(path)), [])
    return {"audio", "text"} <= {COLUMN_OF.get(name) for name in fields}


def _columns_of_fields(path: Path, records: Sequence[object], reader: SourceReader) -> dict[str, str]:
    """Return the column, or "" for none, of each known or decided field of JSON objects.

    Objects without a field that was decided are read by the known names of their other fields.
    """
    found = [record for record in records if isinstance(record, dict) and "target_id" not in record]
    rows = _rows_of(found)
    if not rows:
        return COLUMN_OF
    names = reader.decide(path, rows, has_header=True).names
    decided = {name: field for field, name in zip(rows[0], names, strict=True) if name}
    beside = {name for record in found for name in record if decided.get(COLUMN_OF.get(name, "")) in record}
    return COLUMN_OF | dict.fromkeys(beside, "") | {field: name for name, field in decided.items()}


def record_rows(path: Path) -> list[list[str]]:
    """Return the fields of the first JSON objects, and their values; of an array, the first object only.

    Raises:
        OSError: the file cannot be read.
    """
    head = _head(path)
    if head.startswith("["):
        with contextlib.suppress(ValueError, RecursionError):
            record, _ = json.JSONDecoder().raw_decode(head[1:].lstrip())
            return _rows_of([record] if isinstance(record, dict) else [])
        return []
    records = (_parsed(Location(path), line) for line in _first_lines(path))
    return _rows_of([record for record in records if isinstance(record, dict)])


def _rows_of(records: Sequence[dict[str, object]]) -> list[list[str]]:
    fields = list(dict.fromkeys(name for record in records for name in record))
    return [fields, *([_shown(record.get(name)) for name in fields] for record in records)] if fields else []


def _shown(value: object) -> str:
    is_shown = isinstance(value, str | int | float) and not isinstance(value, bool)
    return str(value) if is_shown else ""


def _parsed(where: Location, line: str) -> object:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        return Rejection(where, "broken_row", f"not JSON ({error}); each line must be a JSON object")


def _head(path: Path) -> str:
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        return file.read(_HEAD_CHARS).lstrip()


def _record_row(where: Location, record: object, columns: Mapping[str, str]) -> Row | Rejection:
    if not isinstance(record, dict):
        return Rejection(where, "broken_row", "not a JSON object; write the fields as {...}")
    if "target_id" in record:
        reason = "this is a pair; use the manifest of utterances that the pairs were built from"
        return Rejection(where, "broken_row", reason)
    values: dict[str, str] = {}
    for name, value in record.items():
        column = columns.get(name)
        if not column or value is None or column in values:
            continue
        if not isinstance(value, str | int) or isinstance(value, bool):
            return Rejection(where, "broken_row", f"{name} must be a string")
        values[column] = str(value)
    row = row_of(where, values)
    return row if isinstance(row, Rejection) else replace(row, provenance=_provenance(record))


def _provenance(record: Mapping[str, object]) -> Provenance | None:
    """Return the provenance in a manifest of this project; other data use the name for other things."""
    try:
        return Provenance.model_validate(record.get("provenance"))
    except ValidationError:
        return None


def table_head(path: Path) -> tuple[str, list[list[str]]]:
    """Return the delimiter of a table, its first row, and of the next rows those with the usual width.

    Without rows, the table has a single column.

    Raises:
        OSError: the file cannot be read.
    """
    sample = _first_lines(path)
    counts = {
        delimiter: Counter(len(_fields(line, delimiter) or ()) for line in sample)
        for delimiter in _DELIMITERS
    }

    def fit(delimiter: str) -> tuple[int, int]:
        shared = {num: lines for num, lines in counts[delimiter].items() if num > 1}
        return max(shared.values(), default=0), -_DELIMITERS.index(delimiter)

    delimiter = "\t" if path.suffix.lower() == ".tsv" else max(_DELIMITERS, key=fit)
    rows = [fields for line in sample if (fields := _fields(line, delimiter))]
    width = 0
    if rows:
        # else the number of columns of most lines: others have a missing or an extra delimiter
        most = Counter(map(len, rows)).most_common(1)[0][0]
        width = len(rows[0]) if is_known_header(rows[0]) else most
    return delimiter, [rows[0], *(row for row in rows[1:] if len(row) == width)] if width > 1 else []


def _first_lines(path: Path) -> list[str]:
    """Return the first lines that are not blank, up to a line that is too long."""
    lines: list[str] = []
    num_chars = 0
    for _, line in islice(text_lines(path), _SAMPLED_LINES):
        if isinstance(line, str):
            num_chars += len(line)
            if lines and num_chars > _SAMPLED_CHARS:  # deciding the columns takes bounded time
                break
            lines += [line] if line.strip() else []
        elif line.code == "line_too_long":
            break
    return lines


def _row(where: Location, fields: list[str] | None, delimiter: str, columns: Columns) -> Row | Rejection:
    if fields is None:
        reason = "a quote that is not closed, or not doubled within quotes; correct the row"
        return Rejection(where, "broken_row", reason)
    names = columns.names
    if len(fields) != len(names):
        shown = {"\t": "tab"}.get(delimiter, delimiter)
        found = counted(len(fields), "column")
        reason = f"{found}, expected {len(names)} (delimiter {shown}); correct the row"
        return Rejection(where, "broken_row", reason)
    return row_of(where, dict(zip(names, fields, strict=True)))


def _fields(line: str, delimiter: str) -> list[str] | None:
    """Return the fields of a line; None if a quote is not closed.

    Only tables with commas or semicolons use quoting; in others a quote is part of the text.
    """
    if delimiter in "|\t":
        return line.split(delimiter)
    try:
        return next(csv.reader([line], delimiter=delimiter, strict=True), [])
    except csv.Error:
        return None
