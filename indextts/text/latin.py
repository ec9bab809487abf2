"""Latin and Greek in Amharic text: addresses, initials, acronyms, Roman numerals, single Greek letters.

For example:

    www.a.com, a@b.et     the dots and signs are spoken, as ነጥብ and አት
    U.S.                  US
    BBC                   BBC, or ቢ ቢ ሲ with the option acronyms="letters"
    ምዕራፍ II, ደረጃ I-III      ምዕራፍ 2, ደረጃ 1-3       after a heading
    ሉዊስ XIV, XXኛ          ሉዊስ 14ኛ, 20ኛ          after a ruler or before the ending
    IL-1β                 IL-1 ቤታ
"""

import re

from indextts.commands.normalizer_options import NormalizerOptions
from indextts.text.abbreviations import LETTER_NAMES, PREFIXES
from indextts.text.amharic import TABLES
from indextts.text.ethiopic import ETHIOPIC_LETTERS as L
from indextts.text.ethiopic import merge_homophones

_ADDRESS = re.compile(
    r"(?:https?://|www\.)[\w./?=&%#~:+@-]*[\w/]"
    r"|(?<![\w.+-])[\w.+-]{1,64}@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+"
    r"|(?<![\w.-])(?:[A-Za-z0-9-]{1,63}\.){1,9}(?:com|org|net|et|gov|edu|info|io|uk|au|ca)(?![\w])",
    re.IGNORECASE | re.ASCII,
)
_LATIN = re.compile("[A-Za-z]")
_SPOKEN = (("@", " አት "), (".", " ነጥብ "))
_SILENT_IN_ADDRESS = re.compile(r"[/:+_#?=&%~-]+")


def addresses(text: str, _options: NormalizerOptions) -> str:
    """Return `text` with the dots and signs of web and mail addresses as words."""
    return _ADDRESS.sub(_address, text) if "@" in text or _LATIN.search(text) else text


def _address(match: re.Match[str]) -> str:
    spoken = re.sub(r"(?i)^https?://", "", match[0])
    for sign, words in _SPOKEN:
        spoken = spoken.replace(sign, words)
    return _SILENT_IN_ADDRESS.sub(" ", spoken)


_INITIALS = re.compile(r"(?<![A-Za-z.])((?:[A-Za-z]\.){2,})(?![A-Za-z\u0300-\u036f])")
_WORD = re.compile(r"(?<![A-Za-z])[A-Za-z]{1,5}(?![A-Za-z])")
_VOWEL = re.compile("[AEIOUY]")
# Acronyms with vowels that are spelled letter by letter. The test must not depend on case, because the output
# is upper case and normalising it again must not change it.
_WITH_VOWELS = "USA UK EU UN WHO AU IMF DNA RNA FDA FBI CIA ICU EUA AI ATM USB URL CEO HIV"
_ACRONYMS_WITH_VOWELS = frozenset(_WITH_VOWELS.split())


def latin_words(text: str, options: NormalizerOptions) -> str:
    """Return `text` with initials joined, and acronyms spelled in Amharic if the options ask for it."""
    if not _LATIN.search(text):
        return text
    text = _INITIALS.sub(lambda match: match[1].replace(".", ""), text)
    return _WORD.sub(_spelled, text) if options.acronyms == "letters" else text


def _spelled(match: re.Match[str]) -> str:
    word = match[0].upper()
    if _VOWEL.search(word) and len(word) > 1 and word not in _ACRONYMS_WITH_VOWELS:
        return match[0]
    return " ".join(LETTER_NAMES[letter] for letter in word)


_VALUES = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100}
_ROMAN = r"(?=[IVX]|[LC][A-Z])C{0,3}(?:XC|XL|L?X{0,3})(?:IX|IV|V?I{0,3})(?<=[A-Z])"
# Each behind prefixes and before endings.
_HEADING, _RULER, _TITLE = (
    re.compile(
        rf"(?:{PREFIXES}){{0,2}}(?:{'|'.join(merge_homophones(TABLES['words'][name], 'strict').split())})"
        "(?:ዎች|ዎቹ|ች|ቹ|ው|ዋ|ን|ና|ም)*"
    )
    for name in ("headings", "rulers", "titles_of_rulers")
)
_NUMERAL = re.compile(
    rf"(?<![{L}])(?:(?P<title>[{L}]++) )?(?P<word>[{L}]++)(?:[^\w.,?!…']|[_²³¹])++(?P<first>{_ROMAN})"
    rf"(?:(?P<to>[-\u2013]|, ?| (?:እና|ወይም|እስከ) )(?P<last>{_ROMAN}))?(?!['.]?[A-Za-z]|['.]\d)",
    re.IGNORECASE,
)
_NUMERAL_WITH_ENDING = re.compile(rf"(?<![A-Za-z])(?P<first>{_ROMAN})(?:ኛ|(?=\sክፍለ\sዘመን))", re.IGNORECASE)
_MAY_BE_ROMAN = re.compile(rf"[{L}](?:[^\w.,?!…']|[_²³¹])++[IVXLC]|[IVXLC](?:ኛ|\sክፍለ)", re.IGNORECASE)


def roman_numerals(text: str, _options: NormalizerOptions) -> str:
    """Return `text` with digits for Roman numerals after the words of the tables and before ኛ."""
    if not _LATIN.search(text) or not _MAY_BE_ROMAN.search(text):
        return text
    text = _NUMERAL_WITH_ENDING.sub(lambda match: f"{_value(match['first'])}ኛ", text)
    return _NUMERAL.sub(_numeral, text)


def _numeral(match: re.Match[str]) -> str:
    title, word = (merge_homophones(part or "", "strict") for part in match.group("title", "word"))
    before = match[0][: match.start("first") - match.start()].replace("-", " ")
    if _HEADING.fullmatch(word):
        last = f"{match['to']}{_value(match['last'])}" if match["to"] else ""
        is_touching = match.string[match.end() : match.end() + 1].isdigit()
        return f"{before}{_value(match['first'])}{last}" + " " * is_touching
    if not match["to"] and (_RULER.fullmatch(word) or _TITLE.fullmatch(title)):
        return f"{before}{_value(match['first'])}ኛ"
    return match[0]


def _value(numeral: str) -> int:
    values = [_VALUES[sign] for sign in numeral.upper()]
    return sum(-low if low < high else low for low, high in zip(values, [*values[1:], 0], strict=True))


_GREEK_LETTERS = "αβγδεζηθικλμνξοπρστυφχψω"
_GREEK_NAMES = "አልፋ ቤታ ጋማ ዴልታ ኤፕሲሎን ዜታ ኤታ ቴታ አዮታ ካፓ ላምዳ ሚዩ ኒዩ ዛይ ኦሚክሮን ፓይ ሮ ሲግማ ታው ኡፕሲሎን ፋይ ካይ ፕሳይ ኦሜጋ"
_GREEK_LETTERS_TO_NAMES = dict(zip(_GREEK_LETTERS, _GREEK_NAMES.split(), strict=True))
_GREEK = {**_GREEK_LETTERS_TO_NAMES, "µ": "ሚዩ", "ς": "ሲግማ"}
_GREEK_CLASS = "\u0370-\u03ff\u1f00-\u1fff\u00b5"
_ANY_GREEK = re.compile(f"[{_GREEK_CLASS}]")
_GREEK_ALONE = re.compile(rf"(?<![{_GREEK_CLASS}])[{_GREEK_CLASS}](?![{_GREEK_CLASS}])")


def greek_letters(text: str, _options: NormalizerOptions) -> str:
    """Return `text` with single Greek letters named; Greek words stay unchanged."""

    def name(match: re.Match[str]) -> str:
        found = _GREEK.get(match[0].lower())
        return match[0] if found is None else f" {found} "

    return _GREEK_ALONE.sub(name, text) if _ANY_GREEK.search(text) else text
