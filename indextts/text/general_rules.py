"""Rules of the normaliser for every language but Amharic: marks and numbers.

    marks     those of other scripts become . , ? ! and the signs of ASCII; other signs become spaces
    numbers   whole ones are spelled out where num2words knows the language; other digits stay

A number with a leading zero or more than 15 digits is read digit by digit. num2words reads fractions of some
languages as cents, so fractions stay digits.
"""

import re
import unicodedata
from contextlib import suppress

import num2words

from indextts.text.languages import Language

_MARKS = str.maketrans(
    {
        **dict.fromkeys("۔।॥။។៕༎།։܁܂᙮꘎꓿", "."),
        **dict.fromkeys("،؛՝၊߸꓾꘍", ","),
        **dict.fromkeys("؟՞⸮꘏", "?"),
        **dict.fromkeys("՜߹", "!"),
        **dict.fromkeys("׳״", "'"),
        "־": "-",
        "٪": "%",
        "٫": ".",
        "٬": ",",
    }
)
# A sign that no rule of marks.py knows: no letter, digit or space, and neither ASCII nor ...
_UNKNOWN_SIGN = re.compile(
    "[^\\w\\s\u0300-\u036f\u0021-\u007e\u00b4\u00b7\u02bc\u2010-\u201f\u2026\u2032\u2033\u2039\u203a\u00ab"
    "\u00bb\u2212\u226a\u226b\u3008-\u3011]|_"
)
_NUMBER = re.compile(r"(?<!\d[.,])\d{1,3}(?:,\d{3})+(?![.,]?\d)|(?<!\d)(?<!\d[.,])\d+(?![.,]?\d)")
_MAX_DIGITS = 15


def world_marks_to_ascii(text: str) -> str:
    """Return `text` with ASCII marks instead of those of other scripts."""
    return text.translate(_MARKS)


def signs_to_spaces(text: str) -> str:
    """Return `text` with spaces instead of signs without a spoken form; combining marks stay."""
    return _UNKNOWN_SIGN.sub(lambda sign: sign[0] if unicodedata.category(sign[0])[0] == "M" else " ", text)


def reads_numbers(language: Language) -> bool:
    """Return whether numbers of a language are spelled out."""
    return language.code in num2words.CONVERTER_CLASSES


def read_numbers(text: str, language: Language) -> str:
    """Return `text` with whole numbers as words; unchanged for a language that num2words does not know."""
    if not reads_numbers(language):
        return text

    def spoken(match: re.Match[str]) -> str:
        words = _words(match[0].replace(",", ""), language.code)
        before, after = text[: match.start()][-1:], text[match.end() :][:1]
        if language.joins_numbers:
            return words
        return " " * before.isalpha() + words + " " * after.isalpha()

    return _NUMBER.sub(spoken, text)


def _words(number: str, code: str) -> str:
    if len(number) <= _MAX_DIGITS and not (len(number) > 1 and number.startswith("0")):
        with suppress(OverflowError):  # of languages whose numbers end earlier
            return str(num2words.num2words(int(number), lang=code))
    return " ".join(str(num2words.num2words(int(digit), lang=code)) for digit in number)
