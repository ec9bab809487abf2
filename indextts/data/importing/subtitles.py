r"""Subtitles: SRT and WebVTT as they are found, and their texts without what nobody says.

Read are files with or without a byte order mark, without index numbers, with dots for commas, without hours,
without the blank line between two subtitles, and with blank lines inside of one (SRT).

Taken off are tags (<i>, <c>, {\an8}), word times, entities, labels of speakers (">>", "ABEBE:", a leading
dash), and sounds in brackets. Sung text and two persons in one subtitle are no clip of one voice: they are
rejected, and their times stay as borders for their neighbours.

Rolling captions: each shows again what the one before showed, and the new words after it.

    00.0 - 02.0   ሰላም ለዓለም            ->   00.0 - 02.0   ሰላም ለዓለም
    02.0 - 04.5   ሰላም ለዓለም ዛሬ ደግሞ     ->   02.0 - 04.5   ዛሬ ደግሞ
    04.5 - 04.6   ዛሬ ደግሞ              ->   (nothing new)

The words that are there again are taken off, and the times follow: what a caption says anew is said after it
appears, and the one before was over by then. A line that is really said twice stays: its captions are apart,
or the file does not roll.
"""

import html
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

from indextts.data.importing.found import Rejection, Where
from indextts.data.importing.text_lines import BadText, text_lines

MAX_TIME_S = 100 * 3600.0

_TIME = r"(?:(\d{1,3}):)?(\d{1,2}):(\d{1,2})(?:[.,](\d{1,3}))?"
_TIMING = re.compile(rf"\s*{_TIME}\s*-{{1,2}}>\s*{_TIME}(?:\s.*)?", re.ASCII)
_HEADER = re.compile(r"([A-Za-z-]+):\s*(.*)")
_INDEX = re.compile(r"\s*\d+\s*", re.ASCII)
_SKIPPED_BLOCKS = ("NOTE", "STYLE", "REGION")

_VOICE = re.compile(r"<v(?:\.[\w.-]+)?\s+([^>]+)>")
_TAGS = re.compile(r"<[^>\n]*>|\{\\[^}\n]*\}")
_MUSIC = re.compile("[\u2669-\u266f\U0001f3b5\U0001f3b6\U0001f3bc]")
_SOUND_WORDS = "music|applause|laugh|cheer|sound|noise|silence|ሙዚቃ|ጭብጨባ|ሳቅ|ድምፅ|ድምጽ|እልልታ|ፀጥታ|ጸጥታ"
_SOUNDS = re.compile(rf"\[[^\]\n]*\]|\((?=[^)\n]*(?:{_SOUND_WORDS}))[^)\n]*\)", re.IGNORECASE)
_MUSIC_NOTE = re.compile(r"[\[(]\s*(?:music|song|ሙዚቃ|መዝሙር|ዘፈን)[^\])\n]*[\])]", re.IGNORECASE)
_DASH = re.compile(r"^\s*[-‐‑–—]+\s*")
_LABEL = re.compile(r"^\s*(?:>+\s*|(?:[A-Z][A-Z0-9 .'-]{0,30}|Speaker \d+|ተናጋሪ ?\d*)\s*[:፡፦]\s+)+")


@dataclass(frozen=True, slots=True)
class Cue:
    """One subtitle.

    Args:
        text: "" for one that is a border only: its speech belongs to no clip.
        voice: who speaks, from WebVTT's voice tags.
    """

    start_s: float
    end_s: float
    text: str
    line: int
    voice: str | None = None


@dataclass
class Subtitles:
    """A file's subtitles in the order of their times, what was refused, and WebVTT's header."""

    cues: list[Cue] = field(default_factory=list)
    rejections: list[Rejection] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class _Block:
    start_s: float
    end_s: float
    line: int
    lines: list[str] = field(default_factory=list)


def read_subtitles(path: Path) -> Subtitles:
    """Return the subtitles of a file, their texts as written, lines and tags included.

    Raises:
        OSError: the file cannot be read.
    """
    result = Subtitles()
    for block in _blocks(path, result):
        if not block.start_s < block.end_s <= MAX_TIME_S:
            reason = f"it would last from {block.start_s:.3f} to {block.end_s:.3f} s"
            result.rejections.append(Rejection(Where(path, block.line), "bad_time", reason))
            continue
        result.cues.append(Cue(block.start_s, block.end_s, "\n".join(block.lines), block.line))
    result.cues.sort(key=lambda cue: (cue.start_s, cue.end_s, cue.line))
    return result


def cleaned(path: Path, cues: list[Cue]) -> tuple[list[Cue], list[Rejection]]:
    """Return the subtitles with what is spoken: "" for those refused and for sounds; blank ones go."""
    kept = []
    rejections = []
    for cue in cues:
        if not _plain(cue.text).strip():
            continue
        code, reason = _refused(cue.text)
        if code:
            rejections.append(Rejection(Where(path, cue.line), code, reason))
        voices = _VOICE.findall(cue.text)
        voice = html.unescape(voices[0]).strip() if len(set(voices)) == 1 else None
        kept.append(replace(cue, text="" if code else spoken_text(cue.text), voice=voice))
    return kept, rejections


def spoken_text(text: str) -> str:
    """Return the text of a subtitle as one line, without what nobody says."""
    lines = []
    for line in _SOUNDS.sub(" ", _plain(text)).split("\n"):
        said = _LABEL.sub("", _DASH.sub("", line))
        lines += said.split()
    return " ".join(lines)


def _plain(text: str) -> str:
    return html.unescape(_TAGS.sub("", text)).replace("\u200b", "").replace("\xa0", " ")


def _refused(text: str) -> tuple[str, str]:
    """Return code and reason for a subtitle that is no clip of one voice; empty where it is one."""
    plain = _plain(text)
    if _MUSIC.search(plain) and spoken_text(_MUSIC.sub("", plain)):
        return "music", "the text is marked as sung"
    dashed = [line for line in plain.split("\n") if _DASH.match(line) or line.lstrip().startswith(">>")]
    if len(dashed) > 1 or len(set(_VOICE.findall(text))) > 1:
        return "dialogue", "two persons speak"
    return "", ""


def _blocks(path: Path, result: Subtitles) -> Iterator[_Block]:
    """Yield the subtitles as they stand in the file."""
    block: _Block | None = None
    is_webvtt = is_skipped = False
    for number, line in text_lines(path):
        if isinstance(line, BadText):
            result.rejections.append(Rejection(Where(path, number), line.code, line.reason))
            block = None  # the rest of it is not all that is said
            continue
        if number == 1 and line.startswith("WEBVTT"):
            is_webvtt = True
            continue
        timing = _TIMING.fullmatch(line)
        if timing:
            if block is not None:
                yield _without_next_index(block)
            block, is_skipped = _Block(*_times(timing), number), False
        elif is_webvtt and not line.strip():
            if block is not None:
                yield block
            block, is_skipped = None, False
        elif block is not None:
            block.lines.append(line)
        elif is_webvtt and not is_skipped:
            is_skipped = line.split(maxsplit=1)[0] in _SKIPPED_BLOCKS
            header = _HEADER.fullmatch(line)
            if header and not result.cues and not is_skipped:
                result.headers.setdefault(header[1].lower(), header[2].strip())
    if block is not None:
        yield block


def _without_next_index(block: _Block) -> _Block:
    """Take the index of the following subtitle off the end of this one's lines."""
    if block.lines and _INDEX.fullmatch(block.lines[-1]):
        block.lines.pop()
    return block


def _times(timing: re.Match[str]) -> tuple[float, float]:
    groups = timing.groups()
    return _seconds(groups[:4]), _seconds(groups[4:])


def _seconds(parts: tuple[str | None, ...]) -> float:
    hours, minutes, seconds, fraction = parts
    whole = 3600 * int(hours or 0) + 60 * int(minutes or 0) + int(seconds or 0)
    return whole + (int(fraction.ljust(3, "0")) / 1000 if fraction else 0.0)


MAX_GAP_S = 0.15  # between captions that roll: they follow each other at once, or overlap
MIN_ROLLING_SHARE = 0.3  # of all neighbours, from which on a file is one that rolls
MIN_WORDS = 3  # that neighbours share, where a file does not roll


def unrolled(cues: Sequence[Cue]) -> tuple[list[Cue], bool]:
    """Return the captions with the words that each says anew, at the times when they are said.

    Args:
        cues: cleaned, in the order of their start.

    Returns:
        The captions, and whether the file is one that rolls.
    """
    shared = [_shared_words(first, second) for first, second in pairwise(cues)]
    touching = [
        bool(first.text and second.text and second.start_s - first.end_s <= MAX_GAP_S)
        for first, second in pairwise(cues)
    ]
    num_rolling = sum(count > 0 and touch for count, touch in zip(shared, touching, strict=True))
    is_rolling = num_rolling > MIN_ROLLING_SHARE * max(1, len(shared))
    least = 1 if is_rolling else MIN_WORDS
    result: list[Cue] = list(cues[:1])
    for cue, count, touch in zip(cues[1:], shared, touching, strict=True):
        if not touch or count < least:
            result.append(cue)
            continue
        words = cue.text.split()[count:]
        last = result[-1]
        if not words:  # shown on: what it says is still being said
            result[-1] = replace(last, end_s=max(last.end_s, cue.end_s))
        elif cue.start_s <= last.start_s:
            result[-1] = replace(last, end_s=cue.end_s, text=" ".join([last.text, *words]))
        else:
            result[-1] = replace(last, end_s=min(last.end_s, cue.start_s))
            result.append(replace(cue, text=" ".join(words)))
    return result, is_rolling


def _shared_words(first: Cue, second: Cue) -> int:
    """Return how many words at the end of the first are those at the beginning of the second."""
    before, after = first.text.split(), second.text.split()
    for count in range(min(len(before), len(after)), 0, -1):
        if before[-count:] == after[:count]:
            return count
    return 0
