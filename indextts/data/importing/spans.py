"""Spans of rows: which part of its recording is a row, for every layout with columns of times.

    start  end    duration     a row has start and end, or start and duration, as its table writes them
    4.2    7.9                 seconds, milliseconds or samples, by the header or by the recordings

A span fits if it is inside its recording and is not shorter than MIN_SPAN_S. If the header names no unit,
the unit in which more different spans fit is that of all rows of the source; if both fit alike, or fewer than
half of the spans, the import asks. If a recording is as long as the span of its row, it was cut before, and
is imported whole. A duration alone is compared with that of the recording.
"""

import logging
import statistics
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import soundfile

from indextts.data.importing.columns import Columns
from indextts.data.importing.items import Item, Rejection, Row, cut_id
from indextts.data.importing.journal import Entry
from indextts.data.importing.parquet import AudioReader
from indextts.errors import UserError
from indextts.features.decoding import as_readable
from indextts.system.amounts import counted

logger = logging.getLogger(__name__)

TO_END = -1.0  # as the end of a span, in Kaldi
MIN_SPAN_S = 0.1  # a word; times in seconds that are read as milliseconds are far shorter
_LATE_S = 0.5  # of an end after the recording's: ends are often rounded up
_SAME_S = 0.1  # between a span and a recording that is this span; lossy formats pad
_CUT_S = 0.5  # the same if the span is outside of the recording: it was cut with some silence
_PER_S = {"ms": 1e3, "s": 1.0}

Length = tuple[float, int]  # in seconds, and the sample rate


def with_spans(items: Sequence[Item], columns: Mapping[Path, Columns]) -> list[Item]:
    """Return the items, with the rows that have times as spans of their recordings.

    Args:
        columns: of tables, for messages.

    Raises:
        UserError: the unit of the times cannot be decided, or they belong to other recordings.
    """
    timed = [item for item in items if isinstance(item, Row) and item.times]
    if not timed:
        return list(items)
    lengths: dict[object, Length | None] = {}
    reader = AudioReader()
    with tempfile.TemporaryDirectory() as folder:
        for row in timed:
            if _recording(row) not in lengths:
                lengths[_recording(row)] = _length(row, reader, Path(folder))
    open_rows = [row for row in timed if row.times and not row.times[2]]
    unit = _unit(open_rows, lengths, columns) if open_rows else ""
    found = [_with_span(item, unit, lengths) if isinstance(item, Row) else item for item in items]
    repeated = Counter(item.key for item in found if isinstance(item, Row))
    if num_spans := sum(isinstance(item, Row) and item.span is not None for item in found):
        text = "%s: %s cut at the times in the table, in %s"
        shown = unit or (timed[0].times and timed[0].times[2])
        logger.info(text, timed[0].where.file, counted(num_spans, "row"), shown)
    return [_named(item, repeated) if isinstance(item, Row) and item.span else item for item in found]


def _recording(row: Row) -> object:
    return (row.audio, row.embedded) if row.embedded else row.audio


def _length(row: Row, reader: AudioReader, folder: Path) -> Length | None:
    """Return the length of a recording; None if it cannot be read, which the import reports."""
    path = row.audio
    if row.embedded is not None:
        audio = reader.read(row)
        if isinstance(audio, Rejection):
            return None
        path = folder / "embedded"
        path.write_bytes(audio[0])
    readable = as_readable(path, folder / "decoded.flac", "mean")
    if isinstance(readable, tuple):
        return None
    return readable.duration_s, soundfile.info(readable.path).samplerate


def _seconds(row: Row, unit: str, length: Length) -> tuple[float, float]:
    assert row.times is not None
    start, end, written = row.times
    per_s = length[1] if written == "samples" else _PER_S[written or unit]
    return round(start / per_s, 6), round(end / per_s, 6)


def _fits(span: tuple[float, float], length_s: float) -> bool:
    start, end = span
    is_inside = end <= length_s + _LATE_S and length_s - start >= MIN_SPAN_S
    return end - start >= MIN_SPAN_S and (is_inside or _is_all(span, length_s))


def _is_all(span: tuple[float, float], length_s: float) -> bool:
    """Return whether a recording is a span already: of another recording, or of itself."""
    difference_s = abs(span[1] - span[0] - length_s)
    return difference_s <= (_CUT_S if span[1] > length_s + _LATE_S else _SAME_S)


def _unit(
    rows: Sequence[Row], lengths: Mapping[object, Length | None], columns: Mapping[Path, Columns]
) -> str:
    """Return the unit of times whose header names none; a UserError if both or neither would fit."""
    known = [(row, length) for row in rows if (length := lengths[_recording(row)])]
    num_spans = len({(_recording(row), row.times) for row, _ in known})
    num_s, num_ms = (_num_fitting(known, unit) for unit in ("s", "ms"))
    if not known or (num_s != num_ms and 2 * max(num_s, num_ms) >= num_spans):
        return "ms" if num_ms > num_s else "s"
    table = rows[0].where.file
    found = columns.get(table, Columns((), has_header=True))
    raise UserError(
        f"{table.name}: the times could be seconds, milliseconds or samples: {num_s:,} of {num_spans:,} "
        f"spans fit the recordings in seconds, {num_ms:,} in milliseconds; name the unit in the header, as "
        f"start_s, start_ms or start_sample, or pass for example {found.choice('ms')}; if the recordings are "
        f"cut already, leave the times out: {found.choice(None)}"
    )


def _num_fitting(known: Sequence[tuple[Row, Length]], unit: str) -> int:
    """Return the number of spans that fit in a unit; those that nearly coincide are one."""
    spans = [(_recording(row), _seconds(row, unit, length), length[0]) for row, length in known]
    return len({(name, *(round(time, 1) for time in span)) for name, span, end in spans if _fits(span, end)})


def _with_span(row: Row, unit: str, lengths: dict[object, Length | None]) -> Row | Rejection:
    """Return the row with its span in seconds, or without one if it is the entire recording."""
    if row.times is None:
        if _recording(row) not in lengths:
            return row
        reason = "no times, although other rows are parts of its recording; fill them in"
        return Rejection(row.where, "bad_time", reason)
    length = lengths[_recording(row)] or (1e9, 1)  # the import reports one that cannot be read
    start_s, end_s = _seconds(row, unit, length)
    span = start_s, length[0] if end_s == TO_END else end_s
    if _is_all(span, length[0]):
        return replace(row, times=None)
    if not _fits(span, length[0]):
        reason = f"{span[0]:g} to {span[1]:g} s is no part of the recording, which lasts {length[0]:.2f} s"
        return Rejection(row.where, "bad_time", reason)
    return replace(row, times=None, span=span)


def _named(row: Row, repeated: Counter[str]) -> Row:
    """Return a row with a span, under a key and an id that no other row of the recording has."""
    assert row.span is not None
    recording = row.recording or row.id
    if repeated[row.key] > 1 or row.key == row.named:
        start, end = (round(1000 * time) for time in row.span)
        row = replace(row, key=f"{row.key} {start}-{end}", id=cut_id(row.id, row.span[0]))
    elif row.recording is None and row.named:
        recording = Path(row.named.replace("\\", "/")).stem
    return replace(row, recording=recording)


def log_durations(source: Path, imported: Sequence[tuple[Row, Entry]]) -> None:
    """Log how many durations in the data are not those of the recordings, and the largest difference."""
    found = [  # in the data, of the recording, its name
        (row.duration, clip.duration, row.named)
        for row, entry in imported
        for clip in entry.clips
        if row.duration and not clip.original
    ]
    if not found:
        return
    per_s = statistics.median(told / duration_s for told, duration_s, _ in found)
    unit = next((unit for unit in (1, 1000) if 0.8 < per_s / unit < 1.25), None)
    if unit is None:  # something else, such as letters
        return
    differences = [(abs(told / unit - duration_s), told / unit, name) for told, duration_s, name in found]
    differing = [each for each in differences if each[0] > max(0.5, 0.1 * each[1])]
    if differing:
        difference_s, told_s, name = max(differing)
        text = "%s: the data give a wrong duration for %s, by up to %.2f s (%s has %.2f s there); check them"
        logger.warning(text, source, counted(len(differing), "recording"), difference_s, name, told_s)
