"""What the readers of a source hand on: recordings with what is known of them, and what cannot be used.

    REJECTED   rejected.jsonl, one JSON object in a line

    {"source": "recordings", "file": "metadata.csv", "line": 3, "code": "empty_text", "reason": "..."}

`line` is absent where a whole file is meant. The codes:

    broken_row       a line of a table or of JSON that cannot be taken apart
    line_too_long    longer than any sentence
    encoding         bytes that are neither UTF-8 nor UTF-16
    not_text         a binary file in place of a text
    empty_text       no text, or none after the subtitles' marks were taken off
    no_audio_named   a row without a recording
    missing_audio    the recording is not there
    outside          the recording lies outside of the folders that may be read
    unreadable_audio no format that libsndfile, or ffmpeg, reads; or it breaks off
    no_sound         a video without sound
    no_text          a recording without text or subtitles
    no_audio         a text or subtitles without a recording
    no_speaker       nobody is named, although others of the source are
    duplicate        a second row for the same recording or id
    other_text       this recording is in the project already, with another text
    language         subtitles that are not Amharic, or a machine's translation
    bad_time         a subtitle that ends before it starts, or lies outside of the recording
    music            sung text, marked by music signs
    dialogue         two persons in one subtitle
    no_pause         no silence between it and its neighbours within the greatest length
    no_speech        nobody speaks there
    too_short, too_long   outside of the lengths that are asked for

File names and ids of what is imported: safe on any file system, the same at each import.

Which files are recordings and which are texts, by their suffix.
"""

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Where:
    """A place in a source: a file, and its line (from 1) where one is meant."""

    file: Path
    line: int | None = None


@dataclass(frozen=True, slots=True)
class Rejection:
    """Something of a source that cannot be used, and why."""

    where: Where
    code: str
    reason: str

    def record(self, source: str, root: Path) -> dict[str, object]:
        """Return the line of rejected.jsonl; the file is relative to the source `root`, or to its folder."""
        file = self.where.file
        folder = root.parent if file == root or root.is_file() else root
        shown = str(file.relative_to(folder)) if file.is_relative_to(folder) else str(file)
        line = {} if self.where.line is None else {"line": self.where.line}
        return {"source": source, "file": shown, **line, "code": self.code, "reason": self.reason}


@dataclass(frozen=True, slots=True)
class Found:
    """A recording of a source: a clip with its text, or a long one with subtitles to cut it by.

    Args:
        key: what names it within its source, whatever else is there.
        id: the id that it would like to have.
        text: "" where there are subtitles.
        speaker: as the data name it; None if they do not.
        recording: the longer recording that the clip was cut from, if the data name one.
    """

    key: str
    id: str
    audio: Path
    where: Where
    text: str = ""
    subtitles: Path | None = None
    speaker: str | None = None
    language: str | None = None
    recording: str | None = None


# Lower case only: on some file systems A.wav and a.wav are one file.
_SAFE_NAME = re.compile(r"[a-z0-9_][a-z0-9_.-]{0,99}")
_SAFE_SUFFIX = re.compile(r"\.[a-z0-9]{1,8}")
_DIGEST_CHARS = 8


def file_name(id: str, suffix: str) -> str:
    """Return a name that is safe everywhere and differs for every id, whatever else is imported."""
    suffix = safe_suffix(suffix)
    if _SAFE_NAME.fullmatch(id):
        return id + suffix
    readable = re.sub(r"[^a-z0-9_]+", "_", id.lower())[:80]
    return f"{readable}-{hashlib.sha256(id.encode()).hexdigest()[:16]}{suffix}"


def safe_suffix(suffix: str) -> str:
    """Return the suffix of a file in lower case, "" for a strange one."""
    return suffix.lower() if _SAFE_SUFFIX.fullmatch(suffix.lower()) else ""


def distinct(id: str, sha256: str) -> str:
    """Return another id for a recording whose own is taken by a different recording."""
    return f"{id}-{sha256[:_DIGEST_CHARS]}"


def cut_id(recording: str, start_s: float) -> str:
    """Return the id of a clip that begins at `start_s` of a recording: they sort as they are spoken."""
    return f"{recording}_{round(1000 * start_s):09d}"


def source_name(source: Path, output_dir: Path) -> str:
    """Return what a source is called in the journal: relative in a project, which may be moved."""
    project = output_dir.resolve().parent
    source = source.resolve()
    return str(source.relative_to(project)) if source.is_relative_to(project) else str(source)


SNDFILE_SUFFIXES = frozenset(
    [
        ".wav",
        ".flac",
        ".ogg",
        ".oga",
        ".opus",
        ".mp3",
        ".aiff",
        ".aif",
        ".aifc",
        ".au",
        ".snd",
        ".caf",
        ".w64",
    ]
)
FFMPEG_SUFFIXES = frozenset(
    [
        *(".m4a", ".m4b", ".mp4", ".m4v", ".mkv", ".mka", ".webm", ".mov", ".avi", ".aac", ".wma", ".wmv"),
        *(".amr", ".3gp", ".ts", ".mpg", ".mpeg", ".flv", ".ac3"),
    ]
)
AUDIO_SUFFIXES = SNDFILE_SUFFIXES | FFMPEG_SUFFIXES
SUBTITLE_SUFFIXES = (".srt", ".vtt", ".webvtt")
TEXT_SUFFIXES = frozenset([".txt", ".csv", ".tsv", ".list", ".json", ".jsonl", *SUBTITLE_SUFFIXES])
