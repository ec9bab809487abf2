"""Rows of tables: CSV with any usual delimiter, with or without a header, and JSON lines.

A row has named columns: `audio`, `text`, `speaker`, `id`, `language`, `recording`, whatever the table calls
them (ALIASES). A table without a header has the columns of LJSpeech: recording, text and, where there is a
third, the text as it is spoken; or the columns that its layout knows.
"""

import csv
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from indextts.data.importing.found import Rejection, Where
from indextts.data.importing.text_lines import BadText, text_lines

ALIASES = {
    "audio": (
        "audio", "audio_path", "audio_filepath", "audio_file", "path", "file", "file_name", "filename", "wav",
        "wav_path", "clip",
    ),
    "text": ("text", "sentence", "transcription", "transcript", "raw_transcription"),
    "speaker": ("speaker", "speaker_id", "client_id", "speaker_name", "reader_id", "spk", "voice"),
    "id": ("id", "utterance_id", "utt_id", "clip_id"),
    "language": ("language", "lang", "locale"),
    "recording": ("recording", "source_file"),
}  # fmt: skip
LJSPEECH_COLUMNS = ("audio", "text", "spoken")

_DELIMITERS = "|\t,;"
_SAMPLED_LINES = 200
_MAX_JOINED_LINES = 5  # a quoted field may hold line ends; more is a quote that nobody closed
_COLUMN_OF = {alias: column for column, aliases in ALIASES.items() for alias in aliases}


@dataclass(frozen=True, slots=True)
class Row:
    """A row with what its columns say, by their names here; an empty column is left out."""

    where: Where
    values: dict[str, str]
    has_speaker_column: bool


@dataclass(frozen=True)
class _Format:
    delimiter: str
    columns: tuple[str, ...]  # "" for one that is of no use here
    has_header: bool


def table_rows(path: Path, columns: Sequence[str] = ()) -> Iterator[Row | Rejection]:
    """Yield the rows of a table in file order, and those that cannot be taken apart.

    Args:
        columns: of a table that is known to have no header.

    Raises:
        OSError: the file cannot be read.
    """
    table = _find_format(path, columns)
    lines = text_lines(path)
    is_first = True
    waiting: list[tuple[int, str | BadText]] = []  # read ahead for a quoted field that was not closed
    while True:
        number, line = waiting.pop(0) if waiting else next(lines, (0, ""))
        if number == 0:
            return
        if isinstance(line, str) and not line.strip():
            continue
        if isinstance(line, BadText):
            yield Rejection(Where(path, number), line.code, line.reason)
            continue
        fields = _fields(line, table.delimiter)
        if fields is None and table.delimiter in ",;":
            fields = _joined(line, table, waiting, lines)
        if is_first and table.has_header:
            is_first = False
            continue
        is_first = False
        yield _row(Where(path, number), fields, table)


def json_rows(path: Path) -> Iterator[Row | Rejection]:
    """Yield the rows of a file of JSON lines in file order, and those that are no JSON object.

    Raises:
        OSError: the file cannot be read.
    """
    for number, line in text_lines(path):
        where = Where(path, number)
        if isinstance(line, BadText):
            yield Rejection(where, line.code, line.reason)
        elif line.strip():
            yield _json_row(where, line)


def header(path: Path) -> list[str]:
    """Return the fields of a table's first line, in lower case; none if it is no text.

    Raises:
        OSError: the file cannot be read.
    """
    _, line = next(text_lines(path), (1, ""))
    if isinstance(line, BadText):
        return []
    delimiter = max(_DELIMITERS, key=line.count)
    return [field.strip().lower() for field in line.split(delimiter)]


def _json_row(where: Where, line: str) -> Row | Rejection:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        return Rejection(where, "broken_row", f"not JSON ({error}), each line must be one JSON object")
    if not isinstance(record, dict):
        return Rejection(where, "broken_row", "no JSON object, write {...} with the fields in it")
    if "target_id" in record:
        reason = "this is a pair, give the manifest of utterances that the pairs were made from"
        return Rejection(where, "broken_row", reason)
    values: dict[str, str] = {}
    for name, value in record.items():
        column = _COLUMN_OF.get(name)
        if column is None or value is None or column in values:
            continue
        if not isinstance(value, str | int) or isinstance(value, bool):
            return Rejection(where, "broken_row", f"{name} must be a string")
        values[column] = str(value)
    if any("\ud800" <= char <= "\udfff" for value in values.values() for char in value):
        return Rejection(where, "encoding", "half a character (a lone surrogate), correct it")
    if any("\0" in value for value in values.values()):
        return Rejection(where, "not_text", "a NUL character, remove it")
    return Row(where, _filled(values), has_speaker_column="speaker" in values)


def _find_format(path: Path, columns: Sequence[str]) -> _Format:
    """Return delimiter and columns of a table, as most of its first lines have them."""
    sample = _first_lines(path)
    counts = {
        delimiter: Counter(len(_fields(line, delimiter) or ()) for line in sample)
        for delimiter in _DELIMITERS
    }

    def fit(delimiter: str) -> tuple[int, int]:
        shared = {num: lines for num, lines in counts[delimiter].items() if num > 1}
        return max(shared.values(), default=0), -_DELIMITERS.index(delimiter)

    delimiter = "\t" if path.suffix.lower() == ".tsv" else max(_DELIMITERS, key=fit)
    if columns:
        return _Format(delimiter, tuple(columns), has_header=False)
    first = [field.strip().lower() for field in _fields(sample[0], delimiter) or ()] if sample else []
    named = tuple(_COLUMN_OF.get(field, "") for field in first)
    if "text" in named and ("audio" in named or "id" in named):
        return _Format(delimiter, _unique(named), has_header=True)
    # As many as most lines have: a delimiter too many is a text cut in two, one too few two texts in one.
    num_columns = counts[delimiter].most_common(1)[0][0] if sample else 0
    return _Format(delimiter, LJSPEECH_COLUMNS[: max(2, num_columns)], has_header=False)


def _first_lines(path: Path) -> list[str]:
    """Return the first lines that are not blank, up to one that takes long to pass over."""
    lines = []
    for _, line in islice(text_lines(path), _SAMPLED_LINES):
        if isinstance(line, str):
            lines += [line] if line.strip() else []
        elif line.code == "line_too_long":
            break
    return lines


def _unique(named: tuple[str, ...]) -> tuple[str, ...]:
    """Return the columns with the first of each name; of two texts that is the one as it was written."""
    return tuple("" if column in named[:number] else column for number, column in enumerate(named))


def _row(where: Where, fields: list[str] | None, table: _Format) -> Row | Rejection:
    if fields is None:
        return Rejection(where, "broken_row", "a quote that is not closed, or not doubled inside of quotes")
    if len(fields) != len(table.columns):
        shown = {"\t": "tab"}.get(table.delimiter, table.delimiter)
        reason = f"{len(fields)} columns where {len(table.columns)} are expected (delimiter {shown})"
        return Rejection(where, "broken_row", f"{reason}, correct the row")
    values = _filled(dict(zip(table.columns, fields, strict=True)))
    if "spoken" in values:
        values["text"] = values.pop("spoken")
    return Row(where, values, has_speaker_column="speaker" in table.columns)


def _filled(values: dict[str, str]) -> dict[str, str]:
    return {column: value.strip() for column, value in values.items() if column and value.strip()}


def _fields(line: str, delimiter: str) -> list[str] | None:
    """Return the fields of a line, None if a quote is not closed.

    Only commas and semicolons come with quoting: elsewhere a quote is a character of the text.
    """
    if delimiter in "|\t":
        return line.split(delimiter)
    try:
        return next(csv.reader([line], delimiter=delimiter, strict=True), [])
    except csv.Error:
        return None


def _joined(
    line: str,
    table: _Format,
    waiting: list[tuple[int, str | BadText]],
    lines: Iterator[tuple[int, str | BadText]],
) -> list[str] | None:
    """Return the fields of a row that goes on over the next lines; None, taking no line, if it does not."""
    joined = line
    for num_taken in range(_MAX_JOINED_LINES):
        if num_taken == len(waiting):
            following = next(lines, None)
            if following is None:
                return None
            waiting.append(following)
        text = waiting[num_taken][1]
        if isinstance(text, BadText):
            return None
        joined = f"{joined} {text}"
        fields = _fields(joined, table.delimiter)
        if fields is not None:
            if len(fields) != len(table.columns):
                return None
            del waiting[: num_taken + 1]
            return fields
    return None
