"""Read the recordings that parquet files contain, a few rows at a time, and write each to its own file."""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from indextts.commands.data import ImportDataset
from indextts.data.importing.items import AUDIO_SUFFIXES, Rejection, SourceRecording
from indextts.data.importing.parquet import CORRUPT, corrupt_reason, open_parquet, parquet_table
from indextts.data.importing.storing import ASIDE_PREFIX, Transcoded, transcode

_READ_ROWS = 8  # at a time
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
        self._batches: Iterator[Any] = iter(())
        self._batch: Any = None
        self._start = 0  # the row of the first value of `_batch`
        self._broken = ""  # why the row group cannot be read

    def read(self, found: SourceRecording) -> tuple[bytes, str] | Rejection:
        """Return the audio of a row and its path in the data, which may be empty."""
        assert found.embedded is not None
        try:
            value = self._value(found.audio, found.embedded.column, found.embedded.row)
        except CORRUPT as error:
            self._broken = corrupt_reason(error)
        if self._broken:
            return Rejection(found.where, "broken_file", self._broken)
        content, path = (value.get("bytes"), value.get("path")) if isinstance(value, dict) else (value, "")
        if not content:
            reason = f"the row contains no audio, and there is no file {path or ''}; restore or remove it"
            return Rejection(found.where, "missing_audio", reason)
        return content, path or ""

    def _value(self, path: Path, column: str, row: int) -> Any:
        if self._place != (path, column):
            self._place, self._group, self._broken = (path, column), -1, ""
            self._file = open_parquet(path)
            sizes = [self._file.metadata.row_group(n).num_rows for n in range(self._file.num_row_groups)]
            self._starts = [0, *accumulate(sizes)]
        assert self._file is not None
        group = bisect_right(self._starts, row) - 1
        if group != self._group or row < self._start:
            leaves = [leaf for leaf in parquet_table(self._file).audio[column] if leaf]
            self._batches = self._file.iter_batches(_READ_ROWS, [group], leaves, use_threads=False)
            self._group, self._start, self._batch, self._broken = group, self._starts[group], None, ""
        if self._broken:
            return None
        while self._batch is None or row >= self._start + self._batch.num_rows:
            self._start += 0 if self._batch is None else self._batch.num_rows
            self._batch = next(self._batches, None)
            if self._batch is None:
                raise pa.ArrowInvalid("fewer rows than its footer says")
        return self._batch.column(column)[row - self._start].as_py()


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
    if aside not in [file.aside for file in transcoded.files]:
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
