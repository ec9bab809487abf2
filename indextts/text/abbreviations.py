"""Amharic abbreviations, spelled out: with slashes (ት/ቤት) or dots (ዓ.ም), prefixes and endings.

A prefix (በት/ቤት) and an ending (ት/ቤቶች) stay joined to the words. A slash and a dot are equivalent; the dot
after the last letter is optional. Words that are not in the tables:

    a/b, two words     a b            the slash often means "or" and is not spoken
    ኤፍ.ቢ.አይ            ኤፍ ቢ አይ       names of Latin letters
    ነው.እሱ              ነው. እሱ        two sentences

Expansions follow the reference page of the project; comments mark ambiguous forms.
"""

import re
from collections.abc import Mapping

from indextts.text.ethiopic import ETHIOPIC_LETTERS as L

# Prefixes of a word or number, alone or in pairs (በየ, እስከነ).
PREFIXES = "በ|የ|ለ|ከ|ስለ|እስከ|ወደ|እንደ|እነ|በስተ|ያለ|እየ"
_PREFIX = rf"(?<![{L}])(?:{PREFIXES}){{0,2}}"

# Abbreviations whose last letter takes the vowel of the ending: ዶ/ር, ዶ/ሩ, ዶ/ሮች.
_INFLECTED = {
    "ዶ/ር": "ዶክተር",
    "ፕ/ር": "ፕሮፌሰር",
    "ረ/ፕ/ር": "ረዳት ፕሮፌሰር",
    "ተ/ፕ/ር": "ተባባሪ ፕሮፌሰር",
    "ኢ/ር": "ኢንጂነር",
    "ወ/ሮ": "ወይዘሮ",
    "ወ/ሪት": "ወይዘሪት",
    "ወ/ት": "ወይዘሪት",
    "ፕ/ት": "ፕሬዚዳንት",
    "ሚ/ር": "ሚኒስትር",  # ambiguous: also ሚኒስቴር, the ministry
    "ጠ/ሚ/ር": "ጠቅላይ ሚኒስትር",
    "ኮ/ል": "ኮሎኔል",
    "ሌ/ኮ/ል": "ሌተና ኮሎኔል",
    "ጄ/ል": "ጄኔራል",
    "ጀ/ል": "ጀኔራል",
    "ሌ/ጄ/ል": "ሌተና ጄኔራል",
    "ሜ/ጄ/ል": "ሜጀር ጄኔራል",
    "ብ/ጄ/ል": "ብርጋዴር ጄኔራል",
    "ሆ/ል": "ሆስፒታል",
}
# Abbreviations with no inflection; only a short ending may follow.
_FIXED = {
    "ጠ/ሚ": "ጠቅላይ ሚኒስትር",
    "ም/ጠ/ሚ": "ምክትል ጠቅላይ ሚኒስትር",
    "ማ/ኮ": "ማዕከላዊ ኮሚቴ",
    "ሌ/ኮ": "ሌተና ኮሎኔል",
    "ሜ/ጄ": "ሜጀር ጄኔራል",
    "ብ/ጄ": "ብርጋዴር ጄኔራል",
    "ሌ/ጄ": "ሌተና ጄኔራል",
    "መ/አ": "መቶ አለቃ",
    "አ/አ": "አዲስ አበባ",
    "ዓ/ም": "ዓመተ ምሕረት",
    "አ/ም": "ዓመተ ምሕረት",  # a homophone spelling of ዓ
    "ዓ/ዓ": "ዓመተ ዓለም",
    "እ/ኤ/አ": "እንደ ኤውሮፓውያን አቆጣጠር",
    "እ/አ/አ": "እንደ አውሮፓውያን አቆጣጠር",
    "ቅ/ል/ክ": "ቅድመ ልደተ ክርስቶስ",
    "ተ/መ/ድ": "የተባበሩት መንግሥታት ድርጅት",
    "ኃ/የተ/የግ/ማ": "ኃላፊነቱ የተወሰነ የግል ማኅበር",
    "ኃ/የተ/የግል ማህበር": "ኃላፊነቱ የተወሰነ የግል ማህበር",
    "ኃ/የተ": "ኃላፊነቱ የተወሰነ",
    "አ/ማ": "አክሲዮን ማኅበር",
    "መ/ቅ": "መጽሐፍ ቅዱስ",
    "ቤ/ክ": "ቤተ ክርስቲያን",
    "ቤ/መ": "ቤተ መንግሥት",
    "ወ/ዘ/ተ": "ወዘተ",
    "ኪ/ሜ": "ኪሎ ሜትር",
    "ኪ/ሜ/ሰ": "ኪሎ ሜትር በሰዓት",
    "ሜ/ሰ": "ሜትር በሰከንድ",
    "ሴ/ሜ": "ሴንቲ ሜትር",
    "ሚ/ሜ": "ሚሊ ሜትር",
    "ኪ/ግ": "ኪሎ ግራም",
}
# Abbreviated first parts before a full word, which stays unchanged.
_BEFORE_A_WORD = {
    r"ት(?=[/.]ቤ[ተ-ቶ])": "ትምህርት",
    r"መ(?=[/.]ቤ[ተ-ቶ])": "መሥሪያ",
    r"ም(?=[/.]ቤ[ተ-ቶ])": "ምክር",
    r"[ጽፅ](?=[/.]ቤ[ተ-ቶ])": "ጽሕፈት",
    r"ፍ(?=[/.]ቤ[ተ-ቶ])": "ፍርድ",
    r"ማ(?=[/.]ቤ[ተ-ቶ])": "ማረሚያ",
    r"ም[/.]ጠ(?=[/.]ሚኒስት)": "ምክትል ጠቅላይ",
    r"ጠ(?=[/.]ሚኒስት)": "ጠቅላይ",
    r"ም[/.]ሊ(?=[/.]መንበር)": "ምክትል ሊቀ",
    r"ሊ(?=[/.]መንበር)": "ሊቀ",
    r"[ሥስ](?=[/.]አስኪያጅ)": "ሥራ",
    r"ክ(?=[/.](?:ከተማ|ሀገር|ሃገር|አገር))": "ክፍለ",
    r"ሌ(?=[/.](?:ጄኔራል|ኮሎኔል))": "ሌተና",
    r"ሜ(?=[/.]ጄኔራል)": "ሜጀር",
    r"ብ(?=[/.]ጄኔራል)": "ብርጋዴር",
    rf"ም(?=/[{L}]{{2}})": "ምክትል",
    # before a name of at least two letters
    rf"[ኃሃሀኀ](?=/[{L}]{{2}})": "ኃይለ",
    rf"ገ(?=/[{L}]{{2}})": "ገብረ",
    rf"ወ(?=/[{L}]{{2}})": "ወልደ",
    rf"ተ(?=/[{L}]{{2}})": "ተክለ",
    rf"ቅ(?=/[{L}]{{2}})": "ቅዱስ",
    rf"ሻ(?=/[{L}]{{2}})": "ሻምበል",  # ambiguous: also ሻለቃ
}
# Titles that end with a dot.
_WITH_DOT = {"ሚር": "ሚስተር", "ዶር": "ዶክተር", "ፕሮፌ": "ፕሮፌሰር"}

_ORDERS = 7
_END = rf"(?=(?:ንና|ን|ና|ም|ው|ዋ)?(?!/?[{L}]))"


def _alternatives(keys: Mapping[str, str]) -> str:
    """Return a regular expression for any of `keys`, longest first; a slash also matches a dot."""
    longest_first = sorted(keys, key=len, reverse=True)
    return "|".join(re.escape(key).replace("/", r"[/.]\s?") for key in longest_first)


def _plain(found: str) -> str:
    """Return an abbreviation in the spelling of the tables."""
    return re.sub(r"[/.]\s?", "/", found).rstrip("/")


def _inflected_pattern() -> str:
    longest_first = sorted(_INFLECTED, key=len, reverse=True)
    return "|".join(_any_vowel(key) for key in longest_first)


def _any_vowel(key: str) -> str:
    row = ord(key[-1]) & ~7  # the first order of its last letter
    body = re.escape(key[:-1]).replace("/", r"(?:\.| ?/ ?)")
    return f"{body}[{chr(row)}-{chr(row + _ORDERS - 1)}]"


_FULL = {_any_vowel(key): (re.compile(_any_vowel(key)), words) for key, words in _INFLECTED.items()}
# A dot after the last letter belongs to the abbreviation if the sentence continues.
_CONTINUES = rf"(?:\.(?=\s*[{L}0-9A-Za-z,()]))?"

_RULE_FIXED = re.compile(rf"({_PREFIX})({_alternatives(_FIXED)}){_END}{_CONTINUES}")
_RULE_INFLECTED = re.compile(rf"({_PREFIX})({_inflected_pattern()})")
_RULE_BEFORE_A_WORD = tuple(
    (re.compile(rf"({_PREFIX}){key}[/.]"), words) for key, words in _BEFORE_A_WORD.items()
)
_RULE_WITH_DOT = re.compile(rf"({_PREFIX})({'|'.join(_WITH_DOT)})\.")
# A fast test: most lines match no rule.
_MAY_MATCH = re.compile(rf"/|[{L}]\.\s*[{L}0-9]|(?:{'|'.join(_WITH_DOT)}|ወዘተ)\.")
_RULE_ETC = re.compile(rf"(?<![{L}])ወዘተ\.(?=\s*\S)")

_NAMES = "ኤ ቢ ሲ ዲ ኢ ኤፍ ጂ ኤች አይ ጄ ኬ ኤል ኤም ኤን ኦ ፒ ኪው አር ኤስ ቲ ዩ ቪ ደብሊው ኤክስ ዋይ ዜድ"
LETTER_NAMES = dict(zip("ABCDEFGHIJKLMNOPQRSTUVWXYZ", _NAMES.split(), strict=True))
_LETTER_NAME = "|".join(sorted({*LETTER_NAMES.values(), "ደብሊዩ", "ደብሊዉ", "ኪዩ"}, key=len, reverse=True))
_PART = rf"(?:(?:{_LETTER_NAME})+|[{L}])"
_RULE_LETTER_NAMES = re.compile(
    rf"(?<![{L}.])((?:{PREFIXES}){{0,2}}{_PART}(?:\.{_PART})+)(?![{L}])(\.?)(\s*)"
)
_RULE_DOT_BETWEEN = re.compile(rf"(?<=[{L}])\.(?=[{L}])")
_RULE_SLASH = re.compile(r"(?<=[^\d\s])\s*/+\s*|\s*/+\s*(?=[^\d\s])|\s/+\s|^\s*/+|/+\s*$")


def spell_out(text: str) -> str:
    """Return `text` with the known abbreviations spelled out."""
    if not _MAY_MATCH.search(text):
        return text
    text = _RULE_FIXED.sub(_fixed, text)
    text = _RULE_INFLECTED.sub(lambda match: match[1] + _inflected(match[2]), text)
    for pattern, words in _RULE_BEFORE_A_WORD:
        text = pattern.sub(rf"\g<1>{words} ", text)
    text = _RULE_WITH_DOT.sub(lambda match: match[1] + _WITH_DOT[match[2]], text)
    return _RULE_ETC.sub("ወዘተ", text)


def split_at_dots(text: str) -> str:
    """Return `text` with a space between letter names and after a full stop between two words."""
    if "." not in text:
        return text
    text = _RULE_LETTER_NAMES.sub(_separate_letters, text)
    return _RULE_DOT_BETWEEN.sub(". ", text)


def slashes_to_spaces(text: str) -> str:
    """Return `text` without slashes, except between numbers."""
    return _RULE_SLASH.sub(" ", text) if "/" in text else text


def _fixed(match: re.Match[str]) -> str:
    words = _FIXED[_plain(match[2])]
    return match[1] + (words.removeprefix("የ") if match[1] else words)


def _inflected(found: str) -> str:
    for pattern, words in _FULL.values():
        if pattern.fullmatch(found):
            return words[:-1] + found[-1]
    raise AssertionError(found)


def _separate_letters(match: re.Match[str]) -> str:
    at_end = match.end() == len(match.string)
    behind = "" if at_end else match.string[match.end()]
    space = match[3] or (" " if behind.isalnum() else "")
    return match[1].replace(".", " ") + (match[2] if at_end else "") + space
