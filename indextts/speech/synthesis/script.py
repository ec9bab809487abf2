"""Texts with voices and chapters, and their sounds as one file.

    # A heading          begins a chapter, and is spoken
    abebe: A text        is spoken in the voice abebe of --voices, like a subtitle with this voice tag;
                         abebe.wav there, or abebe=RECORDING
    A text               is spoken in that of --voice

The one file is OUTPUT/NAME.wav for subtitles, each at its time or later, and else OUTPUT/NAME.m4b.
"""

import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import av
import numpy as np
import soundfile

from indextts.data.importing.items import AUDIO_SUFFIXES, Passage
from indextts.errors import UserError, disk_errors
from indextts.system.amounts import counted
from indextts.system.files import written_aside

logger = logging.getLogger(__name__)

HEADING = "# "
NAMED = re.compile(r"(?:# )?\s*([^\W\d][^:፦=]{0,39}?)\s*[:፦]\s*(\S.*)")  # name: text
PAUSE_S = 0.5  # between texts
MAX_LATE_S = 0.05  # of a cue, which nobody notices


class Item(NamedTuple):
    """A text to speak; without a voice in that of --voice; of a subtitle with its `cue`."""

    text: str
    voice: Path | None
    cue: Passage | None
    is_heading: bool


def require_voices(places: Sequence[Path]) -> None:
    """Raise a UserError unless all files and folders of --voices exist."""
    if missing := [str(place) for place in places if not _named(place)[1].exists()]:
        raise UserError(
            f"--voices {missing[0]}: not found; pass recordings, NAME=RECORDING or a folder of recordings"
        )


def voices_in(places: Sequence[Path]) -> dict[str, Path]:
    """Return the recording of each voice in files and folders; of two with the same name, the first."""
    found: dict[str, Path] = {}
    for name, place in map(_named, places):
        for path in sorted(place.iterdir()) if place.is_dir() else [place]:
            if path.suffix.lower() in AUDIO_SUFFIXES and path.is_file():
                found.setdefault(path.stem if place.is_dir() else name, path)
    return found


def _named(place: Path) -> tuple[str, Path]:
    """Return the name and the path of NAME=RECORDING; of any other path its stem."""
    name, is_named, path = str(place).partition("=")
    return (name, Path(path)) if is_named and not place.exists() else (place.stem, place)


def names_in(lines: Iterable[str]) -> list[str]:
    """Return the names before the texts of a dialogue, each once."""
    return list(dict.fromkeys(found[1] for line in lines if (found := NAMED.fullmatch(line.strip()))))


def item_of(line: str, voices: Mapping[str, Path], cue: Passage | None = None) -> Item:
    """Return a line without its marks; a name that is no voice is spoken with the text."""
    text, voice = line.removeprefix(HEADING), voices.get((cue and cue.voice) or "")
    if voices and not voice and (found := NAMED.fullmatch(line)):
        if found[1] in voices:
            voice, text = voices[found[1]], found[2]
        else:
            logger.warning("%r is no voice of --voices, so it is spoken with its text", found[1])
    return Item(text, voice, cue, line.startswith(HEADING))


def join(path: Path, items: Sequence[Item], files: Sequence[Path | None], rate_hz: int) -> Iterator[str]:
    """Write the sounds of `items` as one file, an item without a file as none; yield the lines to print."""
    starts, late, chapters, end, base = list[int](), list[str](), list[Any](), 0, Fraction(1, rate_hz)
    for item, file in zip(items, files, strict=True):
        cue, pause = item.cue, round(PAUSE_S * rate_hz) if end else 0
        starts.append(max(end, round(cue.start_s * rate_hz)) if cue else end + pause)
        end = starts[-1] + (soundfile.info(file).frames if file else 0)
        if cue and (late_s := end / rate_hz - cue.end_s) > MAX_LATE_S:
            late.append(f"  {cue.start_s:.2f} to {cue.end_s:.2f} s: ends {late_s:.2f} s late: {cue.text}")
        if item.is_heading:
            chapter = {"id": len(chapters), "start": starts[-1] if chapters else 0, "time_base": base}
            chapters.append({**chapter, "metadata": {"title": item.text}})
        for chapter in chapters[-2:]:
            chapter["end"] = end if chapter is chapters[-1] else chapters[-1]["start"]
    container, codec = ("wav", "pcm_s16le") if path.suffix == ".wav" else ("ipod", "aac")
    where = disk_errors(f"--output {path}")
    with where, written_aside(path) as aside, av.open(str(aside), "w", format=container) as output:
        stream = output.add_stream(codec, rate=rate_hz, layout="mono")
        assert isinstance(stream, av.AudioStream)
        output.set_chapters(chapters)
        written = 0
        for start, file in zip(starts, files, strict=True):
            if file:
                sound = np.pad(soundfile.read(file, dtype="int16")[0], (start - written, 0))
                frame = av.AudioFrame.from_ndarray(sound[None], format="s16", layout="mono")
                frame.sample_rate, frame.pts, frame.time_base = rate_hz, written, base
                output.mux(stream.encode(frame))
                written += len(sound)
        output.mux(stream.encode(None))
    too_long = f", {len(late)} of them too long for their time" if any(item.cue for item in items) else ""
    yield f"{path}: {counted(len(items), 'text')}{too_long}, {counted(len(chapters), 'chapter')}"
    yield from late
