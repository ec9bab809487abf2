"""Read the recordings that parquet files contain, one row at a time, and write each to its own file."""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from indextts.commands.data import ImportDataset
from indextts.data.importing.archive import MAX_RATIO
from indextts.data.importing.items import AUDIO_SUFFIXES, Rejection, SourceRecording
from indextts.data.importing.parquet import (
    CORRUPT,
    corrupt_reason,
    max_unpacked_bytes,
    open_parquet,
    parquet_table,
)
from indextts.data.importing.transcoding import ASIDE_PREFIX, Transcoded, transcode
from indextts.system.amounts import shown_size

MAX_AUDIO_BYTES = 512 * 2**20  # of a row
_SUFFIXES_OF = {  # of files that begin so; the first if the data name none of them
    b"RIFF": (".wav",),
    b"fLaC": (".flac",),
    b"OggS": (".ogg", ".oga", ".opus"),
    b"ID3": (".mp3",),
    b"\xff\xfb": (".mp3",),
    b"\xff\xf3": (".mp3",),
    b"FORM": (".aiff", ".aif", ".aifc"),
    b"\x1a\x45\xdf\xa3": (".webm", ".mka", ".mkv"),
    b"#!AMR": (".amr",),
}


class AudioReader:
    """Reader of the audio bytes of rows, which are asked for in the order of their file."""

    def __init__(self) -> None:
        self._file: pq.ParquetFile | None = None
        self._place: tuple[Path, str] | None = None  # file and column
        self._starts: list[int] = []  # the first row of each row group, and the number of rows
        self._group = -1
        self._batches: Iterator[Any] = iter(())  # of one row each, which may be large
        self._batch: Any = None
        self._next = 0  # the row after `_batch`
        self._num_bytes = 0  # of the audio that was read from the file
        self._broken = ""  # why the row group cannot be read

    def read(self, found: SourceRecording) -> tuple[bytes, str] | Rejection:
        """Return the audio of a row and its path in the data, which may be empty."""
        assert found.embedded is not None
        content, named = None, ""
        try:
            column = self._row(found.audio, found.embedded.column, found.embedded.row)
            if column is not None:
                content, named = self._content(column, found.audio)
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

    def _content(self, column: Any, path: Path) -> tuple[Any, str]:
        """Return the audio of a row as a buffer, which may be None, and its path."""
        content, named = column[0], ""
        if pa.types.is_struct(column.type):
            parts = content if content.is_valid else {}
            content = parts["bytes"] if "bytes" in parts else pa.scalar(None, pa.binary())
            named = (parts["path"].as_py() if "path" in parts else "") or ""
        buffer = content.as_buffer() if content.is_valid else None
        self._num_bytes += len(buffer) if buffer else 0
        if self._num_bytes > max_unpacked_bytes(path.stat().st_size):
            raise pa.ArrowInvalid(f"the audio is over {MAX_RATIO} times as large as the file")
        return buffer, named

    def _row(self, path: Path, column: str, row: int) -> Any:
        """Return the column of a row of audio; None if its row group cannot be read."""
        if self._place != (path, column):
            self._place, self._group, self._broken, self._num_bytes = (path, column), -1, "", 0
            self._file = open_parquet(path)
            sizes = [self._file.metadata.row_group(n).num_rows for n in range(self._file.num_row_groups)]
            self._starts = [0, *accumulate(sizes)]
        assert self._file is not None
        group = bisect_right(self._starts, row) - 1
        if group != self._group or row < self._next - 1:
            leaves = [leaf for leaf in parquet_table(self._file).audio[column] if leaf]
            self._batches = self._file.iter_batches(1, [group], leaves, use_threads=False)
            self._group, self._next, self._broken = group, self._starts[group], ""
        if self._broken:
            return None
        while self._next <= row:
            self._batch = next(self._batches, None)
            if self._batch is None:
                raise pa.ArrowInvalid("fewer rows than its footer says")
            self._next += 1
        return self._batch.column(column)


def write_embedded(content: bytes, named: str, folder: Path, number: int) -> Path:
    """Write the audio of a row to a temporary file in `folder`, and return it.

    Args:
        named: the path in the data; may be empty.
        number: the index of the recording, for the file name.

    Raises:
        OSError: the file cannot be written.
    """
    aside = folder / f"{ASIDE_PREFIX}{number}-embedded{_suffix(content, named)}"
    aside.write_bytes(content)
    return aside


def transcode_embedded(
    found: SourceRecording, aside: Path, command: ImportDataset, folder: Path, number: int
) -> Transcoded:
    """Transcode the recording of a row from the file that `write_embedded` wrote."""
    transcoded = transcode(replace(found, audio=aside), command, folder, number)
    if aside not in [file.path for file in transcoded.files]:
        aside.unlink(missing_ok=True)
    rejections = [replace(rejection, where=found.where) for rejection in transcoded.rejections]
    return replace(transcoded, rejections=rejections)


def _suffix(content: bytes, named: str) -> str:
    """Return the suffix in the data unless the content is of another format."""
    suffix = Path(named).suffix.lower()
    found = next((suffixes for start, suffixes in _SUFFIXES_OF.items() if content.startswith(start)), ())
    if found:
        return suffix if suffix in found else found[0]
    return suffix if suffix in AUDIO_SUFFIXES else ""
