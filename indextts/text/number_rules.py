"""Rules for numbers in a text: dates, times, ranges, fractions, phone numbers, and digits as Amharic words.

All rules of this module and of `quantities` except the last rewrite signs and keep digits. The last rule,
`read_numbers`, reads the remaining digits:

    ኮቪድ-19            ኮቪድ 19                  a name, a hyphen, a number
    በ 2017            በ2017                   a separate prefix belongs to the number
    14/05/2020        14 5 2020               read as written, no calendar conversion
    3:30 ሰዓት          3 ሰዓት ተኩል               read as written, no clock conversion
    10-15             ከ10 እስከ 15              a range, because the second is larger
    2-1               2 ለ1                    otherwise a score
    3/4               3 4ኛ
    0911 23 45 67     ዜሮ ዘጠኝ አንድ አንድ ...
    52,000 (ሃምሳ ሁለት ሺህ)   52,000            written twice, spoken once
"""

import re

from indextts.commands.normalizer_options import NormalizerOptions
from indextts.text.abbreviations import PREFIXES
from indextts.text.ethiopic import ETHIOPIC_LETTERS as L
from indextts.text.ethiopic import merge_homophones
from indextts.text.number_separators import is_from
from indextts.text.number_words import (
    MAX_CARDINAL,
    POINT,
    canonical_spelling,
    cardinal,
    digits_in_pairs,
    digits_one_by_one,
    with_ending,
    year_in_hundreds,
)
from indextts.text.quantities import CURRENCY_SIGNS, DASH, NUMBER

_LETTER = r"[^\W\d_]"
_IS_PREFIX = re.compile(rf"(?:{PREFIXES}){{1,2}}")
# Endings, joined to the number in writing and to its last word in speech.
_ENDING = rf"(?:[ነተደረ]?ኛ[{L}]{{0,4}}|(?:ዎቹ|ዎች|ቱ|ቷ|ሩ|ዱ|ኙ|ው|ዋ)?(?:ንና|ንም|ን|ና|ም|ስ)?(?![{L}]))"

_ENDING_PATTERN = re.compile(_ENDING)
_DECADE = re.compile(r"(?<=\d)'?s(?![A-Za-z])")
_LATIN_ORDINAL = re.compile(r"(?<=\d)(?:st|nd|rd|th)(?![A-Za-z])")
_HYPHEN_BEFORE_ORDINAL = re.compile(r"(?<=\d)(?:[- ]+(?=ነ?ኛ)|-(?=[ተደረ]ኛ))")
_LETTER_HYPHEN_NUMBER = re.compile(rf"(?<={_LETTER})[-\u2013]+(?=\d)|(?<=\d)[-\u2013]+(?={_LETTER})")
_TYPES = re.compile(rf"(?<={_LETTER})-(\d+)/(\d+)(?![\d/])")  # HIV-1/2 is no half
_SCORE_WRITTEN = re.compile(r"(?<=\d)ለ(?=\d)")
_WORD_BEFORE = re.compile(rf"(?<![{L}])([{L}]+)(?=[{CURRENCY_SIGNS}]?\d)")
_WORD_AFTER = re.compile(rf"(?<=\d)([{L}]+)")
_OTHER_LETTER = re.compile(rf"(?<=[^\W\d_{L}])(?=\d)|(?<=\d)(?=[^\W\d_²³{L}])")  # 10² is one number
_PREFIX_ALONE = re.compile(rf"(?<![{L}])([በከየለ]) +(?=[{CURRENCY_SIGNS}~]?\d)")


def separate(text: str, _options: NormalizerOptions) -> str:
    """Return `text` with spaces around numbers, except before their prefixes and endings."""
    text = _DECADE.sub("ዎቹ", text)
    text = _LATIN_ORDINAL.sub("ኛ", text)
    text = _HYPHEN_BEFORE_ORDINAL.sub("", text)
    text = _TYPES.sub(r" \1 \2", text)
    text = _LETTER_HYPHEN_NUMBER.sub(" ", text)
    text = _SCORE_WRITTEN.sub(" ለ", text)
    text = _WORD_BEFORE.sub(lambda m: m[1] if _IS_PREFIX.fullmatch(m[1]) else f"{m[1]} ", text)
    text = _WORD_AFTER.sub(lambda m: m[1] if _ENDING_PATTERN.fullmatch(m[1]) else f" {m[1]}", text)
    text = _OTHER_LETTER.sub(" ", text)
    return _PREFIX_ALONE.sub(r"\1", text)


_PHONE = re.compile(
    r"(?<![\d.,:/-])(?:\+\s?\d{1,3}(?:[ -]?\(?\d+\)?)+|0\d{1,3}(?:[ -]\d{2,6}){1,4}|0\d{2,}|\d{9,}"
    r"|\d{2,4}-\d{3}-\d{3,4})(?![.,:/-]?\d)"
)
_MIN_DIGITS_WITH_PLUS = 7


def phone_numbers(text: str, options: NormalizerOptions) -> str:
    """Return `text` with phone numbers and other long or zero-led digit rows read digit by digit."""

    def read(match: re.Match[str]) -> str:
        groups = re.findall(r"\d+", match[0])
        plus = match[0].startswith("+")
        if plus and sum(map(len, groups)) < _MIN_DIGITS_WITH_PLUS:
            return match[0]
        row = "".join(groups)
        words = digits_in_pairs(row, options) if options.phone_numbers == "pairs" else digits_one_by_one(row)
        return ("ፕላስ " if plus else "") + words

    return _PHONE.sub(read, text)


_DATES = (
    re.compile(r"(?<![\d/])(\d{1,2})/(\d{1,2})/(\d{4}|\d{2})(?![\d/])"),
    re.compile(r"(?<![\d.])(\d{1,2})\.(\d{1,2})\.(\d{4})(?![\d]|\.\d)"),
    re.compile(r"(?<![\d-])(\d{1,2})-(\d{1,2})-(\d{4})(?![\d-])"),
    re.compile(r"(?<![\d-])(\d{4})-(\d{1,2})-(\d{1,2})(?![\d-])"),
    re.compile(r"(?<![\d/])(\d{4})/(\d{1,2})/(\d{1,2})(?![\d/])"),
)
_JOINED_NUMBERS = re.compile(r"\d[/.\u2013-]\d")
_ROW_OF_NUMBERS = re.compile(r"(?<![\d-])\d+(?:[-\u2013]\d+){2,}(?![\d-])")


def dates(text: str, _options: NormalizerOptions) -> str:
    """Return `text` with the numbers of dates separated by spaces, in the written order."""
    if not _JOINED_NUMBERS.search(text):
        return text
    for pattern in _DATES:
        text = pattern.sub(lambda match: " ".join(str(int(part)) for part in match.groups()), text)
    return _ROW_OF_NUMBERS.sub(lambda match: re.sub(r"\D", " ", match[0]), text)


_CLOCK = r"\d{1,3}:\d{2}(?::\d{2})?(?:\.\d+)?(?![\d:])"
_CLOCK_RANGE = re.compile(rf"(?<![\d:.])(ከ)?({_CLOCK})\s?{DASH}\s?(?={_CLOCK})")
_TIME = re.compile(
    r"(?<![\d:.])(?P<hours>\d{1,3}):(?P<minutes>[0-5]\d)(?::(?P<seconds>[0-5]\d))?(?P<part>\.\d+)?(?![\d:]|,\d{3})"
    rf"(?P<unit>\s?(?:ሰ[ዓዐአኣ]ት|ደቂቃ)(?![{L}]))?"
)
_RATIO = re.compile(r"(?<=\d):(?=\d)")
_MAX_HOUR = 24
_LAST_HOUR_OF_A_HALF_DAY = 12


def times(text: str, _options: NormalizerOptions) -> str:
    """Return `text` with times read as written, converting neither 24-hour nor Ethiopian time."""
    if ":" not in text:
        return text
    text = _CLOCK_RANGE.sub(_clock_range, text)
    return _RATIO.sub(" ለ", _TIME.sub(_time, text))


def _clock_range(match: re.Match[str]) -> str:
    is_said = not match[1] and (_is_joined(match) or is_from(match.string, match.start()))
    return f"{'' if is_said else 'ከ'}{match[2]} እስከ "


def _time(match: re.Match[str]) -> str:
    hours, minutes, seconds = int(match["hours"]), int(match["minutes"]), match["seconds"]
    unit = (match["unit"] or "").strip()
    if seconds is not None:
        return f"{hours} ሰዓት ከ{minutes} ደቂቃ ከ{int(seconds)}{match['part'] or ''} ሰከንድ"
    if match["part"] or unit == "ደቂቃ" or hours > _MAX_HOUR:  # for example the time of a race
        later = "" if unit in ("", "ደቂቃ") else f" {unit}"
        return f"{hours} ደቂቃ ከ{minutes}{match['part'] or ''} ሰከንድ{later}"
    return _clock_time(hours, minutes, unit, joined=_is_joined(match))


def _is_joined(match: re.Match[str]) -> bool:
    return match.start() > 0 and match.string[match.start() - 1].isalpha()


def _clock_time(hours: int, minutes: int, unit: str, joined: bool) -> str:
    hour = unit or "ሰዓት"
    if minutes == 0:
        return f"{hours} {hour}"
    if minutes == 15:
        return f"{hours} {hour} ከሩብ"
    if minutes == 30:
        return f"{hours} {unit} ተኩል" if unit else f"{hours} ተኩል"
    if minutes == 45 and not joined and 1 <= hours <= _LAST_HOUR_OF_A_HALF_DAY:
        return f"ለ{hours % _LAST_HOUR_OF_A_HALF_DAY + 1} ሩብ ጉዳይ"
    return f"{hours} {hour} ከ{minutes} ደቂቃ"


_MIXED = re.compile(r"(?<![\d.,/:-])(\d{1,3}) (\d)/(\d{1,2})(?![\d/])")
_NAMED_FRACTION = re.compile(r"(\d)?\s?([½¼¾])")
_FRACTION_WORDS = {"½": ("ግማሽ", "ተኩል"), "¼": ("ሩብ", "ከሩብ"), "¾": ("3 4ኛ", "ከ3 4ኛ")}
_SLASH = re.compile(rf"(?<![\d/])({NUMBER})\s?/\s?({NUMBER})(ኛ)?(?![\d/])")
_MAX_DENOMINATOR = 10  # 3/4 is a fraction, 14/15 is not
_YEARS = range(1000, 2200)
_MIN_OUT_OF = 100
_MAX_DIGITS_OF_PAIR = 50  # Python refuses to convert thousands of digits


def fractions(text: str, _options: NormalizerOptions) -> str:
    """Return `text` with halves and quarters named and small denominators as ordinals; other pairs stay."""
    text = _NAMED_FRACTION.sub(_named_fraction, text)
    if "/" not in text:
        return text
    return re.sub(r"(?<=\d)/(?=\d)", " ", _SLASH.sub(_slash, _MIXED.sub(_mixed, text)))


def _mixed(match: re.Match[str]) -> str:
    above, below = int(match[2]), int(match[3])
    if not above < below <= _MAX_DENOMINATOR:
        return match[0]
    sign = {(1, 2): "½", (1, 4): "¼", (3, 4): "¾"}.get((above, below))
    return f"{match[1]} {_FRACTION_WORDS[sign][1] if sign else f'ከ{above} {below}ኛ'}"


def _named_fraction(match: re.Match[str]) -> str:
    alone, behind = _FRACTION_WORDS[match[2]]
    return f"{match[1]} {behind}" if match[1] else alone


def _slash(match: re.Match[str]) -> str:
    first, second, ordinal = match[1], match[2], match[3]
    if not (first.isdigit() and second.isdigit() and len(first + second) < _MAX_DIGITS_OF_PAIR):
        return f"{first} ከ{second}" if _value(second) >= _MIN_OUT_OF else f"{first} {second}"
    above, below = int(first), int(second)
    if above < below and (ordinal or below <= _MAX_DENOMINATOR):
        if ordinal is None and (above, below) in ((1, 2), (1, 4)):
            return "ግማሽ" if below == 2 else "ሩብ"
        return f"{above} {below}ኛ"
    if above < below and below >= _MIN_OUT_OF and below not in _YEARS:
        return f"{above} ከ{below}"
    return f"{above} {second}{ordinal or ''}"


_RANGE = re.compile(rf"(?<![\d.])({NUMBER})\s?{DASH}{{1,2}}[\s\"“”]?({NUMBER})(?!\d)")
_ANY_DASH = re.compile(DASH)
_LOOSE_RANGE = re.compile(rf"(?<![\d.])({NUMBER})\s+{DASH}\s+({NUMBER})(?!\d)")
_STRAY_HYPHEN = re.compile(r"(?<![\w%)])[-\u2013\u2212]+\s?(?=\d)")


def ranges(text: str, _options: NormalizerOptions) -> str:
    """Return `text` with 5-10 as "from 5 to 10" and 2-1 as the score "2 to 1"."""
    if not _ANY_DASH.search(text):
        return text
    text = _RANGE.sub(_range, _LOOSE_RANGE.sub(_range, text))
    return _STRAY_HYPHEN.sub(" ", text)


def _range(match: re.Match[str]) -> str:
    first, second = match[1], match[2]
    is_said = is_from(match.string, match.start())
    # of years, such as 2019-20
    is_short = len(first) == 4 and len(second) == 2 and first.isdigit() and int(second) > int(first[2:])
    if _value(first) >= _value(second) and not (is_said or is_short):
        return f"{first} ለ{second}"
    return f"{'' if is_said or _is_joined(match) else 'ከ'}{first} እስከ {second}"


def _value(number: str) -> float:
    return float(number.replace(",", ""))


# Bounded, because a line can be very long.
_GLOSS = re.compile(rf"({NUMBER}) ?\(([{L} ]{{1,150}})\)")
_GLOSS_IN_DIGITS = re.compile(rf"([{L} ]{{0,150}}[{L}]) ?\((\d[\d,]*)\)")


def glosses(text: str, options: NormalizerOptions) -> str:
    """Return `text` without brackets that repeat a number in words or in digits."""
    if "(" not in text:
        return text

    def in_words(match: re.Match[str]) -> str:
        same = _comparable(_read(match[1], "", options)) == _comparable(match[2])
        return match[1] if same else match[0]

    def in_digits(match: re.Match[str]) -> str:
        number = _comparable(_read(match[2], "", options))
        words = _comparable(match[1])
        before = words[: -len(number)] if words.endswith(number) else "-"
        joined = before.split(" ")[-1]
        is_same = before == "" or before.endswith(" ") or _IS_PREFIX.fullmatch(joined) is not None
        return match[1] if is_same else match[0]

    return _GLOSS_IN_DIGITS.sub(in_digits, _GLOSS.sub(in_words, text))


def _comparable(words: str) -> str:
    return canonical_spelling(merge_homophones(words.strip(), "strict"))


_VERSION = re.compile(r"(?<![\d.])\d+(?:\.\d+){2,}")
_ANY_NUMBER = re.compile(rf"({NUMBER}|(?<!\w)\.\d+)({_ENDING})?")


def read_numbers(text: str, options: NormalizerOptions) -> str:
    """Return `text` with words for all remaining digits; the last rule."""
    text = _VERSION.sub(lambda match: match[0].replace(".", f" {POINT} "), text)
    return _ANY_NUMBER.sub(lambda match: _spaced(match, _read(match[1], match[2] or "", options)), text)


def _spaced(match: re.Match[str], words: str) -> str:
    """Return the words, with a space if a letter or digit follows."""
    end = match.end()
    behind = match.string[end] if end < len(match.string) else ""
    return words + (" " if behind.isalnum() else "")


def _read(number: str, ending: str, options: NormalizerOptions) -> str:
    """Return the words of `number`, with an ending joined."""
    whole, point, decimals = number.partition(".")
    grouped = "," in whole
    whole = whole.replace(",", "") or "0"
    is_row = len(whole) > 1 and whole.startswith("0")
    if is_row or len(whole) > len(str(MAX_CARDINAL)):
        words = digits_one_by_one(whole)
    elif options.years == "hundreds" and not (grouped or point) and len(whole) == 4 and whole < "2000":
        words = year_in_hundreds(int(whole), options) if whole >= "1100" else cardinal(int(whole), options)
    else:
        words = cardinal(int(whole), options)
    if point:
        words = f"{words} {POINT} {digits_one_by_one(decimals)}"
    return with_ending(words, ending)
