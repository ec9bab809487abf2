"""Read parquet files, in which the Hugging Face hub stores data sets, with or without embedded audio.

    audio                     struct<bytes: binary, path: string> of datasets.Audio, or binary
    text, speaker_id, ...     strings and integers

Rows are listed from the small columns; the audio bytes are read later, in the order of the file and one
row at a time (embedded.py). A row without bytes names a file, as in a table. Format: https://parquet.apache.org/docs/.

A value that many rows have is stored once, so a small file can have any amount of text or audio. Few rows
are therefore read at a time, and audio is limited by the size of the file.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from indextts.data.importing.archive import MAX_RATIO, MIN_BOMB_BYTES
from indextts.data.importing.columns import COLUMN_OF, Columns
from indextts.data.importing.items import (
    PARQUET_SUFFIX,
    Embedded,
    Location,
    Rejection,
    Row,
    row_values,
    without_shards,
)
from indextts.data.importing.tables import Decide, log_columns
from indextts.data.importing.text_lines import MAX_TEXT_CHARS, check_line
from indextts.errors import UserError

_SAMPLED_ROWS = 200
_READ_ROWS = 1_000  # at a time
_BUFFER_BYTES = 2**20  # without it, a row group is read at once
CORRUPT = (pa.ArrowException, OSError)


def parquet_files(folder: Path) -> list[Path]:
    """Return the parquet files of a folder in the order of their names."""
    return sorted(path for path in folder.glob(f"*{PARQUET_SUFFIX}") if not path.name.startswith("."))


@dataclass(frozen=True)
class ParquetTable:
    """Columns of a file: those with audio, as the leaves of bytes and path or "", and the small ones."""

    audio: dict[str, tuple[str, str]]
    small: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.audio, *self.small)

    def leaves(self, names: Sequence[str]) -> list[str]:
        """Return what to read of some columns, without audio bytes."""
        found = (self.audio[name][1] if name in self.audio else name for name in names)
        return [leaf for leaf in found if leaf]


class ParquetRows:
    """Reader of the rows of a source's parquet files; files with the same columns are read alike.

    Args:
        decider: returns how to decide the columns of a table in a folder.
        is_file: returns whether a value names a recording in a folder.
        is_chosen: the columns are named by hand.
    """

    def __init__(
        self, decider: Callable[[Path], Decide], is_file: Callable[[str, Path], bool], *, is_chosen: bool
    ) -> None:
        self._decider = decider
        self._is_file = is_file
        self._is_chosen = is_chosen
        self._decided: dict[tuple[str, ...], Columns] = {}

    def rows(self, path: Path) -> Iterator[Row | Rejection]:
        """Yield the rows of a file, and rejections.

        Raises:
            UserError: the columns cannot be decided.
        """
        try:
            file = open_parquet(path)
            table = parquet_table(file)
            if not file.metadata.num_rows:
                return
            if table.names not in self._decided:
                self._decided[table.names] = self._decide(path, file, table)
            yield from self._read(path, file, table)
        except CORRUPT as error:
            yield Rejection(Location(path), "broken_file", corrupt_reason(error))

    def _decide(self, path: Path, file: pq.ParquetFile, table: ParquetTable) -> Columns:
        batch = next(file.iter_batches(_SAMPLED_ROWS, columns=table.leaves(table.names)))
        body = list(map(list, zip(*(_values(batch, name) for name in table.names), strict=True)))
        try:
            header = table.names if self._is_chosen else _header(table)
            columns = self._decider(path.parent)([header, *body])
        except UserError as error:
            raise type(error)(f"{path.name}: {error}") from None
        log_columns(path, columns, table.names, body[0])
        return columns

    def _read(self, path: Path, file: pq.ParquetFile, table: ParquetTable) -> Iterator[Row | Rejection]:
        columns = self._decided[table.names]
        name_of = {column: name for column, name in zip(columns.names, table.names, strict=True) if column}
        text, audio = name_of.get("text") or name_of["spoken"], name_of.get("audio", "")
        if _is_filled(file, text) is False:
            yield Rejection(Location(path), "no_text", f"no row has a text in the column {text}")
            return
        leaf = table.audio[audio][0] if audio in table.audio else ""
        has_audio = _is_filled(file, leaf) if leaf else False
        names = _Names(path)
        row = 0
        for batch in file.iter_batches(_READ_ROWS, columns=table.leaves(list(name_of.values()))):
            listed = {column: _values(batch, name) for column, name in name_of.items()}
            for index in range(batch.num_rows):
                values = row_values({column: listed[column][index] for column in listed})
                key = names.unique(row, values.get("audio", ""), values.get("id", ""))
                where = Location(path, row + 1)
                problem = _problem(where, values)
                if problem is not None:
                    yield problem
                elif has_audio or (has_audio is None and not self._names_file(values, path)):
                    values = {"audio": key, **values}
                    yield Row(where, values, embedded=Embedded(audio, row), key=key)
                else:
                    yield Row(where, values, key=key)
                row += 1

    def _names_file(self, values: dict[str, str], path: Path) -> bool:
        return "audio" in values and self._is_file(values["audio"], path.parent)


class _Names:
    """Unique names of the rows of a file, which stay when it gets more rows or more shards."""

    def __init__(self, path: Path) -> None:
        self._stem = without_shards(path).name
        self._taken: set[str] = set()

    def unique(self, row: int, *preferred: str) -> str:
        name = next((name for name in preferred if name and name not in self._taken), "")
        name = name or f"{self._stem}-{row:06d}"
        self._taken.add(name)
        return name


def open_parquet(path: Path) -> pq.ParquetFile:
    """Open a parquet file without reading row groups at once; raises one of CORRUPT, also for a bomb."""
    file = pq.ParquetFile(path, buffer_size=_BUFFER_BYTES, pre_buffer=False)
    for group in map(file.metadata.row_group, range(file.num_row_groups)):
        for chunk in map(group.column, range(group.num_columns)):
            if chunk.total_uncompressed_size > max_unpacked_bytes(chunk.total_compressed_size):
                raise pa.ArrowInvalid(f"{chunk.path_in_schema} unpacks to over {MAX_RATIO} times its size")
    return file


def max_unpacked_bytes(num_bytes: int) -> int:
    """Return how many bytes so many bytes may unpack to, as for archives."""
    return max(MIN_BOMB_BYTES, MAX_RATIO * num_bytes)


def parquet_table(file: pq.ParquetFile) -> ParquetTable:
    """Return the columns that can be read; a name that two columns have cannot."""
    audio, small = {}, []
    count = Counter(file.schema_arrow.names)
    for field in file.schema_arrow:
        kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        if count[field.name] > 1:
            continue
        inner = {part.name: part.type for part in kind} if pa.types.is_struct(kind) else {}
        has_bytes, has_path = _is_binary(inner.get("bytes")), _is_string(inner.get("path"))
        if has_bytes or has_path:
            audio[field.name] = (
                f"{field.name}.bytes" if has_bytes else "",
                f"{field.name}.path" if has_path else "",
            )
        elif _is_binary(kind):
            audio[field.name] = field.name, ""
        elif _is_string(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind):
            small.append(field.name)
    return ParquetTable(audio, tuple(small))


def _is_string(kind: Any) -> bool:
    return kind is not None and (pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_binary(kind: Any) -> bool:
    return kind is not None and (pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _header(table: ParquetTable) -> list[str]:
    """Return the names of the columns with the recording as "audio", also if it has another name.

    Raises:
        UserError: two columns contain audio.
    """
    if not table.audio:
        return list(table.names)
    known = [name for name in table.audio if COLUMN_OF.get(name.lower()) == "audio"] or list(table.audio)
    if len(known) > 1:
        raise UserError(
            f"the columns {' and '.join(known)} contain audio; pass --columns, for example "
            f"--columns audio={known[0]},text=NAME"
        )
    is_other = {name: COLUMN_OF.get(name.lower()) == "audio" or name in table.audio for name in table.names}
    return ["audio" if name == known[0] else "" if is_other[name] else name for name in table.names]


def _is_filled(file: pq.ParquetFile, leaf: str) -> bool | None:
    """Return whether all rows have a value, by the statistics; None if some have none or it is unknown."""
    metadata = file.metadata
    numbers = [n for n in range(metadata.num_columns) if metadata.schema.column(n).path == leaf]
    num_nulls = 0
    for group in range(metadata.num_row_groups):
        statistics = metadata.row_group(group).column(numbers[0]).statistics if numbers else None
        if statistics is None or not statistics.has_null_count:
            return None
        num_nulls += statistics.null_count
    return {0: True, metadata.num_rows: False}.get(num_nulls)


def _values(batch: Any, name: str) -> list[str]:
    """Return the values of a column as text; of a column with audio, the paths."""
    if name not in batch.schema.names:  # audio without a path
        return [""] * batch.num_rows
    column = batch.column(name)
    if pa.types.is_struct(column.type):
        column = column.field("path")
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if _is_string(column.type):
        column = column.cast(pa.large_binary())  # the text may be invalid
        return [(value or b"").decode(errors="replace") for value in column.to_pylist()]
    return ["" if value is None else str(value) for value in column.to_pylist()]


def _problem(where: Location, values: dict[str, str]) -> Rejection | None:
    for column, value in values.items():
        if len(value) > MAX_TEXT_CHARS:
            reason = f"more than {MAX_TEXT_CHARS:,} characters, too many for the {column} of a clip; split it"
            return Rejection(where, "line_too_long", reason)
    checked = check_line(where, values.get("text", ""))
    return checked if isinstance(checked, Rejection) else None


def corrupt_reason(error: Exception) -> str:
    """Return the reason of a rejection for one of CORRUPT."""
    first = (str(error).strip().splitlines() or ["unknown reason"])[0]
    return f"not a readable parquet file ({first[:200]}); download or create it again"
