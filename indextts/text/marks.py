"""Punctuation and signs: Ethiopic marks to ASCII first, all marks to those of the published model last.

The published sentence splitter knows only . ! ? … , and -. The rules in order:

    Ethiopic marks      . , ? or a space; colons depend on their context (`_COLON`)
    quotes, brackets    '        as in the published front end
    dashes              -        as in the published front end
    ideographs          separated by spaces, as in the published front end

The rules of words and numbers run in between, because they need the original brackets and dashes. Signs that
the number rules leave are spoken if they have a name; otherwise a space replaces them.
"""

import re
import unicodedata
from collections.abc import Callable

from indextts.commands.normalizer_options import NormalizerOptions
from indextts.text.abbreviations import PREFIXES
from indextts.text.amharic import TABLES
from indextts.text.ethiopic import ETHIOPIC_LETTERS as L

# Meanings of a colon or an Ethiopic word space; the first matching alternative counts. Times come before full
# stops made of two word spaces, which come before single word spaces.
_COLON = re.compile(
    r"(?P<time>(?<=[0-9])[:፡፥](?=[0-9]))"
    r"|(?P<stop>[:፡](?:\s*[:፡])+(?:\s*።)*|[:፡](?:\s*።)+)"
    r"|(?P<preface>[:፡፦][-\u2013\u2014])"
    rf"|(?P<space>(?<=[{L}]):(?=[{L}])|፡)"
    r"|(?P<address>(?<=\w):(?=//))"
    r"|(?P<comma>:)"
)
_COLON_TO = {"time": ":", "stop": "።", "preface": "፦", "space": " ", "address": ":", "comma": ","}

_DIVISION_SIGN_AS_COLON = re.compile(rf"(?<=[{L}])÷")
_MARKS = "[።፣፤፥፦፧፨]"
# Ethiopic marks are often written without a following space, but SentencePiece needs it to see the start of
# the next word. A mark between two digits gets no space.
_SPACE_MISSING = re.compile(rf"(?<={_MARKS})(?=[^\W\d_])|(?<=(?<!\d){_MARKS})(?=\d)")
_ETHIOPIC_TO_ASCII = {
    **dict.fromkeys("።፨。．", "."),
    **dict.fromkeys("፣፤፥፦;；：，、", ","),
    **dict.fromkeys("፧？", "?"),
    **dict.fromkeys("！¡", "!"),
}
# A regular expression is faster than str.translate, which looks up every Ethiopic letter.
_ANY_ETHIOPIC_MARK = re.compile(f"[{''.join(_ETHIOPIC_TO_ASCII)}]")


def ethiopic_marks_to_ascii(text: str) -> str:
    """Return `text` with ASCII marks instead of Ethiopic marks and their look-alikes."""
    if ":" in text or "፡" in text or "፦" in text or "፥" in text:
        text = _COLON.sub(lambda match: _COLON_TO[str(match.lastgroup)], text)
    if "÷" in text:
        text = _DIVISION_SIGN_AS_COLON.sub("፥", text)
    if _ANY_ETHIOPIC_MARK.search(text):
        text = _ANY_ETHIOPIC_MARK.sub(
            lambda match: _ETHIOPIC_TO_ASCII[match[0]], _SPACE_MISSING.sub(" ", text)
        )
    return tidy(text)


_SPACE_BEFORE_MARK = re.compile(r" +(?=[,!?…]|\.(?!\d))")
_ELLIPSIS = re.compile(r"(?:\.{3,}|,{3,}|…)+")
_REPEATED = re.compile(r"([.,'])\1+")
_MAY_REPEAT = re.compile(r"\.\.|,,|''|…")


def tidy(text: str) -> str:
    """Return `text` with single spaces, no space before a mark, and single marks."""
    text = _SPACE_BEFORE_MARK.sub("", " ".join(text.split()))
    return _REPEATED.sub(r"\1", _ELLIPSIS.sub("…", text)) if _MAY_REPEAT.search(text) else text


# An ending of up to two letters stays joined to the bracket: (EUA)ን.
_BRACKET = re.compile(r"[()\[\]]")
_BRACKET_TOUCHING = re.compile(rf"(?<=[^\W_])(?=[(\[])|(?<=[)\]])(?=[{L}]{{3}}|[0-9])")


def brackets_apart(text: str) -> str:
    """Return `text` with a space between brackets and the words outside them."""
    return _BRACKET_TOUCHING.sub(" ", text) if _BRACKET.search(text) else text


_INSIDE_BRACKETS = re.compile(r"(?<=[(\[{“‘«‹])\s+|\s+(?=[)\]}”’»›])")
_EMPTY_BRACKETS = re.compile(r"\(\s*\)|\[\s*\]|\{\s*\}")
_DOUBLED_ANGLES = re.compile("<<+|>>+")
_PUBLISHED = {
    **dict.fromkeys('"`\u00b4\u02bc\u2018\u2019\u201a\u201b\u201c\u201d\u201e\u201f\u2032\u2033', "'"),
    **dict.fromkeys("\u2039\u203a\u00ab\u00bb\u226a\u226b()[]{}【】《》〈〉「」『』", "'"),
    **dict.fromkeys("~·\u2012\u2013\u2014\u2015\u2212", "-"),
}
_ANY_PUBLISHED = re.compile("[" + re.escape("".join(_PUBLISHED)) + "]")


def published_marks(text: str) -> str:
    """Return `text` with the marks of the published model and single spaces."""
    if _ANY_PUBLISHED.search(text):
        text = _INSIDE_BRACKETS.sub("", _EMPTY_BRACKETS.sub(" ", text))
        text = _ANY_PUBLISHED.sub(lambda match: _PUBLISHED[match[0]], text)
    return tidy(_DOUBLED_ANGLES.sub("'", text))


_SPACE_AFTER_MARK = re.compile(r"(?<=[.,!?…])(?=[^\W_])")


def space_after_marks(text: str) -> str:
    """Return `text`, whose numbers are words already, with a space between a mark and the next letter."""
    return _SPACE_AFTER_MARK.sub(" ", text)


# The ranges of the published front end, without the Ethiopic letters inside the third range.
_IDEOGRAPH = re.compile(
    "([\u1100-\u11ff\u2e80-\ua4cf\ua840-\uab00\uab2f-\ud7af\uf900-\ufaff\ufe30-\ufe4f\uff65-\uffdc"
    "\U00020000-\U0002ffff])"
)


def ideographs_apart(text: str, is_own: Callable[[str], bool] = lambda _char: False) -> str:
    """Return `text` with every East Asian ideograph and syllable as a separate word, unless it `is_own`."""
    if not _IDEOGRAPH.search(text):
        return text
    apart = _IDEOGRAPH.sub(lambda match: match[0] if is_own(match[0]) else f" {match[0]} ", text)
    return " ".join(apart.split())


# Signs that an old font used for letters, in the words that are known: በ|ላ is በኋላ, ተ¹ዳኝ ተጓዳኝ, አዙ[ል አዙሯል.
_DAMAGED_WORDS = TABLES["font_damage"]
_UNCLOSED = r"(?![^\[\]]*\])"
_DAMAGED = re.compile(
    rf"(?<![{L}])((?:{PREFIXES}){{0,2}})"
    rf"({'|'.join(re.escape(word) + (_UNCLOSED if word[-1] == '[' else '') for word in _DAMAGED_WORDS)})(?!ይ)"
)
_OPENED_IN_A_WORD = re.compile(rf"(?<=[{L}])\[{_UNCLOSED}")
_OLD_FONT_SIGN = re.compile(r"[|¹\[]")

_NAMES = TABLES["signs"]
_NAMED = re.compile("[" + re.escape("".join(_NAMES)) + "]")
_SINGLE_ANGLE = re.compile(r"(?<!<)<(?!<)|(?<!>)>(?!>)")  # no comparison; two of them are a quote
_NOT_IN_WORDS = re.compile(r"[^\w\s.,?!…'-]|[_²³¹]")
# Brackets and quotes stay here; `published_marks` turns them into apostrophes later.
_KEPT = frozenset('"`´ʼ‘’‚‛“”„‟′″‹›«»≪≫()[]{}【】《》〈〉「」『』~·‒–—―−<>')


def font_damage(text: str, _options: NormalizerOptions) -> str:
    """Return `text` with the letters of known words instead of signs of an old font."""
    if not _OLD_FONT_SIGN.search(text):
        return text
    text = _DAMAGED.sub(lambda match: match[1] + _DAMAGED_WORDS[match[2]], text)
    return _OPENED_IN_A_WORD.sub(" ", text)


def symbols(text: str, _options: NormalizerOptions) -> str:
    """Return `text` with spoken signs named and other signs replaced by a space."""
    text = _SINGLE_ANGLE.sub(" ", text)
    text = _NAMED.sub(lambda match: f" {_NAMES[match[0]]} ", text)
    return _NOT_IN_WORDS.sub(_kept_or_space, text)


def unspoken_signs(text: str) -> list[str]:
    """Return the signs of a text that `symbols` replaces by a space."""
    unnamed = _NAMED.sub(" ", _SINGLE_ANGLE.sub(" ", text))
    return [match[0] for match in _NOT_IN_WORDS.finditer(unnamed) if _kept_or_space(match) == " "]


def _kept_or_space(match: re.Match[str]) -> str:
    sign = match[0]
    return sign if sign in _KEPT or unicodedata.category(sign).startswith("M") else " "
