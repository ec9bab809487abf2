r"""Read folders of recordings with texts or subtitles of the same name.

NAME.wav NAME.txt | NAME.lab           a clip and its text, or a long recording and its text (data/aligning)
NAME.mp3 NAME.srt | NAME.am.vtt ...    a long recording and its subtitles
NAME.txt                               labels of Audacity: START_S \t END_S \t TEXT; \ before frequencies
NAME.TextGrid                          tiers of Praat, in the long or the short form: the only tier with
                                       sentences, else the text of all words
NAME.info.json                         metadata of a video from yt-dlp, optional
wav48/p225/NAME.wav txt/p225/NAME.txt  a clip and its text in parallel folders, as in VCTK

Format of Praat: https://www.fon.hum.uva.nl/praat/manual/TextGrid_file_formats.html.
"""

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from indextts.data.importing.items import (
    AUDIO_SUFFIXES,
    MAX_TEXT_CHARS,
    OTHER_FORMS,
    SUBTITLE_SUFFIXES,
    Items,
    Location,
    Rejection,
    Row,
    files_below,
)
from indextts.data.importing.subtitles import foreign_by_name, is_language_tag
from indextts.data.importing.text_lines import text_lines
from indextts.text.languages import Language

_TIMES = re.compile(r"\d+(?:\.\d+)? \d+(?:\.\d+)? \S")  # a label file: start, end and name in each line
_PARALLEL = frozenset(
    [
        *("audio", "clips", "wav", "wavs", "wav48", "wav48_silence_trimmed"),
        *("lab", "text", "texts", "transcripts", "txt"),
    ]
)
_NO_TEXT = (
    "no text or subtitles of the same name in its folder; tools/transcribe.py writes texts by recognizers"
)
_LABEL = re.compile(r"(\d+(?:[.,]\d+)?)\t(\d+[.,]\d+)(?:\t(.*))?", re.ASCII)
# Strings, where "" is a quote, and numbers that are not in brackets or words: both forms have these.
_TOKEN = re.compile(r'"(?:[^"]|"")*"|(?<![\w\[.-])-?\d+(?:\.\d+)?(?:e[+-]?\d+)?(?![\w\]])', re.IGNORECASE)
_PARTS = re.compile(
    r"\b(?:words?|phones?|phonemes?|syllables?|segments?|kan|mas|mau|ort-mau)\b", re.IGNORECASE
)
_WORDS = re.compile(r"\bwords?\b", re.IGNORECASE)
_MOST = 0.5  # of the letters
_SILENCE = frozenset(["", "sil", "sp", "spn", "<eps>", "<p:>", "<sil>", "_", "#", "-"])
_MICROPHONE = re.compile(r"_mic\d$")  # VCTK has each sentence from two

Interval = tuple[float, float, str]
Tiers = list[tuple[str, list[Interval]]]


@dataclass
class _SameName:
    """Files of a folder with the same name except for the suffix."""

    audio: list[Path] = field(default_factory=list)
    texts: list[Path] = field(default_factory=list)
    subtitles: list[Path] = field(default_factory=list)


def read_files(root: Path, language: Language) -> Items:
    """Yield the recordings with a text or subtitles below a folder, and rejections, sorted by name.

    Args:
        root: a folder, or a recording or subtitle file, for the files of its name only.
    """
    base = root if root.is_dir() else root.parent
    for path in files_below(root) if root.is_dir() else []:
        if way := OTHER_FORMS.get(path.suffix.lower()):
            yield Rejection(Location(path), "other_form", way)
    for (folder, stem), files in sorted(_groups(root).items()):
        if files.audio:
            row = Row(
                Location(folder),
                key=str(folder.relative_to(base) / stem),
                id="_".join([*folder.relative_to(base).parts, stem]),
                folders=(folder,),
            )
            yield from _with_audio(files, row, language)
        else:
            for path in [*files.texts, *files.subtitles]:
                yield Rejection(Location(path), "no_audio", "no recording of the same name in its folder")


def _groups(root: Path) -> dict[tuple[Path, str], _SameName]:
    groups: dict[tuple[Path, str], _SameName] = defaultdict(_SameName)
    subtitles = []
    for path in files_below(root) if root.is_dir() else sorted(root.parent.iterdir()):
        suffix = path.suffix.lower()
        if suffix in AUDIO_SUFFIXES:
            groups[path.parent, path.stem].audio.append(path)
        elif suffix in (".txt", ".lab", ".textgrid"):
            groups[path.parent, path.stem].texts.append(path)
        elif suffix in SUBTITLE_SUFFIXES:
            subtitles.append(path)
    for path in subtitles:  # last, to know whether part.one.srt belongs to part.one.mp3
        name, _, tag = path.stem.rpartition(".")
        is_tagged = name and (path.parent, path.stem) not in groups and is_language_tag(tag)
        groups[path.parent, name if is_tagged else path.stem].subtitles.append(path)
    if root.is_dir():
        _join_parallel(groups, root)
        return groups
    return {
        key: files for key, files in groups.items() if root in (*files.audio, *files.texts, *files.subtitles)
    }


def _join_parallel(groups: dict[tuple[Path, str], _SameName], root: Path) -> None:
    """Move texts without a recording to the recording in the parallel folder, such as wav48/ for txt/."""

    def place(folder: Path, stem: str) -> tuple[str, ...]:
        return (*(part for part in folder.relative_to(root).parts if part.lower() not in _PARALLEL), stem)

    audio, texts = defaultdict(list), defaultdict(list)
    for key, files in sorted(groups.items()):
        if files.audio and not files.texts and not files.subtitles:
            audio[place(key[0], _MICROPHONE.sub("", key[1]))].append(key)
        elif files.texts and not files.audio and not files.subtitles:
            texts[place(*key)].append(key)
    for name, keys in texts.items():
        if len(keys) == 1 and (found := audio[name]):
            groups[found[0]].texts = groups.pop(keys[0]).texts
            for other in found[1:]:
                groups[found[0]].audio += groups.pop(other).audio


def _with_audio(files: _SameName, row: Row, language: Language) -> Items:
    """Yield the row of a recording with its text or subtitles, and rejections."""
    audio, *others = sorted(
        files.audio, key=lambda path: (path.suffix.lower() not in (".wav", ".flac"), path)
    )
    for other in others:
        yield Rejection(Location(other), "duplicate", f"using {audio.name} of the same name instead")
    row = replace(row, named=audio.name)
    usable = []
    for path in files.subtitles:
        reason = foreign_by_name(path, language) if path.stem != audio.stem else None
        if reason:
            yield Rejection(Location(path), "language", reason)
        else:
            usable.append(path)
    if usable:
        # Prefer SRT: converters from WebVTT drop rolling lines and word times.
        subtitles, *unused = sorted(usable, key=lambda path: (path.suffix.lower() != ".srt", path))
        for path in unused:
            yield Rejection(Location(path), "duplicate", f"using {subtitles.name} instead")
        yield replace(row, where=Location(subtitles), subtitles=subtitles)
    elif files.texts:
        # a plain text first: what aligns it writes a TextGrid of its words
        text_file = min(files.texts, key=lambda path: (path.suffix.lower() == ".textgrid", path))
        if text_file.suffix.lower() == ".textgrid":
            yield from _textgrid_rows(text_file, row, language)
        elif next(
            (_LABEL.fullmatch(line) for _, line in text_lines(text_file) if isinstance(line, str)), None
        ):
            yield from _label_rows(text_file, row)
        else:
            yield _with_text(row, text_file)
    elif not files.subtitles:
        yield Rejection(Location(audio), "no_text", _NO_TEXT)


def _with_text(row: Row, text_file: Path) -> Row | Rejection:
    where = Location(text_file)
    parts: list[str] = []
    num_chars = 0
    for _, line in text_lines(text_file):
        if isinstance(line, Rejection):
            return replace(line, where=where)
        num_chars += len(line)
        if num_chars > MAX_TEXT_CHARS:  # a long recording, which the text is aligned with
            return replace(row, where=where, text_file=text_file)
        parts += line.split()
    text = " ".join(parts)
    if _TIMES.match(text):
        return Rejection(where, "not_text", "times of phones or words, not a text")
    if not text:
        return Rejection(where, "empty_text", "the text is empty; fill it in or remove the file")
    return replace(row, where=where, text=text, text_file=text_file)


def _label_rows(path: Path, row: Row) -> Items:
    """Yield the labels of a file as parts of the recording of `row`, and rejections."""
    for where, line in text_lines(path):
        label = _LABEL.fullmatch(line) if isinstance(line, str) else None
        if isinstance(line, Rejection):
            yield line
        elif label:
            start, end = (float(time.replace(",", ".")) for time in label.groups()[:2])
            yield replace(row, where=where, text=(label[3] or "").strip(), times=(start, end, "s"))
        elif line.strip() and not line.startswith("\\"):
            yield Rejection(where, "broken_row", "not START, END and text with tabs; correct the line")


def _textgrid_rows(path: Path, row: Row, language: Language) -> Items:
    """Yield the sentences of a TextGrid as parts of the recording of `row`, or a rejection of the file."""
    lines = [line for _, line in text_lines(path)]
    where = Location(path)
    try:
        tiers = _tiers(_TOKEN.findall("\n".join(line for line in lines if isinstance(line, str))))
    except (StopIteration, ValueError, RuntimeError):
        yield Rejection(where, "not_text", "not a TextGrid of Praat; save it as a text file")
        return
    filled = [
        (name, found)
        for name, tier in tiers
        if (found := [each for each in tier if each[2].lower() not in _SILENCE])
    ]
    texts = [(name, tier) for name, tier in filled if not _PARTS.search(name)]
    if "Latn" not in language.scripts:
        texts = [
            (name, tier)
            for name, tier in texts
            if language.share(" ".join(text for *_, text in tier)) >= _MOST
        ]
    words = [tier for name, tier in filled if _WORDS.search(name)]
    if len(texts) == 1:
        for number, (start, end, text) in enumerate(texts[0][1], start=1):
            place = Location(path, place=f"interval {number}: ")
            yield replace(row, where=place, text=" ".join(text.split()), times=(start, end, "s"))
    elif len(words) == 1 and not texts:
        yield replace(row, where=where, text=" ".join(text for *_, text in words[0]))
    else:
        shown = ", ".join(name for name, _ in texts or filled) or "none"
        reason = (
            f"no single tier has the sentences (tiers with texts: {shown}); leave one of them in the file"
        )
        yield Rejection(where, "no_text", reason)


def _tiers(tokens: Sequence[str]) -> Tiers:
    """Return the names and intervals of the tiers; raises StopIteration or ValueError for another file."""
    left = iter(tokens)
    if [next(left), next(left)] != ['"ooTextFile"', '"TextGrid"']:
        raise ValueError
    tiers = []
    _start, _end, count = next(left), next(left), int(next(left))
    for _ in range(count):
        kind, name, _, _, size = next(left), _text(next(left)), next(left), next(left), int(next(left))
        if kind == '"IntervalTier"':
            tier = [(float(next(left)), float(next(left)), _text(next(left))) for _ in range(size)]
            tiers.append((name, tier))
        else:  # points
            for _ in range(2 * size):
                next(left)
    return tiers


def _text(token: str) -> str:
    return token[1:-1].replace('""', '"').strip()
