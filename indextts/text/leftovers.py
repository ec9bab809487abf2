"""Parts of a text that the rules leave unread or cannot know: people should look at them and add readings.

    kind           form          why
    digits         5ኛA           the spoken form still has digits
    abbreviation   ሀ/ል, ክ.ጥ.     unknown, with slashes or dots; its letters are read as words
    latin          WhatsApp      the model may never have heard the word
    mixed          አBC           letters of both scripts, other than a prefix or an ending
    mark           [laugh], <b>  a mark of a transcript, which is not read
    sign           √, ©, |       a sign that a space replaces
    repaired       በ|ላ           a word with letters instead of signs of an old font

The forms are those of the text after the readings, so a form with a reading is no longer listed.
"""

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

from indextts.commands.normalizer_options import DEFAULT_OPTIONS, NormalizerOptions
from indextts.text.abbreviations import LETTER_NAMES, PREFIXES
from indextts.text.ethiopic import ETHIOPIC_LETTERS as L
from indextts.text.languages import AMHARIC, find_language
from indextts.text.marks import unspoken_signs
from indextts.text.normalize import is_amharic, steps, word_differences
from indextts.text.transcript_marks import BRACKETS, clean_transcript

LeftoverKind = Literal["digits", "abbreviation", "latin", "mixed", "mark", "sign", "repaired"]


class Leftover(NamedTuple):
    """A written form, and why somebody should look at it."""

    kind: LeftoverKind
    form: str


# One part of an abbreviation has a single letter; እና/ወይም and ነው.እሱ are words.
_PREFIX = re.compile(f"(?:{PREFIXES}){{1,2}}(?=[A-Za-z])")
_WITH_SLASH = re.compile(rf"(?<![{L}/.\d])[{L}]+(?:/[{L}]+)+")
_BEFORE_PARTS = re.compile(rf"\A(?:{PREFIXES}){{1,2}}(?=[{L}]+[/.][{L}])")
_WITH_DOTS = re.compile(rf"(?<![{L}/.\d])[{L}]{{1,3}}(?:\.[{L}]{{1,3}})+\.?(?![{L}])")
_NAMES = "|".join(sorted(LETTER_NAMES.values(), key=len, reverse=True))
_OF_NAMES = re.compile(rf"(?:{PREFIXES}){{0,2}}(?:{_NAMES})+(?:\.(?:{_NAMES})+)*\.?")
_LATIN = re.compile(rf"[{L}]*[A-Za-z][A-Za-z{L}'&-]*")
_ENDING = rf"[{L}]{{1,3}}"
_LATIN_WORD = re.compile(rf"[A-Za-z][A-Za-z'&-]*?(?:-?{_ENDING})?")
_DIGITS = re.compile(r"\S*\d\S*")
# the rules that separate the parts of unknown abbreviations
_SLASHES, _DOTS = "slashes", "dots in words"


def find_leftovers(text: str, options: NormalizerOptions = DEFAULT_OPTIONS) -> list[Leftover]:
    """Return the leftovers of a text, each form once per kind."""
    read = before_slashes = before_dots = spoken = text
    others: list[Leftover] = []
    for rule, after in steps(text, options):
        if rule.name in ("characters", "readings", "transcript marks"):
            read = after
        if rule.name == _SLASHES:
            before_slashes = spoken
        elif rule.name == _DOTS:
            before_dots = spoken
        elif rule.name == "transcript marks":
            marks = clean_transcript(spoken).marks if after != spoken else ()
            others += [Leftover("mark", mark.text) for mark in marks if mark.kind != BRACKETS]
        elif rule.name == "font damage":
            others += [Leftover("repaired", before) for before, _ in word_differences(spoken, after)]
        elif rule.name == "symbols":
            others += [Leftover("sign", sign) for sign in unspoken_signs(spoken)]
        spoken = after
    found: list[Leftover] = [
        Leftover("digits", match[0].strip(".,?!'-")) for match in _DIGITS.finditer(spoken)
    ]
    if options.language == AMHARIC and is_amharic(read):
        forms = [form for form in _abbreviations(before_slashes, before_dots) if form in read]
        found += [
            Leftover("abbreviation", _BEFORE_PARTS.sub("", form, count=1).rstrip(".")) for form in forms
        ]
        found += _latin(read, spoken)
    elif "Latn" not in find_language(options.language).scripts:
        found += _latin(read, spoken)
    return list(dict.fromkeys(found + others))


def _abbreviations(before_slashes: str, before_dots: str) -> Iterator[str]:
    """Yield the unknown abbreviations, with numbers that are read already."""
    for match in _WITH_SLASH.finditer(before_slashes):
        if min(map(len, _BEFORE_PARTS.sub("", match[0], count=1).split("/"))) == 1:
            yield match[0]
    for match in _WITH_DOTS.finditer(before_dots):
        if not _OF_NAMES.fullmatch(match[0]) and min(map(len, match[0].rstrip(".").split("."))) == 1:
            yield match[0]


def _latin(read: str, spoken: str) -> Iterator[Leftover]:
    """Yield the words with Latin letters that are still in the spoken form."""
    for match in _LATIN.finditer(read):
        word = _PREFIX.sub("", match[0], count=1).strip("'&-")
        latin = "".join(char for char in word if char.isascii())
        if not latin or latin.strip("'&-").upper() not in spoken.upper():
            continue
        if _LATIN_WORD.fullmatch(word):
            yield Leftover("latin", re.sub(rf"-?{_ENDING}\Z", "", word))
        else:
            yield Leftover("mixed", word)
