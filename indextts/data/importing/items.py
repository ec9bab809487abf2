"""Items of a source: rows and rejections, with their ids, file names and suffixes.

Each line of rejected.jsonl is a rejection:

    {"source": "recordings", "file": "metadata.csv", "line": 3, "code": "empty_text", "reason": "..."}

`line` is absent if the rejection concerns the entire file, or an object of a JSON array. The codes:

    broken_file      a parquet file or Excel workbook that is corrupt, incomplete or has a password
    broken_row       an invalid line of a table or of JSON
    line_too_long    longer than any sentence
    encoding         bytes that are neither UTF-8 nor UTF-16
    other_form       a file in a form that is not read, with the way to convert it
    not_text         a binary file instead of a text
    empty_text       no text, or none after removing the markup of subtitles
    no_audio_named   a row without a recording
    missing_audio    the recording does not exist
    ambiguous_audio  several recordings match the name, or one matches the names of several rows
    outside          the recording is outside the allowed folders
    unreadable_audio truncated, or a format that neither libsndfile nor PyAV reads
    no_sound         a video without sound
    channels         several channels with different sounds, such as two speakers
    no_text          a recording without text or subtitles
    no_audio         a text or subtitles without a recording
    no_speaker       no speaker, although other rows of the source have speakers; or no known voice
    duplicate        a second row for the same recording
    other_text       the project already contains this recording with another text
    language         subtitles in another language, or machine-translated
    bad_time         a row or subtitle that ends before it starts, or is outside the recording
    music            sung text, marked with music symbols
    dialogue         two speakers in one subtitle
    not_heard        a sentence, or the text of a file, that was not found in its recording
    no_pause         no silence at a boundary of the clip within the maximum length
    no_speech        no speech during the subtitle
    too_short, too_long   outside the requested lengths
"""

import hashlib
import math
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from indextts.data.manifest import Provenance

MAX_TEXT_CHARS = 20_000  # of a clip: minutes of speech are some hundreds
CONTROL = re.compile("[\x00-\x08\x0b\x0e-\x1f\x7f\ufffd\ud800-\udfff]")
_TABLES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
_MISSING = frozenset(["", *_TABLES["missing"].split()])
NO_SPEAKERS = frozenset(_TABLES["no_speakers"].split())  # values that repeat
_CLOCK = re.compile(r"(?:(\d+):)?(\d{1,2}):(\d{1,2}(?:[.,]\d+)?)")
_NUMBERED = re.compile(r"(\d+)\.0+")  # an integer that passed through a column of floats
_TIMES = frozenset(["start", "end", "duration"])
SPLITS: dict[str, str] = {name: split for split, names in _TABLES["splits"].items() for name in names.split()}
_HALVES = re.compile("[\ufffd\ud800-\udfff]")  # what stands for bytes that are no character


@dataclass(frozen=True, slots=True)
class Location:
    """Location in a source: a file, and a line number from 1 unless the entire file is meant."""

    file: Path
    line: int | None = None
    place: str = ""  # shown before the reason of a rejection, such as "object 3: " of a JSON array


@dataclass(frozen=True, slots=True)
class Rejection:
    """Unusable item of a source, with the reason."""

    where: Location
    code: str
    reason: str

    def record(self, source: str, root: Path) -> dict[str, object]:
        """Return the record for rejected.jsonl, with a file relative to `root` or to its folder."""
        file = self.where.file
        folder = root.parent if file == root or root.is_file() else root
        shown = str(file.relative_to(folder)) if file.is_relative_to(folder) else str(file)
        line = {} if self.where.line is None else {"line": self.where.line}
        return {
            "source": source,
            "file": shown,
            **line,
            "code": self.code,
            "reason": self.where.place + self.reason,
        }


Times = tuple[float, float, str]  # start and end of a row as written, and their unit as in `Columns`
Problem = tuple[str, str]  # code and reason of a rejection


@dataclass(frozen=True, slots=True)
class Embedded:
    """Audio bytes in a row, from 0, of a parquet file."""

    column: str
    row: int


@dataclass(frozen=True, slots=True)
class Row:
    """Row of a source: a recording or a span of it with its text, or a long recording with subtitles."""

    where: Location
    named: str = ""  # the recording, as the data name it
    text: str = ""  # empty for a recording with subtitles, and for a text that is too long for a clip
    speaker: str | None = None  # the speaker in the data; None if unknown
    language: str | None = None
    id: str = ""  # the preferred id in the project; "" for that of the name
    key: str = ""  # the unique and stable name within the source; "" for the id or the name
    recording: str | None = None  # the longer recording that the clip was cut from; None if unknown
    span: tuple[float, float] | None = None  # start and end in the recording, in seconds; None for all of it
    times: Times | None = None  # the same as written in a table, until spans.py knows their unit
    duration: float | None = None  # of the recording, as a table without starts gives it, in its unit
    split: str | None = None  # "train", "val" or "test", as written until reading.py; None without one
    license: str | None = None  # of the recording, in the data
    embedded: Embedded | None = None  # where its audio is, if the table contains it
    subtitles: Path | None = None  # the file with the texts and their times
    text_file: Path | None = None  # the file with the text, which may have more than a clip
    provenance: Provenance | None = None  # how a program found the text; only in manifests of this project
    folders: tuple[Path, ...] = ()  # where the recording is looked for first, before the folder of the file
    audio: Path = Path()  # the recording that was found (references.py), or the parquet file that contains it
    found_by: str = ""  # how it was found; "" for one in a parquet file
    original_text: str = ""  # the text with its marks, if the import removed some; else ""
    keep: tuple[str, ...] = ()  # kinds of marks that stay in the subtitles or in the text file


Item = Row | Rejection
Items = Iterator[Item]  # of a reader


@dataclass(frozen=True, slots=True)
class Passage:
    """A subtitle, or a clip to cut: a part of a recording with its text."""

    start_s: float
    end_s: float
    text: str  # empty for a subtitle that is only a boundary: its speech belongs to no clip
    line: int  # in the file of the text; that of the first subtitle of a clip
    voice: str | None = None  # the speaker, from WebVTT's voice tags
    provenance: Provenance | None = None
    original: str = ""  # the text as in the file, if it had marks; else ""


def filled(value: str) -> str:
    """Return a value without blanks around it; "" if it stands for a missing one."""
    value = value.strip()
    return "" if len(value) < 10 and value.lower() in _MISSING else value


def shown_value(value: object) -> str:
    """Return a value of JSON or parquet as text, 3.0 as "3"; "" for null and what is no text or number."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else ""


def time_of(value: str) -> tuple[float, bool] | None:
    """Return a time, and whether it is in seconds, as 1:02:03.5 and 5.2s are; None if it is no time."""
    if clock := _CLOCK.fullmatch(value):
        hours, minutes, seconds = clock.groups(default="0")
        return 3600 * int(hours) + 60 * int(minutes) + float(seconds.replace(",", ".")), True
    plain = value.removesuffix("s").rstrip()
    try:
        number = float(plain.replace(",", "."))
    except ValueError:
        return None
    return (number, plain != value) if math.isfinite(number) else None


def row_of(
    where: Location,
    values: Mapping[str, str],
    key: str = "",
    embedded: Embedded | None = None,
    unit: str = "",
) -> Row | Rejection:
    """Return a row from the values of its columns; the spoken form is the text.

    Args:
        values: by name, as in `Columns`; others are not read.
        key, embedded: as in `Row`.
        unit: of the times, as in `Columns`.
    """
    found = {name: value for name, written in values.items() if name and (value := filled(written))}
    for name, value in found.items():
        if len(value) > MAX_TEXT_CHARS:
            reason = f"more than {MAX_TEXT_CHARS:,} characters, too many for the {name} of a clip; split it"
            return Rejection(where, "line_too_long", reason)
    checked = check_line(where, "".join(found.values()))
    if isinstance(checked, Rejection):
        return checked
    text = (found.get("spoken") or found.get("text", "")).replace("\ufeff", "")
    if text.count("?") > 2 and not any(map(str.isalnum, text)):
        reason = "only question marks: a program saved the file in a code page without the letters; save it "
        return Rejection(where, "encoding", f"{reason}as UTF-8 (in Excel, CSV UTF-8) where the text is right")
    has_starts = "start" in values or "end" in values
    times = _times_of(found, unit) if has_starts and not _TIMES.isdisjoint(found) else None
    duration = None if has_starts else time_of(found.get("duration", ""))
    if times is not None and not 0 <= times[0] < times[1]:
        written = ", ".join(f"{name} {value}" for name, value in found.items() if name in _TIMES)
        return Rejection(where, "bad_time", f"{written}: the start is not before the end; correct the times")
    speaker = found.get("speaker")
    numbered = _NUMBERED.fullmatch(speaker) if speaker else None
    return Row(
        where,
        named=found.get("audio", ""),
        text=text,
        speaker=numbered[1] if numbered else speaker,
        language=found.get("language"),
        id=found.get("id", ""),
        key=key,
        recording=found.get("recording"),
        times=times,
        duration=duration and duration[0],
        split=found.get("split"),
        license=found.get("license"),
        embedded=embedded,
    )


def split_of(written: str) -> str | None:
    """Return the split that "Train", "dev-clean" or "test_other" means; None if it is unknown."""
    return SPLITS.get(re.split(r"[^a-z]", written.strip().lower())[0])


def _times_of(found: Mapping[str, str], unit: str) -> Times:
    """Return start and end of a row as written; an empty span if they are invalid."""
    start, end, duration = (time_of(found.get(name, "0")) for name in ("start", "end", "duration"))
    if not (start and end and duration) or ("end" in found and "start" not in found):
        return 0.0, 0.0, unit
    last = end[0] if "end" in found else start[0] + duration[0]
    return start[0], last, "s" if start[1] or end[1] or duration[1] else unit


def check_line(where: Location, text: str) -> str | Rejection:
    """Return a text, or a rejection if it has invalid characters."""
    if not CONTROL.search(text):
        return text
    if _HALVES.search(text):
        reason = "some bytes are not UTF-8, perhaps of a Windows code page (1252); save the file as UTF-8"
        return Rejection(where, "encoding", reason)
    return Rejection(where, "not_text", "control characters in the text; remove them")


# Lower case only: on some file systems A.wav and a.wav are the same file.
_SAFE_NAME = re.compile(r"[a-z0-9_][a-z0-9_.-]{0,99}")
_SAFE_SUFFIX = re.compile(r"\.[a-z0-9]{1,8}")
_SHARDS = re.compile(r"-of-\d+$")  # train-00000-of-00003.parquet
_DIGEST_CHARS = 8


def file_name(id: str, suffix: str) -> str:
    """Return a file name that is safe on any file system and unique for every id."""
    suffix = safe_suffix(suffix)
    if _SAFE_NAME.fullmatch(id):
        return id + suffix
    readable = re.sub(r"[^a-z0-9_]+", "_", id.lower())[:80]
    return f"{readable}-{hashlib.sha256(id.encode()).hexdigest()[:16]}{suffix}"


def safe_suffix(suffix: str) -> str:
    """Return the suffix of a file in lower case; empty for an unusual suffix."""
    return suffix.lower() if _SAFE_SUFFIX.fullmatch(suffix.lower()) else ""


def distinct(id: str, sha256: str) -> str:
    """Return a unique id for a recording whose preferred id belongs to another recording."""
    return f"{id}-{sha256[:_DIGEST_CHARS]}"


def without_shards(table: Path) -> Path:
    """Return the path of a table without suffix and number of shards, which changes when the data grow."""
    return table.with_name(_SHARDS.sub("", table.stem))


def cut_id(recording: str, start_s: float) -> str:
    """Return the id of a clip that starts at `start_s` of a recording; ids sort by time."""
    return f"{recording}_{round(1000 * start_s):09d}"


def source_name(source: Path, output_dir: Path) -> str:
    """Return the name of a source in the journal: relative within a project, which may be moved."""
    project = output_dir.resolve().parent
    source = source.resolve()
    return str(source.relative_to(project)) if source.is_relative_to(project) else str(source)


SNDFILE_SUFFIXES, FFMPEG_SUFFIXES, SUBTITLE_SUFFIXES, _texts = (
    frozenset(suffixes.split()) for suffixes in _TABLES["suffixes"].values()
)
AUDIO_SUFFIXES, TEXT_SUFFIXES = SNDFILE_SUFFIXES | FFMPEG_SUFFIXES, SUBTITLE_SUFFIXES | _texts
# Forms that are not read, and how to convert them.
OTHER_FORMS = {suffix: way for way, suffixes in _TABLES["other_forms"].items() for suffix in suffixes.split()}
PARQUET_SUFFIX = ".parquet"
KALDI_NAMES = ("wav.scp", "text", "utt2spk", "segments")


def is_hidden(name: Path) -> bool:
    """Return whether a path in a source is of a hidden file, or in a folder that only macOS reads."""
    return any(part.startswith(".") or part == "__MACOSX" for part in name.parts)


def files_below(folder: Path) -> Iterator[Path]:
    """Yield the files of a folder and its subfolders without hidden ones; symlinks to folders stay closed."""
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not is_hidden(Path(name))]
        yield from (Path(place) / name for name in sorted(names) if not name.startswith("."))


def may_be_read(name: Path) -> bool:
    """Return whether the import reads files of this name."""
    return (
        name.suffix.lower() in AUDIO_SUFFIXES | TEXT_SUFFIXES | {PARQUET_SUFFIX, *OTHER_FORMS}
        or name.name in KALDI_NAMES
    )
