"""Signs in Amharic text that no rule of numbers took: spoken where they have a name, else a space."""

import re
import unicodedata

from indextts.commands.normalizer_options import NormalizerOptions
from indextts.text.ethiopic import ETHIOPIC_LETTERS as L

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
