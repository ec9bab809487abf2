"""Rules for numbers with a sign or unit: money, percent, degrees, measures, comparisons.

Each rule replaces the signs by Amharic words and keeps the digits, which `number_rules` reads last:

    $26,750         26,750 ዶላር
    $1.8 ሚሊዮን       1.8 ሚሊዮን ዶላር
    5 ሚ. ብር          5 ሚሊዮን ብር
    ብር 1,250.75      1,250.75 ብር
    12.50 ብር        12 ብር ከ50 ሳንቲም
    14%-20%         14-20 በመቶ
    37°C            37 ዲግሪ ሴልሺየስ
    5 km            5 ኪሎ ሜትር
    10³             10 ኪዩብ
    ≥60             ቢያንስ 60
    5-3=2           5 ሲቀነስ 3 እኩል ነው 2
"""

import re

from indextts.commands.normalizer_options import NormalizerOptions
from indextts.text.amharic import TABLES
from indextts.text.ethiopic import ETHIOPIC_LETTERS as L

# An integer or decimal number, with or without grouped thousands.
NUMBER = r"(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?"
DASH = "[-\u2012\u2013\u2014\u2212~]"

_CURRENCIES = TABLES["currencies"]
CURRENCY_SIGNS = "$€£¥"
_SIGN = "|".join(re.escape(sign) for sign in sorted(_CURRENCIES, key=len, reverse=True))
_SCALES = {"k": "ሺህ", "m": "ሚሊዮን", "mn": "ሚሊዮን", "bn": "ቢሊዮን", "b": "ቢሊዮን"}
_SCALE = rf"(?:ሺህ?|ሚ[ሊል][ዮየ]ን|ቢ[ሊል]ን?[ዮየ]ን|ትሪ[ሊል][ዮየ]ን)[{L}]*|(?:[kKmMbB]|mn|bn)\b|(?i:million|billion)\b"
_CURRENCY_WORD = rf"\s(?:[{L}A-Za-z]+\s)?(?:ዶላር|ዩሮ|ፓውንድ|ብር)"  # the currency as a word after its sign
_SIGN_BEFORE = re.compile(
    rf"(?<![A-Za-z])(?P<sign>{_SIGN})\s?(?P<amount>{NUMBER})"
    rf"(?:\s?{DASH}\s?(?:{_SIGN})?(?P<to>{NUMBER}))?(?:\s?(?P<scale>{_SCALE}))?(?P<word>{_CURRENCY_WORD})?"
)
_ANY_SIGN = re.compile(_SIGN)
_WORD_BEFORE = re.compile(
    rf"(?<![{L}])(?P<prefix>(?:በ|የ|ከ|ለ|ወደ|እስከ|ስለ|እንደ)?)"
    rf"(?P<name>(?:የ(?:ኢትዮጵያ|አሜሪካ|ካናዳ) )?(?:ብር|ዶላር|ዩሮ|ፓውንድ))\s"
    rf"(?P<amount>{NUMBER}(?:\s?{DASH}\s?{NUMBER})?(?![\d:/{L}]))(?P<scale>(?:\s?(?:{_SCALE}))?)"
    rf"(?P<end>\s*(?:[^\w\s]|$|(?:ነው|ነበር|ብቻ|ሆነ|ደረሰ|እና|እስከ|ወይም)(?![{L}])))?"
)
_AN_AMOUNT = re.compile(rf"(?:\d|(?<![{L}])(?:[{L}]*መቶ|{_SCALE}))\s(?:የ[{L}]+\s)?$")
_MAX_BEFORE = 30
_MIN_DIGITS = 3  # a smaller whole number may count what follows: ብር 3 ሰዎች ተካፈሉት
_SIGN_AFTER = re.compile(rf"(?P<amount>{NUMBER})\s?(?P<sign>{_SIGN})(?![A-Za-z])")
_SHORT_SCALE = re.compile(rf"(?<=\d)\s?([ሚቢ])\.\s?(?=(?:የ[{L}]+ )?(?:ብር|ዶላር|ዩሮ|ፓውንድ)(?![{L}]))")
_CENTS = re.compile(
    r"(?<![\d.,])(?P<whole>\d[\d,]*)\.(?P<cents>\d\d)\s"
    rf"(?P<name>(?:የ[{L}]+ )?(?:ብር|ዶላር|ዩሮ))(?![{L}])"
)


def money(text: str, options: NormalizerOptions) -> str:
    """Return `text` with the name of the currency after the amount, and two decimals as the options say."""
    if _ANY_SIGN.search(text):
        text = _SIGN_BEFORE.sub(_name_after, text)
        text = _SIGN_AFTER.sub(lambda match: f"{match['amount']} {_CURRENCIES[match['sign']]}", text)
    if "ብር" in text or "ዶላር" in text or "ዩሮ" in text or "ፓውንድ" in text:
        text = _WORD_BEFORE.sub(_amount_first, text)
    text = _SHORT_SCALE.sub(lambda match: {"ሚ": " ሚሊዮን ", "ቢ": " ቢሊዮን "}[match[1]], text)
    return _CENTS.sub(_with_cents, text) if options.money_decimals == "cents" else text


def _name_after(match: re.Match[str]) -> str:
    amount = match["amount"] + (f"-{match['to']}" if match["to"] else "")
    scale = match["scale"] or ""
    if scale.isascii():
        scale = _SCALES.get(scale.lower(), {"million": "ሚሊዮን", "billion": "ቢሊዮን"}.get(scale.lower(), ""))
    words = [amount, scale, (match["word"] or _CURRENCIES[match["sign"]]).strip()]
    return " ".join(word for word in words if word)


def _amount_first(match: re.Match[str]) -> str:
    prefix, name, amount, scale, end = match.groups()
    before = match.string[max(0, match.start() - _MAX_BEFORE) : match.start()]
    is_sure = scale or end is not None or not amount.isdigit() or len(amount) >= _MIN_DIGITS
    if not is_sure or _AN_AMOUNT.search(before):
        return match[0]
    return f"{prefix}{amount}{scale} {name}{end or ''}"


def _with_cents(match: re.Match[str]) -> str:
    cents = int(match["cents"])
    return f"{match['whole']} {match['name']}" + (f" ከ{cents} ሳንቲም" if cents else "")


_PERCENT_TWICE = re.compile(rf"(?<=\d)\s?%(?=\s?{DASH}\s?[\"“”]?\d[\d.,]*\s?%)")
_PERCENT = re.compile(rf"(?<=\d)\s?[%٪](?:\s?(?:በመቶ|ከመቶ|ፐርሰንት)(?![{L}]))?(?P<ending>[{L}]*)(?P<touching>\w?)")
_PER_MILLE = re.compile(r"(?<=\d)\s?‰")
# ቱ is an ending of numbers; በመቶ takes ው
_PERCENT_ENDINGS = {"ቱ": "ው", "ቱን": "ውን", "ው": "ው", "ውን": "ውን", "ን": "ን", "ና": "ና", "": ""}


def percent(text: str, options: NormalizerOptions) -> str:
    """Return `text` with the word for percent after the number, or once after a range."""

    def word(match: re.Match[str]) -> str:
        ending, touching = match["ending"], match["touching"]
        joined = _PERCENT_ENDINGS.get(ending, f" {ending}")
        return f" {options.percent}{joined}" + (f" {touching}" if touching else "")

    text = _PERCENT.sub(word, _PERCENT_TWICE.sub("", text))
    return _PER_MILLE.sub(" በሺህ ", text)


_UNITS = TABLES["units"]
_UNIT = re.compile(
    rf"(?<=\d)\s?({'|'.join(sorted(_UNITS, key=len, reverse=True))})([²³])?(?![A-Za-z0-9²³/'])"
)
_GLUED = re.compile(rf"(?<=\d)\s?([ሴሚ])ሜ(?![{L}])")  # elsewhere ሴሜን is a misspelling of ሰሜን
_METRE = re.compile(rf"(?<=\d)\s?ሜ\.?(?:(?=²)|(?![{L}]))")
_SQUARE = re.compile(r"((?:(?:ኪሎ|ሴንቲ|ሚሊ|ናኖ) )?ሜትር)([²³])")
_DEGREES = re.compile(r"(?<=\d)\s?(?:°|º)\s?(?:(C|F|ሴ(?![\w/]))(?![A-Za-z]))?")
_SCALES_OF_HEAT = {"C": " ሴልሺየስ", "ሴ": " ሴልሺየስ", "F": " ፋራናይት", None: ""}


def measures(text: str, _options: NormalizerOptions) -> str:
    """Return `text` with the names of units and degrees after a number."""
    text = _DEGREES.sub(lambda match: f" ዲግሪ{_SCALES_OF_HEAT[match[1]]} ", text)
    text = _UNIT.sub(lambda match: f" {_UNITS[match[1]]}{match[2] or ' '}", text)
    text = _GLUED.sub(lambda match: {"ሴ": " ሴንቲ ሜትር", "ሚ": " ሚሊ ሜትር"}[match[1]], text)
    text = _METRE.sub(" ሜትር", text)
    text = _SQUARE.sub(lambda match: ("ካሬ " if match[2] == "²" else "ኪዩቢክ ") + match[1] + " ", text)
    return re.sub(r"(?<=\d)²", " ስኩዌር ", re.sub(r"(?<=\d)³", " ኪዩብ ", text))


_COMPARED = re.compile(rf"(?<![<>])([<>≥≤⩾⩽])\s?=?\s?({NUMBER})")
_WORDS_OF_COMPARISON = {
    ">": ("ከ", " በላይ"),
    "<": ("ከ", " በታች"),
    "≥": ("ቢያንስ ", ""),
    "⩾": ("ቢያንስ ", ""),
    "≤": ("ቢበዛ ", ""),
    "⩽": ("ቢበዛ ", ""),
}
_BETWEEN_NUMBERS = (
    (re.compile(r"(?<=\d)\s?[×✕*xX]\s?(?=\d)"), " ሲባዛ በ"),
    (re.compile(r"(?<![\w.])(?<![A-Za-z]\s)[×✕xX]\s?(?=\d)"), " ሲባዛ በ"),
    (re.compile(r"(?<=\d)\s?\^\s?2(?![\d.,])"), " ስኩዌር"),
    (re.compile(r"(?<=\d)\s?\^\s?3(?![\d.,])"), " ኪዩብ"),
    (re.compile(r"(?<=\d)\s?\^\s?[-\u2212]\s?(?=\d)"), " ኃይል ሲቀነስ "),
    (re.compile(r"(?<=\d)\s?\^\s?(?=\d)"), " ኃይል "),
    (re.compile(rf"(?<=[{L}])√\s?({NUMBER})"), r"\1 ስኩዌር ሩት "),  # behind a prefix
    (re.compile(rf"√\s?({NUMBER})"), r" የ\1 ስኩዌር ሩት "),
    (re.compile(rf"∛\s?({NUMBER})"), r" የ\1 ኪዩብ ሩት "),
    (re.compile(r"(?<=\d)\s?÷\s?(?=\d)"), " ሲካፈል ለ"),
    (re.compile(r"(?<=\d)\s?\+\s?(?=\d)"), " ሲደመር "),
    (re.compile(rf"(?<=\d)\s?[-\u2013\u2212]\s?(?={NUMBER}\s?=)"), " ሲቀነስ "),
    (re.compile(r"(?<=\d)\s?=\s?(?=\d)"), " እኩል ነው "),
    (re.compile(r"(?<=\d)\s\u2212\s(?=\d)"), " ሲቀነስ "),
    (re.compile(r"(?<![\d\s])\s*\u2212\s?(?=\d)|(?<=\s)\u2212(?=\d)"), " ሲቀነስ "),
    (re.compile(r"±\s?(?=\d)"), " ሲደመር ወይም ሲቀነስ "),
    (re.compile(r"(?<!\d)(?:~|≈)\s?(?=\d)"), "ወደ "),
    (re.compile(r"(?:#|№|No\.)\s?(?=\d)"), "ቁጥር "),
    (re.compile(r"(?<![\w.])ቁ\.\s?(?=\d)"), "ቁጥር "),
    (re.compile(r"(?<![\w.])ምዕ\.\s?(?=\d)"), "ምዕራፍ "),
)
# A fast test: a sign of the rules.
_ARITHMETIC = re.compile(r"[<>≥≤⩾⩽×✕*÷+=^√∛\u2212±~≈#№]|[xX] ?\d|No\.|ቁ\.|ምዕ\.")


def comparisons(text: str, _options: NormalizerOptions) -> str:
    """Return `text` with words for signs of arithmetic and comparison before and between numbers."""

    def compared(match: re.Match[str]) -> str:
        before, behind = _WORDS_OF_COMPARISON[match[1]]
        return f" {before}{match[2]}{behind} "

    if not _ARITHMETIC.search(text):
        return text
    text = _COMPARED.sub(compared, text)
    for pattern, words in _BETWEEN_NUMBERS:
        text = pattern.sub(words, text)
    return text
