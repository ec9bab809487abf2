"""Amharic number words and Ethiopic numerals.

2017      ሁለት ሺህ አሥራ ሰባት      cardinal
5ኛ        አምስተኛ               ordinal
3.14      ሦስት ነጥብ አንድ አራት     decimal: the digits after the point one by one
1985      አሥራ ዘጠኝ መቶ ...       years in hundreds
፲፱፻፹፭     1985                 Ethiopic numeral
"""

import re

from indextts.commands.normalizer_options import DEFAULT_OPTIONS, NormalizerOptions
from indextts.text.amharic import TABLES
from indextts.text.ethiopic import merge_homophones

POINT = "ነጥብ"
MAX_CARDINAL = 10**15 - 1  # beyond trillions a number is read digit by digit

_ONES = ("ዜሮ", "አንድ", "ሁለት", "ሦስት", "አራት", "አምስት", "ስድስት", "ሰባት", "ስምንት", "ዘጠኝ")
_TENS = ("", "አሥር", "ሃያ", "ሠላሳ", "አርባ", "ሃምሳ", "ስልሳ", "ሰባ", "ሰማንያ", "ዘጠና")
_TEEN = "አሥራ"
_HUNDRED = "መቶ"
_BILLION, _TRILLION = "ቢሊዮን", "ትሪሊዮን"

_CANONICAL = TABLES["canonical"]
_NUMBER_WORDS = frozenset(
    merge_homophones(word, "strict")
    for word in (*_ONES[:1], *_ONES[2:], *_TENS[1:], _TEEN, _HUNDRED, "ሺህ", "ሚሊዮን", _BILLION, _TRILLION)
)
_ROW_SIZE = 8  # code points per consonant
_SIXTH = 5  # the order without a vowel, counted from 0
_SEVENTH = 6
_FIRST_LETTER = 0x1200


def cardinal(number: int, options: NormalizerOptions = DEFAULT_OPTIONS) -> str:
    """Return the words of an integer from 0 to `MAX_CARDINAL`."""
    if not 0 <= number <= MAX_CARDINAL:
        raise ValueError(f"{number} is out of range 0..{MAX_CARDINAL}")
    if number == 0:
        return _ONES[0]
    scales = ((10**12, _TRILLION), (10**9, _BILLION), (10**6, options.million), (1000, options.thousand))
    words = []
    for value, name in scales:
        count, number = divmod(number, value)
        if count:
            words += [*_below_thousand(count, options), name]
    return " ".join(words + _below_thousand(number, options))


def year_in_hundreds(number: int, options: NormalizerOptions = DEFAULT_OPTIONS) -> str:
    """Return the words of a year from 1100 to 1999 as hundreds and the rest."""
    hundreds, rest = divmod(number, 100)
    return " ".join([*_below_hundred(hundreds, options), _HUNDRED, *_below_hundred(rest, options)])


def digits_one_by_one(digits: str) -> str:
    """Return the name of each ASCII digit."""
    return " ".join(_ONES[int(digit)] for digit in digits)


def digits_in_pairs(digits: str, options: NormalizerOptions = DEFAULT_OPTIONS) -> str:
    """Return the words of the digits in pairs; with an odd count the first digit stands alone."""
    pairs = [digits[:1]] if len(digits) % 2 else []
    pairs += [digits[start : start + 2] for start in range(len(digits) % 2, len(digits), 2)]
    return " ".join(
        digits_one_by_one(pair) if pair[0] == "0" else cardinal(int(pair), options) for pair in pairs
    )


def with_ending(words: str, ending: str) -> str:
    """Return number words with an ending joined to the last word, as in 5ኛ, 3ቱ, 1930ዎቹ.

    The ordinal ending ኛ changes the vowel of the last letter: ት to ተ, ኝ to ነ. An ending that starts with the
    last consonant replaces it (አምስት and ቱ: አምስቱ); ዎ after a consonant becomes its vowel (አምስቶቹ).
    """
    ending = ending[1:] if ending[1:2] == "ኛ" and ending[0] in "ነተደረ" else ending
    before, last = words[:-1], words[-1]
    row, order = divmod(ord(last) - _FIRST_LETTER, _ROW_SIZE)
    if order != _SIXTH or not ending:
        return words + ending
    if words.endswith("ሺህ"):  # its last letter is hardly spoken
        return before + ending if ending.startswith("ዎ") else words + ending
    if ending.startswith("ኛ"):
        return before + ("ነ" if last == "ኝ" else chr(ord(last) - _SIXTH)) + ending
    if ending.startswith("ዎ"):
        return before + chr(ord(last) - _SIXTH + _SEVENTH) + ending[1:]
    if ending.startswith("ቱ") and last == "ኝ":
        return before + "ኙ" + ending[1:]
    if (ord(ending[0]) - _FIRST_LETTER) // _ROW_SIZE == row:
        return before + ending
    return words + ending


def canonical_spelling(words: str) -> str:
    """Return number words, whose homophones are merged already, in their canonical spelling."""
    return " ".join(_CANONICAL.get(word, word) for word in words.split())


def has_number_word(text: str) -> bool:
    """Return whether a normalised text has a number word; አንድ alone is the article as often as the number."""
    words = re.findall(r"\w+", merge_homophones(text, "strict"))
    return any(_CANONICAL.get(word, word) in _NUMBER_WORDS for word in words)


def _below_thousand(number: int, options: NormalizerOptions) -> list[str]:
    hundreds, rest = divmod(number, 100)
    return ([_ONES[hundreds], _HUNDRED] if hundreds else []) + _below_hundred(rest, options)


def _below_hundred(number: int, options: NormalizerOptions) -> list[str]:
    tens, ones = divmod(number, 10)
    chosen = {5: options.fifty, 6: options.sixty, 8: options.eighty}
    if tens == 1 and ones:
        return [_TEEN, _ONES[ones]]
    return ([chosen.get(tens, _TENS[tens])] if tens else []) + ([_ONES[ones]] if ones else [])


# Ethiopic numerals have no zero; ፻ and ፼ multiply the numeral before them, and a one before them is omitted.
ETHIOPIC_NUMERALS = "፩-፼"  # for the character class of a regular expression
_ETHIOPIC_ONES = "፩፪፫፬፭፮፯፰፱"
_ETHIOPIC_TENS = "፲፳፴፵፶፷፸፹፺"
_NUMERAL = re.compile(f"[{ETHIOPIC_NUMERALS}]+")
_BELOW_100 = f"[{_ETHIOPIC_TENS}]?[{_ETHIOPIC_ONES}]?"
_BELOW_10000 = f"(?:(?!፩፻){_BELOW_100}፻)?{_BELOW_100}"
_VALID_NUMERAL = re.compile(f"(?!፩፼){_BELOW_10000}(?:፼{_BELOW_10000})*")


def from_ethiopic(numeral: str) -> int:
    """Return the value of a sequence of Ethiopic numerals; a ValueError if it is no valid number."""
    if not numeral or not _VALID_NUMERAL.fullmatch(numeral):
        raise ValueError(f"{numeral!r} is not a valid number")
    total = hundreds = below = 0
    for sign in numeral:
        if sign in _ETHIOPIC_ONES:
            below += _ETHIOPIC_ONES.index(sign) + 1
        elif sign in _ETHIOPIC_TENS:
            below += 10 * (_ETHIOPIC_TENS.index(sign) + 1)
        elif sign == "፻":
            hundreds, below = hundreds + 100 * (below or 1), 0
        else:
            total, hundreds, below = 10_000 * (total + hundreds + below or 1), 0, 0
    return total + hundreds + below


def ethiopic_numerals_to_digits(text: str) -> str:
    """Return `text` with ASCII digits for Ethiopic numerals; invalid sequences become single numbers."""

    def value(match: re.Match[str]) -> str:
        try:
            found = from_ethiopic(match[0])
        except ValueError:
            return " ".join(str(from_ethiopic(sign)) for sign in match[0])
        # grouped, so that a long number is not read as a phone number
        return f"{found:,}" if found >= 10**5 else str(found)

    if not _NUMERAL.search(text):
        return text
    text = re.sub(f"(?<=[0-9])(?=[{ETHIOPIC_NUMERALS}])|(?<=[{ETHIOPIC_NUMERALS}])(?=[0-9])", " ", text)
    return _NUMERAL.sub(value, text)
