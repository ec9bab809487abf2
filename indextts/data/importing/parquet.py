"""Read parquet files, in which the Hugging Face hub stores data sets, with or without embedded audio.

    audio                     struct<bytes: binary, path: string> of datasets.Audio, or binary
    text, speaker_id, ...     strings and integers

Rows are listed from the small columns; the audio bytes are read later, in the order of the file and one
row at a time (AudioReader). A row without bytes names a file, as in a table. Format:
https://parquet.apache.org/docs/.

A value that many rows have is stored once, so a small file can have any amount of text or audio. Few rows
are therefore read at a time, and audio is limited by the size of the file.
"""

import io
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import accumulate, chain, islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import soundfile

from indextts.data.importing.archive import MAX_RATIO, max_unpacked_bytes
from indextts.data.importing.headers import column_of
from indextts.data.importing.items import (
    AUDIO_SUFFIXES,
    Embedded,
    Items,
    Location,
    Rejection,
    Row,
    filled,
    row_of,
    shown_value,
    without_shards,
)
from indextts.data.importing.reading import SourceReader
from indextts.errors import UserError
from indextts.system.amounts import shown_size
from indextts.system.language_codes import standard_code

MAX_AUDIO_BYTES = 512 * 2**20  # of a row
_SAMPLED_ROWS = 200
_READ_ROWS = 1_000  # at a time
_BUFFER_BYTES = 2**20  # without it, a row group is read at once
_STRINGS = pa.string(), pa.large_string()
_BINARIES = pa.binary(), pa.large_binary()
CORRUPT = (pa.ArrowException, OSError)
_STARTS = {b"RIFF": ".wav", b"fLaC": ".flac", b"OggS": ".ogg"}  # faster than soundfile, for each row
_OGG_SUFFIXES = (".ogg", ".oga", ".opus")

# The parts of a column that are read, or "": audio bytes, and the path or a text.
Leaves = dict[str, tuple[str, str]]


def parquet_rows(path: Path, reader: SourceReader) -> Items:
    """Yield the rows of a file, and rejections; a UserError if the columns cannot be decided."""
    try:
        file = open_parquet(path)
        leaves = leaves_of(file, reader.language)
        if not file.metadata.num_rows:
            return
        names = tuple(leaves)
        if names not in reader.columns_of:
            body = next(_rows(file, _SAMPLED_ROWS, [leaf for _, leaf in leaves.values()]))
            header = list(names) if reader.is_chosen else _header(path, leaves)
            reader.columns_of[names] = reader.decide(path, [header, *body], has_header=True, shown=names)
        yield from _read(path, file, leaves, reader)
    except CORRUPT as error:
        yield Rejection(Location(path), "broken_file", corrupt_reason(error))


def _read(path: Path, file: pq.ParquetFile, leaves: Leaves, reader: SourceReader) -> Items:
    columns = reader.columns_of[tuple(leaves)]
    name_of = {column: name for column, name in zip(columns.names, leaves, strict=True) if column}
    text, audio = name_of.get("text") or name_of["spoken"], name_of.get("audio", "")
    if _is_filled(file, text) is False:
        yield Rejection(Location(path), "no_text", f"no row has a text in the column {text}")
        return
    leaf = leaves[audio][0] if audio else ""
    has_audio = _is_filled(file, leaf) if leaf else False
    names_file = partial(reader.names_recording, folder=path.parent)
    rows = chain.from_iterable(_rows(file, _READ_ROWS, [leaves[name][1] for name in name_of.values()]))
    for number, fields in enumerate(rows):
        values = {column: filled(field) for column, field in zip(name_of, fields, strict=True)}
        named = values.get("audio", "")
        # the path is the better name: in FLEURS, the id is that of the sentence
        key = named or values.get("id") or f"{without_shards(path).name}-{number:06d}"
        embedded = None
        if has_audio or (has_audio is None and not (named and names_file(named))):
            values["audio"], embedded = key, Embedded(audio, number)
        yield row_of(Location(path, number + 1), values, key, embedded, columns.unit)


def open_parquet(path: Path) -> pq.ParquetFile:
    """Open a parquet file without reading row groups at once; raises one of CORRUPT, also for a bomb."""
    file = pq.ParquetFile(path, buffer_size=_BUFFER_BYTES, pre_buffer=False)
    for group in map(file.metadata.row_group, range(file.num_row_groups)):
        for chunk in map(group.column, range(group.num_columns)):
            if chunk.total_uncompressed_size > max_unpacked_bytes(chunk.total_compressed_size):
                raise pa.ArrowInvalid(f"{chunk.path_in_schema} unpacks to over {MAX_RATIO} times its size")
    return file


def leaves_of(file: pq.ParquetFile, language: str = "") -> Leaves:
    """Return the columns that can be read, those with audio first; of two with the same name, none can.

    Args:
        language: of texts that are objects by language.

    Raises:
        UserError: two columns have the name of a recording, a text and so on.
    """
    audio, small = {}, {}
    count = Counter(file.schema_arrow.names)
    for field in file.schema_arrow:
        name, kind = field.name, field.type
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        inner = {part.name: part.type for part in kind} if pa.types.is_struct(kind) else {}
        has_bytes, has_path = inner.get("bytes") in _BINARIES, inner.get("path") in _STRINGS
        if count[name] > 1:
            if column_of(name):
                raise UserError(f"two columns are named {name}; rename or remove one")
            continue
        if has_bytes or has_path:
            audio[name] = f"{name}.bytes" if has_bytes else "", f"{name}.path" if has_path else ""
        elif kind in _BINARIES:
            audio[name] = name, ""
        elif text := next((key for key in inner if standard_code(key) == language), ""):
            small[name] = "", f"{name}.{text}"
        elif kind in _STRINGS or pa.types.is_integer(kind) or pa.types.is_floating(kind):
            small[name] = "", name
    return audio | small


def _header(path: Path, leaves: Leaves) -> list[str]:
    """Return the names of the columns with the only recording as "audio", also if it has another name."""
    audio = [name for name, (content, leaf) in leaves.items() if content or leaf == f"{name}.path"]
    if not audio:
        return list(leaves)
    named = [name for name in leaves if column_of(name) == "audio"]
    known = [name for name in audio if name in named] or audio
    if len(known) > 1:
        raise UserError(
            f"{path.name}: the columns {' and '.join(known)} contain audio; pass --columns, for example "
            f"--columns audio={known[0]},text=NAME"
        )
    others = {*audio, *named}
    return ["audio" if name == known[0] else "" if name in others else name for name in leaves]


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


def _rows(file: pq.ParquetFile, size: int, leaves: Sequence[str]) -> Iterator[list[list[str]]]:
    """Yield up to `size` rows at a time, as the texts of leaves; "" is that of a leaf that is "" or null."""
    for batch in file.iter_batches(size, columns=list(filter(None, leaves))):
        table = pa.Table.from_batches([batch]).flatten()
        columns = [_texts(table[leaf].chunk(0)) if leaf else [""] * batch.num_rows for leaf in leaves]
        yield [list(row) for row in zip(*columns, strict=True)]


def _texts(column: Any) -> list[str]:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if column.type in _STRINGS:
        column = column.cast(pa.large_binary())  # the text may be invalid
        return [(value or b"").decode(errors="replace") for value in column.to_pylist()]
    return list(map(shown_value, column.to_pylist()))


def corrupt_reason(error: Exception) -> str:
    """Return the reason of a rejection for one of CORRUPT."""
    first = (str(error).strip().splitlines() or ["unknown reason"])[0]
    return f"not a readable parquet file ({first[:200]}); download or create it again"


class AudioReader:
    """Reader of the audio bytes of rows, which are asked for in the order of their file."""

    def __init__(self) -> None:
        self._place: tuple[Path, str] | None = None  # file and column
        self._rows = range(0)  # those of the row group that are not read yet
        self._leaves = "", ""
        self._batches: Iterator[Any] = iter(())  # of one row each, which may be large
        self._num_bytes = 0  # of the audio that was read from the file
        self._broken = ""  # why the row group cannot be read

    def read(self, found: Row) -> tuple[bytes, str] | Rejection:
        """Return the audio of a row and its path in the data, which may be empty."""
        assert found.embedded is not None
        content, named = None, ""
        try:
            row = self._row(found.audio, found.embedded.column, found.embedded.row)
            if row is not None:
                value, path = (row[leaf][0] if leaf else pa.scalar(None) for leaf in self._leaves)
                content, named = value.as_buffer() if value.is_valid else None, path.as_py() or ""
                self._num_bytes += len(content) if content else 0
                if self._num_bytes > max_unpacked_bytes(found.audio.stat().st_size):
                    raise pa.ArrowInvalid(f"the audio is over {MAX_RATIO} times as large as the file")
        except CORRUPT as error:
            self._broken = corrupt_reason(error)
        if self._broken:
            return Rejection(found.where, "broken_file", self._broken)
        if not content:
            reason = f"the row contains no audio, and there is no file {named}; restore or remove it"
            return Rejection(found.where, "missing_audio", reason)
        if len(content) > MAX_AUDIO_BYTES:
            reason = f"more than {shown_size(MAX_AUDIO_BYTES)} of audio in a row; cut the recording"
            return Rejection(found.where, "unreadable_audio", reason)
        return content.to_pybytes(), named

    def _row(self, path: Path, column: str, row: int) -> Any:
        """Return a row of audio; None if its row group cannot be read."""
        if self._place != (path, column):
            self._place, self._rows, self._num_bytes = (path, column), range(0), 0
        if row not in self._rows:
            file = open_parquet(path)
            sizes = [file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)]
            starts = [0, *accumulate(sizes)]
            group = bisect_right(starts, row) - 1
            self._leaves = leaves_of(file)[column]
            leaves = list(filter(None, self._leaves))
            self._batches = file.iter_batches(1, [group], leaves, use_threads=False)
            self._rows, self._broken = range(starts[group], starts[group + 1]), ""
        if self._broken:
            return None
        batch = next(islice(self._batches, row - self._rows.start, None), None)
        if batch is None:
            raise pa.ArrowInvalid("fewer rows than its footer says")
        self._rows = range(row + 1, self._rows.stop)
        return pa.Table.from_batches([batch]).flatten()


def audio_suffix(content: bytes, named: str) -> str:
    """Return the suffix of the name in the data unless the content is of another format."""
    suffix = Path(named).suffix.lower()
    suffix = suffix if suffix in AUDIO_SUFFIXES else ""
    found = _STARTS.get(content[:4], "")
    try:
        found = found or f".{soundfile.info(io.BytesIO(content)).format.lower()}"
    except soundfile.LibsndfileError:  # of a video, or corrupt
        return suffix
    is_alike = suffix.startswith(found) or (found == ".ogg" and suffix in _OGG_SUFFIXES)
    return suffix if is_alike or found not in AUDIO_SUFFIXES else found
