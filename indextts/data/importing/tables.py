"""Read rows of tables: CSV with any common delimiter, with or without a header, and JSON lines or arrays.

columns.py decides which columns are the recording, the text and so on, by the first rows of a table. Own
code reads the lines, not pyarrow or pandas: each invalid line becomes a rejection with its number, and the
others are read.
"""

import contextlib
import csv
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TextIO

from pydantic import ValidationError

from indextts.data.importing.columns import Columns
from indextts.data.importing.headers import column_of, is_known_header
from indextts.data.importing.items import Items, Location, Rejection, Row, filled, row_of, shown_value
from indextts.data.importing.json_records import Pairs, only_list, simplify, webdataset_records
from indextts.data.importing.reading import SourceReader
from indextts.data.importing.text_lines import encoding_of, log_code_page, text_lines
from indextts.data.manifest import Provenance
from indextts.errors import UserError
from indextts.system.amounts import counted

_DELIMITERS = "|\t,;"
_PLAIN = "|\t"  # delimiters of tables that are often written without quoting
_DELIMITER_LINE = re.compile(r'"?sep=(.)"?')  # the first line of a table for Excel
_SAMPLED_LINES, _SAMPLED_CHARS = 200, 500_000
_HEAD_CHARS, _START_CHARS = 100_000, 64
_MAX_OBJECT_CHARS = 100_000_000
_JSON_START = re.compile(r'\s*\[?\s*\{\s*"')
_BETWEEN = re.compile(r"[\s,]*")  # objects of an array
_MAX_JOINED_LINES = 5  # a quoted field may contain line ends; beyond, the closing quote is missing


@dataclass(frozen=True)
class Table:
    """A table of any form: its first rows, and what reads all of them."""

    head: Sequence[Sequence[str]]  # the first row, and of the next those with the usual width; or empty
    has_header: bool  # the first row certainly names the columns
    read: Callable[[Columns], Items]  # yields the rows in file order, and rejections of invalid ones


def open_table(path: Path, language: str) -> Table:
    """Return a table: a folder of WebDataset, JSON by its name or its start, or lines of text."""
    is_json = path.is_dir() or path.suffix.lower() in (".json", ".jsonl")
    if not is_json:
        with path.open(encoding="utf-8-sig", errors="replace") as file:
            is_json = _JSON_START.match(file.read(_START_CHARS)) is not None
    if is_json:
        return _json_table(path, language)
    delimiter, head = table_head(path, language)
    return Table(head, False, partial(_text_rows, path, language, delimiter))


def table_rows(path: Path, reader: SourceReader, columns: Columns | None = None) -> Items:
    """Yield the rows of a table in file order, and rejections of invalid ones.

    Args:
        columns: those of the layout; None to decide.

    Raises:
        UserError: the columns cannot be decided, or a JSON array is invalid.
    """
    table = open_table(path, reader.language)
    if columns is None and table.head:
        columns = reader.decide(path, table.head, has_header=table.has_header)
    if path.is_file():
        log_code_page(path, reader.language)
    yield from table.read(columns or Columns(("audio", "text"), has_header=False))


def _text_rows(path: Path, language: str, delimiter: str, columns: Columns) -> Items:
    width = len(columns.names)
    lines = [
        (where, piece)
        for where, line in text_lines(path, language)
        for piece in _without_marks(line, delimiter, width)
        if isinstance(piece, Rejection) or not _is_empty(piece, delimiter)
    ]
    header: list[str] | None = None
    first = 0
    while first < len(lines):
        where, line = lines[first]
        num_lines = 1
        if isinstance(line, Rejection):
            yield line
        else:
            fields, num_lines = _record(lines[first : first + 1 + _MAX_JOINED_LINES], delimiter, width)
            if columns.has_header and header is None:
                header = fields
            elif header is None or fields != header:  # which joined files repeat
                yield _row(where, fields, delimiter, columns)
        first += num_lines


def _without_marks(line: str | Rejection, delimiter: str, width: int) -> Sequence[str | Rejection]:
    """Return the rows of a line that contains a byte order mark, where files were joined, else the line."""
    if isinstance(line, Rejection) or "\ufeff" not in line:
        return [line]
    pieces = line.split("\ufeff")
    is_joined = all(len(_fields(piece, delimiter) or ()) == width for piece in pieces)
    return pieces if is_joined else ["".join(pieces)]


def _is_empty(line: str, delimiter: str) -> bool:
    """Return whether a line has no values, or only tells Excel the delimiter."""
    return not line.strip(delimiter + '" \t') or _DELIMITER_LINE.fullmatch(line) is not None


def _record(
    lines: Sequence[tuple[Location, str | Rejection]], delimiter: str, width: int
) -> tuple[list[str] | None, int]:
    """Return the fields of the row that begins at the first line, and the number of its lines.

    A quoted field may contain line ends. Without a closing quote, the fields are None, for one line; in a
    table with bars or tabs, such a quote is part of the text.
    """
    texts = [line for _, line in lines if isinstance(line, str)]
    plain = [text.split(delimiter) for text in texts[:2]] if delimiter in _PLAIN else [[]]
    joined = ""
    for number, text in enumerate(texts, start=1):
        joined = f"{joined} {text}" if joined else text
        fields = _quoted_fields(joined, delimiter)
        if fields is not None and (number == 1 or len(fields) == width):
            is_plain = len(fields) != width == len(plain[0])
            return (plain[0] if is_plain else fields), number
        if fields is not None or all(len(row) == width for row in plain):
            break
    return plain[0] or None, 1


def _json_table(path: Path, language: str) -> Table:
    """Return JSON as a table: each field of the first objects is a column."""
    first: list[object] = []
    with contextlib.suppress(UserError):  # the import raises it; the head of an array is read alone
        first += (record for _, record in islice(_records(path, language), _SAMPLED_LINES))
    found = [record for record in first if isinstance(record, dict) and "target_id" not in record]
    fields = list(dict.fromkeys(name for record in found for name in record))
    head = [fields, *([shown_value(record.get(name)) for name in fields] for record in found)]

    def read(columns: Columns) -> Items:
        decided = {name: field for field, name in zip(fields, columns.names, strict=False) if name}
        # Objects without a field that was decided are read by the known names of their other fields.
        beside = {name for record in found for name in record if decided.get(column_of(name), "") in record}
        unused = {name for name in fields if column_of(name) in ("start", "end", "duration")}
        roles = dict.fromkeys(beside | unused, "") | {field: name for name, field in decided.items()}
        for where, record in _records(path, language):
            yield record if isinstance(record, Rejection) else _record_row(where, record, roles, columns.unit)

    return Table(head if fields else [], True, read)


def is_manifest(path: Path) -> bool:
    """Return whether the first objects of a .json file are utterances, as in the manifests of NeMo."""
    fields = next(iter(open_table(path, "").head), [])
    return {"audio", "text"} <= set(map(column_of, fields))


def _records(path: Path, language: str) -> Iterator[tuple[Location, object]]:
    """Yield the objects of WebDataset, of JSON lines or of an array, and rejections of lines."""
    for where, record in webdataset_records(path) if path.is_dir() else _parsed(path, language):
        if isinstance(record, Pairs):
            simplify(record, language)
        yield where, record


def _parsed(path: Path, language: str) -> Iterator[tuple[Location, object]]:
    with path.open(encoding=encoding_of(path, language) or "utf-8", errors="replace") as file:
        text = file.read(_HEAD_CHARS).lstrip("\ufeff \t\r\n")
        listed: Iterable[object] | None = None
        if text.startswith("["):
            listed = _objects_of_array(path, text, file)
        elif text.startswith("{"):
            listed = _objects_of_object(path, text, language)
        if listed is not None:
            for number, record in enumerate(listed, start=1):
                yield Location(path, place=f"object {number}: "), record
            return
    for where, line in text_lines(path, language):
        if isinstance(line, Rejection):
            yield where, line
        elif line.strip():
            yield where, _parsed_line(where, line)


def _parsed_line(where: Location, line: str) -> object:
    try:
        return json.loads(line, object_pairs_hook=Pairs)
    except (ValueError, RecursionError) as error:
        return Rejection(where, "broken_row", f"not JSON ({error}); each line must be a JSON object")


def _objects_of_array(path: Path, text: str, file: TextIO) -> Iterator[object]:
    """Yield the objects of an array that begins with a text and continues in a file."""
    decode = json.JSONDecoder(object_pairs_hook=Pairs).raw_decode
    place, number = 1, 1
    while not text.startswith("]", place := _BETWEEN.match(text, place).end()):  # type: ignore[union-attr]
        try:
            record, place = decode(text, place)
        except (ValueError, RecursionError) as error:
            more = file.read(max(_HEAD_CHARS, len(text) - place))
            if not more or len(text) - place > _MAX_OBJECT_CHARS:
                reason = getattr(error, "msg", error)  # without the place, which counts from this piece
                raise UserError(f"{path.name}: not JSON in object {number} ({reason}); correct it") from None
            text, place = text[place:] + more, 0
        else:
            yield record
            number += 1


def _objects_of_object(path: Path, head: str, language: str) -> Sequence[object] | None:
    """Return an object over several lines, or the list of objects in an object; None for JSON lines."""
    line, _, rest = head.partition("\n")
    record = _parsed_line(Location(path), line)
    is_row = isinstance(record, Pairs) and (bool(rest.strip()) or only_list(record) is None)
    if is_row or path.stat().st_size > _MAX_OBJECT_CHARS:
        return None
    try:
        text = path.read_text(encoding=encoding_of(path, language) or "utf-8")
        found = json.loads(text, object_pairs_hook=Pairs)
    except (ValueError, RecursionError) as error:
        if isinstance(error, json.JSONDecodeError) and error.msg == "Extra data":
            reason = "an object over several lines; write each in one: jq -c . FILE > NEW.jsonl"
            raise UserError(f"{path.name}: {reason}") from None
        return None  # with an invalid first line
    return only_list(found) or [found]


def _record_row(where: Location, record: object, roles: Mapping[str, str], unit: str) -> Row | Rejection:
    if not isinstance(record, Pairs):
        return Rejection(where, "broken_row", "not a JSON object; write the fields as {...}")
    if "target_id" in record:
        reason = "this is a pair; use the manifest of utterances that the pairs were built from"
        return Rejection(where, "broken_row", reason)
    columns = {name: roles[name] if name in roles else column_of(name) for name in record}
    if repeated := next((name for name in record.repeated if columns[name]), ""):
        return Rejection(where, "broken_row", f"two fields are named {repeated}; remove one")
    values: dict[str, str] = {}
    for name, value in record.items():
        column = columns[name]
        if not column or values.get(column):
            continue
        if not isinstance(value, str | int | float | None) or isinstance(value, bool):
            reason = f"{name} has {len(value)} values; keep one" if isinstance(value, list) else ""
            return Rejection(where, "broken_row", reason or f"{name} must be a string")
        values[column] = filled(shown_value(value))
    row = row_of(where, values, unit=unit)
    return row if isinstance(row, Rejection) else replace(row, provenance=_provenance(record))


def _provenance(record: Mapping[str, object]) -> Provenance | None:
    """Return the provenance in a manifest of this project; other data use the name for other things."""
    try:
        return Provenance.model_validate(record.get("provenance"))
    except ValidationError:
        return None


def table_head(path: Path, language: str = "") -> tuple[str, list[list[str]]]:
    """Return the delimiter of a table, its first row, and of the next rows those with the usual width.

    Without rows, the table has a single column.
    """
    sample = _first_lines(path, language)
    told = _DELIMITER_LINE.fullmatch(sample[0]) if sample else None
    counts = {
        delimiter: Counter(len(_fields(line, delimiter) or ()) for line in sample)
        for delimiter in _DELIMITERS
    }

    def fit(delimiter: str) -> tuple[int, int]:
        shared = {num: lines for num, lines in counts[delimiter].items() if num > 1}
        return max(shared.values(), default=0), -_DELIMITERS.index(delimiter)

    delimiter = "\t" if path.suffix.lower() in (".tsv", ".xlsx") else max(_DELIMITERS, key=fit)
    delimiter = told[1] if told else delimiter
    lines = [line for line in sample if not _is_empty(line, delimiter)]
    rows = [fields for line in lines if (fields := _fields(line, delimiter))]
    num_filled = max((n for row in rows for n, field in enumerate(row, start=1) if field.strip()), default=0)
    rows = [row[:num_filled] for row in rows]  # without the empty columns at the right of a spreadsheet
    width = 0
    if rows:
        # else the number of columns of most lines: others have a missing or an extra delimiter
        most = Counter(map(len, rows)).most_common(1)[0][0]
        width = len(rows[0]) if is_known_header(rows[0]) else most
    return delimiter, [rows[0], *(row for row in rows[1:] if len(row) == width)] if width > 1 else []


def _first_lines(path: Path, language: str = "") -> list[str]:
    """Return the first lines that are not blank, up to a line that is too long."""
    lines: list[str] = []
    num_chars = 0
    for _, line in islice(text_lines(path, language), _SAMPLED_LINES):
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
    if not any(map(str.strip, fields[len(names) :])):
        fields = fields[: len(names)]
    if len(fields) != len(names):
        shown = {"\t": "tab"}.get(delimiter, delimiter)
        found = counted(len(fields), "column")
        reason = f"{found}, expected {len(names)} (delimiter {shown}); correct the row"
        return Rejection(where, "broken_row", reason)
    return row_of(where, dict(zip(names, fields, strict=True)), unit=columns.unit)


def _fields(line: str, delimiter: str) -> list[str] | None:
    """Return the fields of a line; None if a quote is not closed, unless bars or tabs make it text."""
    fields = _quoted_fields(line, delimiter)
    return line.split(delimiter) if fields is None and delimiter in _PLAIN else fields


def _quoted_fields(line: str, delimiter: str) -> list[str] | None:
    if '"' not in line:
        return line.split(delimiter)
    try:
        return next(csv.reader([line], delimiter=delimiter, strict=True, skipinitialspace=True), [])
    except csv.Error:
        return None
