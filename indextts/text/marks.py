"""Punctuation: first Ethiopic marks to ASCII, and at the very end all marks to those of the published model.

The published sentence splitter knows . ! ? … , and - only. In the order in which they are applied:

    Ethiopic marks      . , ? or a space; colons by what stands around them (`_COLON`)
    quotes, brackets    '        as in the published front end
    dashes              -        as in the published front end
    ideographs          each with spaces around it, as in the published front end

Between the two come the rules of words and numbers, which need brackets and dashes as they were written.

Signs in Amharic text that no rule of numbers took: spoken where they have a name, else a space.
"""

import re
import unicodedata

from indextts.commands.normalizer_options import NormalizerOptions
from indextts.text.ethiopic import ETHIOPIC_LETTERS as L
from indextts.text.ethiopic import ETHIOPIC_LETTERS as LETTERS

# What a colon or an Ethiopic word space means; the first alternative that fits counts. Times come before full
# stops made of two word spaces, and these before single word spaces.
_COLON = re.compile(
    r"(?P<time>(?<=[0-9])[:፡](?=[0-9]))"
    r"|(?P<stop>[:፡](?:\s*[:፡])+(?:\s*።)*|[:፡](?:\s*።)+)"
    r"|(?P<preface>[:፡፦][-\u2013\u2014])"
    rf"|(?P<space>(?<=[{LETTERS}]):(?=[{LETTERS}])|፡)"
    r"|(?P<address>(?<=\w):(?=//))"
    r"|(?P<comma>:)"
)
_COLON_TO = {"time": ":", "stop": "።", "preface": "፦", "space": " ", "address": ":", "comma": ","}

_DIVISION_SIGN_AS_COLON = re.compile(rf"(?<=[{LETTERS}])÷")
_MARKS = "[።፣፤፥፦፧፨]"
# Ethiopic marks are often written without a space after them; without one the next word would not look like a
# word's beginning to SentencePiece. A mark between two digits stays tight.
_SPACE_MISSING = re.compile(rf"(?<={_MARKS})(?=[^\W\d_])|(?<=(?<!\d){_MARKS})(?=\d)")
_ETHIOPIC_TO_ASCII = str.maketrans(
    {
        **dict.fromkeys("።፨。．", "."),
        **dict.fromkeys("፣፤፥፦;；：，、", ","),
        **dict.fromkeys("፧？", "?"),
        **dict.fromkeys("！¡", "!"),
    }
)


def ethiopic_marks_to_ascii(text: str) -> str:
    """Return `text` with ASCII marks for the Ethiopic ones and their look-alikes."""
    text = _COLON.sub(lambda match: _COLON_TO[str(match.lastgroup)], text)
    text = _DIVISION_SIGN_AS_COLON.sub("፥", text)
    return _tidy(_SPACE_MISSING.sub(" ", text).translate(_ETHIOPIC_TO_ASCII))


_SPACES = re.compile(r"\s+")
_SPACE_BEFORE_MARK = re.compile(r" +(?=[,!?…]|\.(?!\d))")
_ELLIPSIS = re.compile(r"(?:\.{3,}|,{3,}|…)+")
_REPEATED = re.compile(r"([.,'])\1+")


def _tidy(text: str) -> str:
    """Return `text` with single spaces, none before a mark, and single marks."""
    text = _SPACE_BEFORE_MARK.sub("", _SPACES.sub(" ", text)).strip()
    return _REPEATED.sub(r"\1", _ELLIPSIS.sub("…", text))


# An ending of one or two letters stays joined to the bracket: (EUA)ን.
_BRACKET_TOUCHING = re.compile(rf"(?<=[^\W_])(?=[(\[])|(?<=[)\]])(?=[{LETTERS}]{{3}}|[0-9])")


def brackets_apart(text: str) -> str:
    """Return `text` with a space between a bracket and the words outside it."""
    return _BRACKET_TOUCHING.sub(" ", text)


_INSIDE_BRACKETS = re.compile(r"(?<=[(\[{“‘«‹])\s+|\s+(?=[)\]}”’»›])")
_EMPTY_BRACKETS = re.compile(r"\(\s*\)|\[\s*\]|\{\s*\}")
_DOUBLED_ANGLES = re.compile("<<+|>>+")
_PUBLISHED = str.maketrans(
    {
        **dict.fromkeys('"`\u00b4\u02bc\u2018\u2019\u201a\u201b\u201c\u201d\u201e\u201f\u2032\u2033', "'"),
        **dict.fromkeys("\u2039\u203a\u00ab\u00bb\u226a\u226b()[]{}【】《》〈〉「」『』", "'"),
        **dict.fromkeys("~·\u2012\u2013\u2014\u2015\u2212", "-"),
    }
)


def published_marks(text: str) -> str:
    """Return `text` with the marks of the published model and single spaces."""
    text = _INSIDE_BRACKETS.sub("", _EMPTY_BRACKETS.sub(" ", text))
    return _tidy(_DOUBLED_ANGLES.sub("'", text.translate(_PUBLISHED)))


_SPACE_AFTER_MARK = re.compile(r"(?<=[.,!?…])(?=[^\W_])")


def space_after_marks(text: str) -> str:
    """Return `text`, in which all numbers are words, with a space after each mark that a letter follows."""
    return _SPACE_AFTER_MARK.sub(" ", text)


# The ranges of the published front end, without the Ethiopic letters in the middle of the third.
_IDEOGRAPH = re.compile(
    "([\u1100-\u11ff\u2e80-\ua4cf\ua840-\uab00\uab2f-\ud7af\uf900-\ufaff\ufe30-\ufe4f\uff65-\uffdc"
    "\U00020000-\U0002ffff])"
)


def ideographs_apart(text: str) -> str:
    """Return `text` with every ideograph and syllable of East Asian scripts as a word of its own."""
    return " ".join(_IDEOGRAPH.sub(r" \1 ", text).split()) if _IDEOGRAPH.search(text) else text


# Signs that an old font had in the place of a letter: በ|ላ is በኋላ, ተ¹ዳኝ ተጓዳኝ, አዙ[ል አዙሯል.
_FONT_DAMAGE = (
    (re.compile(rf"(?<=[{L}])\|(?=[{L}])"), "ኋ"),
    (re.compile(rf"(?<=[{L}])¹(?=[{L}])"), "ጓ"),
    (re.compile(rf"(?<=[{L}])\[(?![^\[\]]*\])"), "ሯ"),
)

_NAMES = {
    "&": "እና",
    "+": "ፕላስ",
    "=": "እኩል ነው",
    "@": "አት",
    "×": "ሲባዛ",
    "÷": "ሲካፈል",
    "±": "ሲደመር ወይም ሲቀነስ",
    "%": "ፐርሰንት",
    "°": "ዲግሪ",
    "$": "ዶላር",
    "€": "ዩሮ",
    "£": "ፓውንድ",
}
_NAMED = re.compile("[" + re.escape("".join(_NAMES)) + "]")
_SINGLE_ANGLE = re.compile(r"(?<!<)<(?!<)|(?<!>)>(?!>)")  # compares nothing; two are a quote
# All that is left when the marks are those of the published model: letters, and these.
ALLOWED_MARKS = frozenset(" .,?!…-'")
_NOT_IN_WORDS = re.compile(r"[^\w\s.,?!…'-]|[_²³¹]")
# Before the brackets and quotes have become apostrophes they have to be let through.
_KEPT = frozenset('"`´ʼ‘’‚‛“”„‟′″‹›«»≪≫()[]{}【】《》〈〉「」『』~·‒–—―−<>')


def font_damage(text: str, _options: NormalizerOptions) -> str:
    """Put the letter that was meant in the place of a sign."""
    for pattern, letter in _FONT_DAMAGE:
        text = pattern.sub(letter, text)
    return text


def symbols(text: str, _options: NormalizerOptions) -> str:
    """Name the signs that are spoken, and put a space in the place of the others."""
    text = _SINGLE_ANGLE.sub(" ", text)
    text = _NAMED.sub(lambda match: f" {_NAMES[match[0]]} ", text)
    return _NOT_IN_WORDS.sub(_kept_or_space, text)


def _kept_or_space(match: re.Match[str]) -> str:
    sign = match[0]
    return sign if sign in _KEPT or unicodedata.category(sign).startswith("M") else " "
