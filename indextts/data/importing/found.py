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
"""

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
