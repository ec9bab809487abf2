"""Rules for commas, slashes, hyphens and minus signs between and before numbers; they run before the others.

100,20,300              100, 20, 300               a list: the groups are no thousands
100,200,300             100, 200, 300              a list: three rising multiples of 50
100,200                 100,200                    one number
1.000.000, 1 000 000    1,000,000
1.250,50                1,250.50
1.000, 1.250 ብር         1,000, 1,250 ብር            1.250 alone is a decimal
250000000 ብር            250,000,000 ብር             no row of digits
0911.../0922...         0911..., 0922...           two phone numbers
1ኛ-8ኛ                   ከ1ኛ እስከ 8ኛ
2 ሰዓት-6 ሰዓት             ከ2 ሰዓት እስከ 6 ሰዓት
-5 ዲግሪ, -2.3%           ከዜሮ በታች 5 ዲግሪ              also after a word such as ሙቀቱ
በ-5 ዲግሪ                 ከዜሮ በታች በ5 ዲግሪ
(-5)                    (ሲቀነስ 5)                   no letter or digit in front
ኮቪድ -19                 ኮቪድ -19                    a name; its hyphen is not spoken
"""

import itertools
import re

from indextts.commands.normalizer_options import NormalizerOptions
from indextts.text.ethiopic import ETHIOPIC_LETTERS as L
from indextts.text.quantities import DASH, NUMBER

_COUNTED = "ብር|ዶላር|ዩሮ|ፓውንድ|ሰው|ሰዎች|[ህሕ]ዝብ|ቶን"
_BY_DOTS = re.compile(r"(?<![\d.,])([1-9]\d{0,2}(?:\.\d{3})+)(?:,(\d{1,2}))?(?!\d|[.,]\d)")
_BY_BLANKS = re.compile(r"(?<![\d.,+])(?<!\d )([1-9]\d{0,2}(?: \d{3})+)(?:[.,](\d{1,2}))?(?!\d|[.,]\d| \d)")
_IS_COUNTED = re.compile(rf"\s?(?:{_COUNTED})")
_IS_DECIMAL = re.compile(r"\s?(?:[%٪‰°º]|በመቶ|ከመቶ|ፐርሰንት|ሺህ?(?!\w)|ሚ[ሊል]|ቢ[ሊል]|ትሪ|ሜትር|ኪ|ሴ|[A-Za-z])")
# of a computer: 192.168.100.200
_ADDRESS = re.compile(r"(?:[12]?\d{1,2}\.){3}[12]?\d{1,2}")


def groups(text: str, _options: NormalizerOptions) -> str:
    """Return `text` with commas between thousands that dots or blanks separate, and a dot before decimals."""
    if "." in text:
        text = _BY_DOTS.sub(_grouped, text)
    return _BY_BLANKS.sub(_grouped, text)


def _grouped(match: re.Match[str]) -> str:
    number, decimals = match.groups()
    row, text, end = re.sub("[ .]", ",", number), match.string, match.end()
    if decimals:
        return f"{row}.{decimals}"
    if row.count(",") > 1:
        return match[0] if _ADDRESS.fullmatch(number) or _is_list(row) else row
    is_round = row.endswith(",000") and not _IS_DECIMAL.match(text, end)
    return row if is_round or _IS_COUNTED.match(text, end) else match[0]


_COMMA_ROW = re.compile(r"(?<![\d.,])\d+(?:,\d+)+(?![\d,])")
_GROUPED = re.compile(r"\d{1,3}(?:,\d{3})+")
_STEP_OF_A_LIST = 50  # distances and prices; a number with such groups is very rare


def commas(text: str, _options: NormalizerOptions) -> str:
    """Return `text` with a space after the commas of lists, and grouped thousands in large round numbers."""
    if "," in text:
        text = _COMMA_ROW.sub(_comma_row, text)
    return _LARGE.sub(lambda match: f"{int(match[0]):,}", text)


def _comma_row(match: re.Match[str]) -> str:
    row = match[0]
    if _GROUPED.fullmatch(row) is None:  # after 1,000,1,000 no list: the groups belong together
        return row if ",0" in row else row.replace(",", ", ")
    return row.replace(",", ", ") if _is_list(row) else row


def _is_list(row: str) -> bool:
    """Return whether grouped thousands are a list of rising multiples of 50."""
    values = [int(group) for group in row.split(",")]
    return (
        len(values) > 2
        and len(row) == 4 * len(values) - 1
        and not any(value % _STEP_OF_A_LIST for value in values)
        and all(low < high for low, high in itertools.pairwise(values))
    )


# At least nine digits are a phone or account number, unless they are round or are counted.
_LARGE = re.compile(
    rf"(?<![\d.,:/+-])(?:(?:[1-68]\d{{2}}|[1-9]\d{{3,8}})0{{6}}|[1-9]\d{{8,14}}(?=\s?(?:{_COUNTED})))"
    r"(?![.,:/-]?\d)"
)

_PHONE = r"(?:\+\d{1,3}|0\d)[\d -]{5,16}\d"
_JOINED_PHONES = re.compile(rf"(?<![\d.,:-])({_PHONE})\s?/\s?(?={_PHONE}|\d{{1,4}}(?![\d.,:/-]))")
_MIN_DIGITS_OF_A_PHONE = 9


def joined_phone_numbers(text: str, _options: NormalizerOptions) -> str:
    """Return `text` with a comma instead of a slash between phone numbers."""
    return _JOINED_PHONES.sub(_joined, text) if "/" in text else text


def _joined(match: re.Match[str]) -> str:
    is_phone = sum(map(str.isdigit, match[1])) >= _MIN_DIGITS_OF_A_PHONE
    return f"{match[1]}, " if is_phone else match[0]


_ANY_DASH = re.compile(DASH)
_ORDINAL = "[ነተደረ]?ኛ"
_HOUR = "ሰ[ዓዐአኣ]ት"
_CLOCK = r"\d{1,2}(?::\d{2})?"
_RANGES = (
    re.compile(rf"(?<![\d.,:/-])(?P<first>\d{{1,4}}{_ORDINAL})\s?{DASH}\s?(?=\d{{1,4}}{_ORDINAL})"),
    re.compile(
        rf"(?<![\d.,:/-])(?P<first>{_CLOCK}\s?{_HOUR})\s?{DASH}\s?(?={_CLOCK}\s?{_HOUR}|\d{{1,2}}:\d)"
    ),
)
_MONTHS = "መስከረም ጥቅምት ኅዳር ህዳር ሕዳር ታኅሣሥ ታህሳስ ታኅሳስ ጥር የካቲት መጋቢት ሚያዝያ ሚያዚያ ግንቦት ሰኔ ሐምሌ ሀምሌ ነሐሴ ነሀሴ ጳጉሜን ጳጉሜ"
_MONTH = _MONTHS.replace(" ", "|")
_TIMES_OF_DAY = "ጠዋቱ ረፋዱ ማለዳው ንጋቱ ቀኑ ምሽቱ ሌሊቱ"
_FROM_BEFORE = re.compile(rf"(?<![{L}])(?:ከ|ከ(?:{'|'.join(f'{_MONTHS} {_TIMES_OF_DAY}'.split())})\s)$")
_MAX_BEFORE = 12
_OF_MONTHS = re.compile(rf"(?<![{L}])(ከ?)((?:{_MONTH})\s\d{{1,2}}(?:\sቀን)?)\s?{DASH}\s?(?=(?:{_MONTH})\s\d)")


def is_from(text: str, start: int) -> bool:
    """Return whether the text before `start` already says "from", as in ከ5-10 and ከሰኔ 5-10."""
    return _FROM_BEFORE.search(text, max(0, start - _MAX_BEFORE), start) is not None


def ranges_with_words(text: str, _options: NormalizerOptions) -> str:
    """Return `text` with ranges of ordinals and hours in words."""
    if not _ANY_DASH.search(text):
        return text
    for pattern in _RANGES:
        text = pattern.sub(_range, text)
    return _OF_MONTHS.sub(r"ከ\2 እስከ ", text)


def _range(match: re.Match[str]) -> str:
    start = match.start()
    is_joined = start > 0 and match.string[start - 1].isalpha()
    is_said = is_joined or is_from(match.string, start)
    return f"{'' if is_said else 'ከ'}{match['first']} እስከ "


_MINUS = "[-\u2013\u2212]"
_ANY_MINUS = re.compile(_MINUS)
_BELOW_ZERO = "ከዜሮ በታች "
_UNIT_WITH_SIGN = r"\s?(?:[%٪°º]|ዲግሪ|በመቶ|ከመቶ|ፐርሰንት)"
_UP_TO = rf"(?:\s?[-\u2013\u2014]\s?|\s(?:እስከ|ወደ|እና)\s?{_MINUS}?){NUMBER}"
_MEASURED = rf"(?={NUMBER}(?:{_UP_TO})?{_UNIT_WITH_SIGN})"
_PREFIXED = re.compile(rf"(?<![{L}])([በየለከ])\s?{_MINUS}{_MEASURED}")
_ALONE = r"(?<![\w.,%)])(?<![\d%)]\s)"
_DEGREES_OR_PERCENT = re.compile(
    rf"{_ALONE}{_MINUS}{_MEASURED}|(?<![\w.,%]){_MINUS}\s?(?={NUMBER}\s?(?:°|º|ዲግሪ))"
)
_BETWEEN = "መጠን|መጠኑ|ዛሬ|ትናንት|ወደ|እስከ|ግን|ደግሞ"
_OF_HEAT = re.compile(rf"((?:ሙቀ[ትቱ]|ቅዝቃዜ)[{L}]*(?:\s(?:{_BETWEEN})){{0,2}}\s){_MINUS}(?=\d)")
_VALUE = re.compile(
    rf"((?:[ዕእ]ድገ[ትቱ]|ለው[ጥጡ]|ልዩነ[ትቱ]|ቀሪ|መል[ስሱ]|ውጤ[ትቱ]|ነጥ[ብቡ]|[ሒሂ]ሳ[ብቡ]|ትር[ፍፉ]|እኩል)[{L}]{{0,2}}\s){_MINUS}(?=\d)"
)
# A hyphen at the start of a sentence is a dash, unless the number is alone.
_NOTHING_BEFORE = re.compile(
    rf"(?:(?<=[,=(\[:«“‹])\s?{_MINUS}|(?<=[+*/×÷<>])\s{_MINUS}|^{_MINUS}(?={NUMBER}\W*$))(?={NUMBER}(?![\d/:-]))"
)


def minus(text: str, _options: NormalizerOptions) -> str:
    """Return `text` with words for the minus signs of values."""
    if not _ANY_MINUS.search(text):
        return text
    text = _PREFIXED.sub(rf"{_BELOW_ZERO}\1", text)
    text = _DEGREES_OR_PERCENT.sub(_BELOW_ZERO, text)
    text = _OF_HEAT.sub(rf"\1{_BELOW_ZERO}", text)
    text = _VALUE.sub(r"\1ሲቀነስ ", text)
    return _NOTHING_BEFORE.sub(" ሲቀነስ ", text)
