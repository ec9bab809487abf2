"""Read SRT and WebVTT subtitles, and reduce them to spoken text.

The parser accepts files with or without a byte order mark, without index numbers, with dots instead of
commas, without hours, without the blank line between subtitles, and with blank lines inside a subtitle (SRT).

Marks are removed as from all texts (indextts/text/transcript_marks.py). Sung text and subtitles with two
speakers are rejected; their times remain as boundaries for their neighbours.

Rolling captions repeat the previous caption before the new words:

    00.0 - 02.0   ሰላም ለዓለም            ->   00.0 - 02.0   ሰላም ለዓለም
    02.0 - 04.5   ሰላም ለዓለም ዛሬ ደግሞ     ->   02.0 - 04.5   ዛሬ ደግሞ
    04.5 - 04.6   ዛሬ ደግሞ              ->   (nothing new)

Unrolling removes the repeated words and adjusts the times: new words are spoken after their caption appears,
and the previous caption ends by then. A line that is spoken twice remains, because its captions do not touch
or the file does not roll.

Subtitles in another language and machine translations are rejected:

    name          talk.en.srt is English; talk.am-en.vtt is Amharic translated from English
    header        "Language: en" of WebVTT
    yt-dlp        talk.info.json: a URL with `tlang=` is a translation, and so are captions in the language of
                  the data set of a video in another one
    letters       the share of letters in the script of the language; for Amharic, letters of Tigrinya

Other translations into the language cannot be distinguished from transcripts.

Cues may have two languages, one below the other. Pairs of letters tell the first half of the lines of each
cue from the second, by what the other cues have there; in wrapped texts of one language, both have the same.
"""

import html
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

from indextts.data.importing.items import Location, Passage, Rejection
from indextts.data.importing.text_lines import text_lines
from indextts.system.files import read_object
from indextts.system.language_codes import standard_code
from indextts.text.ethiopic import MAX_TIGRINYA_SHARE, tigrinya_share
from indextts.text.languages import AMHARIC, Language, find_language
from indextts.text.transcript_marks import NOTES, clean_transcripts

MAX_TIME_S = 100 * 3600.0
MAX_GAP_S = 0.15  # between rolling captions, which follow each other immediately or overlap
MIN_ROLLING_SHARE = 0.3  # of all neighbours, for a rolling file
MIN_WORDS = 3  # repeated by a neighbour, in a file that does not roll

_TIME = r"(?:(\d{1,3}):)?(\d{1,2}):(\d{1,2})(?:[.,](\d{1,3}))?"
_TIMING = re.compile(rf"\s*{_TIME}\s*-{{1,2}}>\s*{_TIME}(?:\s.*)?", re.ASCII)
_HEADER = re.compile(r"([A-Za-z-]+):\s*(.*)")
_INDEX = re.compile(r"\s*\d+\s*", re.ASCII)
_SKIPPED_BLOCKS = ("NOTE", "STYLE", "REGION")

_VOICE = re.compile(r"<v(?:\.[\w.-]+)?\s+([^>]+)>")
_NEXT_SPEAKER = re.compile(r"^(?:\s|<[^>\n]*>|\{[^}\n]*\})*(?:[-‐‑–—]|>>|(?:&gt;){2})", re.MULTILINE)

MIN_OWN_SHARE = 0.5  # of the letters: a Latin name does not make a subtitle foreign
_TAG = re.compile(r"([a-z]{2,3})(?:-([A-Za-z]{2,4}|[0-9]{3}|orig))*", re.ASCII)
_ORIGINAL = "orig"  # of yt-dlp's names: the language of the video itself
_MAX_INFO_BYTES = 32 * 2**20
_MIN_LETTERS_TO_JUDGE = 3

MIN_PAIRS = 16  # cues with two languages: fewer are as different by chance
TOLD_NATS = 10.0
MIN_TOLD = 0.6  # share of cues; of wrapped texts at most 0.43, of two languages at least 0.8 from 30 cues on


@dataclass
class Subtitles:
    """Subtitles of a file in the order of their times, rejections, and WebVTT's header."""

    cues: list[Passage] = field(default_factory=list)
    rejections: list[Rejection] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)


def read_cues(
    subtitles: Path, audio: Path, language: str, keep: Sequence[str] = (), line: int = 0
) -> tuple[list[Passage], bool, list[Rejection]]:
    """Return the usable subtitles, whether they roll, and the rejections.

    Args:
        language: ISO 639 code of the data set.
        keep: kinds of marks that stay.
        line: the language of cues with two: 1 the upper lines, 2 the lower ones, 0 refuses the file.
    """
    spoken = find_language(language)
    read = read_subtitles(subtitles)
    if (pairs := two_languages(read.cues, is_chosen=line > 0)) and not line:
        first, second = next(pair for pair in pairs if pair)
        reason = (
            f"its cues have two languages, {first[:40]!r} above {second[:40]!r}; choose the spoken one with "
            "--subtitle-line 1 (above) or 2 (below) of the import"
        )
        return [], False, [Rejection(Location(subtitles), "language", reason)]
    for number, pair in enumerate(pairs):
        if not pair:
            reason = "in a file with two languages, a cue with a single or an odd number of lines"
            read.rejections.append(Rejection(Location(subtitles, read.cues[number].line), "language", reason))
        read.cues[number] = replace(read.cues[number], text=pair[line - 1] if pair else "")
    cues, is_rolling = unroll_cues(spoken_cues(subtitles, read, keep))
    rejections = read.rejections
    text = " ".join(cue.text for cue in cues)
    if not text.strip():
        reason = "no subtitle with spoken text"
        return [], False, [*rejections, Rejection(Location(subtitles), "empty_text", reason)]
    foreign = (
        foreign_by_header(read.headers, spoken)
        or foreign_by_info(subtitles, audio, spoken)
        or foreign_by_letters(text, spoken)
    )
    if foreign:
        return [], False, [*rejections, Rejection(Location(subtitles), "language", foreign)]
    for number, cue in enumerate(cues):
        letters = sum(char.isalpha() for char in cue.text)
        foreign_cue = foreign_by_script(cue.text, spoken) if letters >= _MIN_LETTERS_TO_JUDGE else None
        if foreign_cue:
            rejections.append(Rejection(Location(subtitles, cue.line), "language", foreign_cue))
            cues[number] = replace(cue, text="")  # only a boundary
    return cues, is_rolling, rejections


def read_subtitles(path: Path) -> Subtitles:
    """Return the subtitles of a file with their line ends and tags; an OSError if it cannot be read."""
    result = Subtitles()
    for cue in _cues(path, result):
        if cue.start_s < cue.end_s <= MAX_TIME_S:
            result.cues.append(cue)
        else:
            reason = f"invalid times, from {cue.start_s:.3f} to {cue.end_s:.3f} s"
            result.rejections.append(Rejection(Location(path, cue.line), "bad_time", reason))
    result.cues.sort(key=lambda cue: (cue.start_s, cue.end_s, cue.line))
    return result


def two_languages(cues: Sequence[Passage], *, is_chosen: bool = False) -> list[tuple[str, str] | None]:
    """Return the upper and lower half of the lines of each cue if they are in two languages, else [].

    Args:
        is_chosen: the user named a language, so that too few cues to tell also count.
    """
    halves: list[tuple[str, str] | None] = []
    for cue in cues:
        lines = [line for line in cue.text.splitlines() if line.strip()]
        middle = len(lines) // 2
        is_even = bool(lines) and len(lines) == 2 * middle
        halves.append(("\n".join(lines[:middle]), "\n".join(lines[middle:])) if is_even else None)
    pairs = [pair for pair in halves if pair]
    if not pairs or 2 * len(pairs) <= len(halves):
        return []
    if len(pairs) < MIN_PAIRS:
        return halves if is_chosen else []
    return halves if _told_apart(pairs) >= MIN_TOLD else []


def _told_apart(pairs: Sequence[tuple[str, str]]) -> float:
    """Return the share of pairs whose first and second text are told apart by the letters of the others."""
    grams = [[_letter_pairs(text) for text in pair] for pair in pairs]
    num_told = 0
    for fold in (0, 1):
        above, below = (
            Counter(gram for pair in grams[1 - fold :: 2] for gram in pair[side]) for side in (0, 1)
        )
        num_kinds = len(above | below)
        bias = math.log((below.total() + num_kinds) / (above.total() + num_kinds))
        for first, second in grams[fold::2]:
            nats = [
                sum(math.log((above[gram] + 1) / (below[gram] + 1)) + bias for gram in half)
                for half in (first, second)
            ]
            num_told += nats[0] - nats[1] > TOLD_NATS
    return num_told / len(pairs)


def _letter_pairs(text: str) -> list[str]:
    words = " ".join(text.casefold().split())
    letters = [" ", *(char for char in words if char.isalpha() or char == " "), " "]
    return [first + second for first, second in pairwise(letters)]


def has_voices(path: Path) -> bool:
    """Return whether subtitles have voice tags, which name speakers; an OSError if they cannot be read."""
    return any(isinstance(line, str) and _VOICE.search(line) for _, line in text_lines(path))


def spoken_cues(path: Path, read: Subtitles, keep: Sequence[str] = ()) -> list[Passage]:
    """Return the subtitles with spoken text, empty for rejected ones and sounds, without blank ones."""
    kept = []
    cleaned = clean_transcripts([cue.text.replace("\u200b", "") for cue in read.cues], keep)
    for cue, (text, marks) in zip(read.cues, cleaned, strict=True):
        text, original, voices = (
            " ".join(text.split()),
            " ".join(cue.text.split()),
            set(_VOICE.findall(cue.text)),
        )
        if not text and all(mark.kind in ("markup", "times") for mark in marks):
            continue
        code, reason = "", ""
        if text and any(note in cue.text for note in NOTES):
            code, reason = "music", "the text is marked as sung"
        elif len(_NEXT_SPEAKER.findall(cue.text)) > 1 or len(voices) > 1:
            code, reason = "dialogue", "the subtitle has two speakers"
        if code:
            read.rejections.append(Rejection(Location(path, cue.line), code, reason))
        voice = html.unescape(voices.pop()).strip() if len(voices) == 1 else None
        original = "" if original == text else original
        kept.append(replace(cue, text="" if code else text, voice=voice, original=original))
    return kept


def _cues(path: Path, result: Subtitles) -> Iterator[Passage]:
    """Yield the subtitles in the order of the file."""
    cue: Passage | None = None
    lines: list[str] = []
    is_webvtt = is_skipped = False
    for where, line in text_lines(path):
        if isinstance(line, Rejection):
            result.rejections.append(line)
            cue = None  # its text would be incomplete
            continue
        if where.line == 1 and line.startswith("WEBVTT"):
            is_webvtt = True
            continue
        timing = _TIMING.fullmatch(line)
        if timing:
            if cue is not None:
                has_index = bool(lines) and _INDEX.fullmatch(lines[-1])  # that of this subtitle
                yield replace(cue, text="\n".join(lines[:-1] if has_index else lines))
            start_s, end_s = _seconds(timing.groups()[:4]), _seconds(timing.groups()[4:])
            cue, lines, is_skipped = Passage(start_s, end_s, "", where.line or 1), [], False
        elif is_webvtt and not line.strip():
            if cue is not None:
                yield replace(cue, text="\n".join(lines))
            cue, is_skipped = None, False
        elif cue is not None:
            lines.append(line)
        elif is_webvtt and not is_skipped:
            is_skipped = line.split(maxsplit=1)[0] in _SKIPPED_BLOCKS
            header = _HEADER.fullmatch(line)
            if header and not result.cues and not is_skipped:
                result.headers.setdefault(header[1].lower(), header[2].strip())
    if cue is not None:
        yield replace(cue, text="\n".join(lines))


def _seconds(parts: tuple[str | None, ...]) -> float:
    hours, minutes, seconds, fraction = parts
    whole = 3600 * int(hours or 0) + 60 * int(minutes or 0) + int(seconds or 0)
    return whole + (int(fraction.ljust(3, "0")) / 1000 if fraction else 0.0)


def unroll_cues(cues: Sequence[Passage]) -> tuple[list[Passage], bool]:
    """Return captions in order without repeated words and with adjusted times, and whether they roll."""
    shared = [_shared_words(first, second) for first, second in pairwise(cues)]
    touching = [
        bool(first.text and second.text and second.start_s - first.end_s <= MAX_GAP_S)
        for first, second in pairwise(cues)
    ]
    num_rolling = sum(count > 0 and touch for count, touch in zip(shared, touching, strict=True))
    is_rolling = num_rolling > MIN_ROLLING_SHARE * max(1, len(shared))
    min_words = 1 if is_rolling else MIN_WORDS
    result: list[Passage] = list(cues[:1])
    for cue, count, touch in zip(cues[1:], shared, touching, strict=True):
        if not touch or count < min_words:
            result.append(cue)
            continue
        words = cue.text.split()[count:]
        last = result[-1]
        if not words:  # the same words, shown for longer
            result[-1] = replace(last, end_s=max(last.end_s, cue.end_s))
        elif cue.start_s <= last.start_s:
            result[-1] = replace(last, end_s=cue.end_s, text=" ".join([last.text, *words]))
        else:
            result[-1] = replace(last, end_s=min(last.end_s, cue.start_s))
            result.append(replace(cue, text=" ".join(words)))
    return result, is_rolling


def _shared_words(first: Passage, second: Passage) -> int:
    """Return the number of words at the end of the first that the second starts with."""
    before, after = first.text.split(), second.text.split()
    for count in range(min(len(before), len(after)), 0, -1):
        if before[-count:] == after[:count]:
            return count
    return 0


def is_language_tag(text: str) -> bool:
    """Return whether the part of a file name before .srt is a language tag: am, amh, am-ET, en-US, am-en."""
    return _TAG.fullmatch(text) is not None


def foreign_by_name(path: Path, language: Language) -> str | None:
    """Return the reason to reject a subtitle file by its name, or None."""
    tag = path.stem.rpartition(".")[2]
    if tag == path.stem or not is_language_tag(tag):
        return None
    code, *parts = tag.split("-")
    if standard_code(code) != language.code:
        return f"by its name, the language is {code}; use {language.name} subtitles"
    not_translated = {_ORIGINAL, *map(str.lower, language.scripts)}
    if any(part.islower() and part not in not_translated for part in parts):
        return f"by its name, it is translated from {parts[-1]}; use a transcript"
    return None


def foreign_by_header(headers: Mapping[str, str], language: Language) -> str | None:
    """Return the reason to reject WebVTT subtitles by their header, or None."""
    code = headers.get("language", "").lower()
    if not code or standard_code(code) == language.code:
        return None
    return f"by its header, the language is {code}; use {language.name} subtitles"


def foreign_by_info(subtitles: Path, audio: Path, language: Language) -> str | None:
    """Return the reason to reject subtitles of a downloaded video by its .info.json, or None."""
    info_file = audio.with_name(f"{audio.stem}.info.json")
    if not info_file.is_file() or info_file.stat().st_size > _MAX_INFO_BYTES:
        return None
    info = read_object(info_file)
    code = info.get("language")
    if isinstance(code, str) and code and standard_code(code) != language.code:
        return f"the video is in {code}, so {language.name} subtitles are a translation; use a transcript"
    requested = info.get("requested_subtitles")
    entry = requested.get(subtitles.stem.rpartition(".")[2]) if isinstance(requested, dict) else None
    if isinstance(entry, dict) and re.search(r"[?&]tlang=", str(entry.get("url", ""))):
        return "machine-translated subtitles (tlang in the URL); use a transcript"
    return None


def foreign_by_letters(text: str, language: Language) -> str | None:
    """Return the reason to reject the text of all subtitles by its letters, or None."""
    if language.code == AMHARIC and tigrinya_share(text) > MAX_TIGRINYA_SHARE:
        return f"{tigrinya_share(text):.1%} of the letters are Tigrinya; use Amharic subtitles"
    return foreign_by_script(text, language)


def foreign_by_script(text: str, language: Language) -> str | None:
    """Return the reason to reject a text, such as a single subtitle, by its script, or None."""
    share = language.share(text)
    return (
        f"only {share:.0%} of the letters are in the script of {language.name}; use subtitles in it"
        if share < MIN_OWN_SHARE
        else None
    )
