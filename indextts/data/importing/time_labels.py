r"""Read texts with the times at which they are spoken: labels of Audacity, tiers of Praat.

    NAME.txt         START_S \t END_S \t TEXT in each line; lines with \ have frequencies
    NAME.TextGrid    tiers of intervals, in the long or the short form: the only tier with sentences, else the
                     text of all words

Format: https://www.fon.hum.uva.nl/praat/manual/TextGrid_file_formats.html.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from indextts.data.importing.items import Items, Location, Rejection, Row
from indextts.data.importing.text_lines import text_lines
from indextts.text.languages import Language

_LABEL = re.compile(r"(\d+(?:[.,]\d+)?)\t(\d+[.,]\d+)(?:\t(.*))?", re.ASCII)
# Strings, where "" is a quote, and numbers that are not in brackets or words: both forms have these.
_TOKEN = re.compile(r'"(?:[^"]|"")*"|(?<![\w\[.-])-?\d+(?:\.\d+)?(?:e[+-]?\d+)?(?![\w\]])', re.IGNORECASE)
_PARTS = re.compile(
    r"\b(?:words?|phones?|phonemes?|syllables?|segments?|kan|mas|mau|ort-mau)\b", re.IGNORECASE
)
_WORDS = re.compile(r"\bwords?\b", re.IGNORECASE)
_MOST = 0.5  # of the letters
_SILENCE = frozenset(["", "sil", "sp", "spn", "<eps>", "<p:>", "<sil>", "_", "#", "-"])

Interval = tuple[float, float, str]
Tiers = list[tuple[str, list[Interval]]]


def is_label(line: str) -> bool:
    """Return whether a line of a text file is a label of Audacity."""
    return _LABEL.fullmatch(line) is not None


def label_rows(path: Path, row: Row) -> Items:
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


def textgrid_rows(path: Path, row: Row, language: Language) -> Items:
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
