"""Amharic abbreviations, spelled out: with slashes (ት/ቤት) or dots (ዓ.ም), prefixes and endings.

A prefix (በት/ቤት) and an ending (ት/ቤቶች) stay joined to the words. A slash and a dot are equivalent; the dot
after the last letter is optional. Words that are not in the tables:

    a/b, two words     a b            the slash often means "or" and is not spoken
    ኤፍ.ቢ.አይ            ኤፍ ቢ አይ       names of Latin letters
    ነው.እሱ              ነው. እሱ        two sentences
    ገ/ማርያም            ገብረ ማርያም     a name; only before the words of `_IN_NAMES`

Expansions follow the reference page of the project; comments mark ambiguous forms.
"""

import re
from collections.abc import Mapping
from functools import partial

from indextts.text.ethiopic import ETHIOPIC_LETTERS as L
from indextts.text.ethiopic import merge_homophones

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
    "መ/ር": "መምህር",
    "መ/ርት": "መምህርት",
    "ሻ/ል": "ሻምበል",
    "ዲ/ን": "ዲያቆን",
    "ሕ/ሰብ": "ኅብረተሰብ",
    "ህ/ሰብ": "ኅብረተሰብ",
    "ኅ/ሰብ": "ኅብረተሰብ",
    "ት/ት": "ትምህርት",
    "ሄ/ር": "ሄክታር",
    "ኩ/ል": "ኩንታል",
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
    "ሻ/ቃ": "ሻለቃ",
    "አ/አ": "አዲስ አበባ",
    "አ/አ/ዩ": "አዲስ አበባ ዩኒቨርሲቲ",
    "ዓ/ም": "ዓመተ ምሕረት",
    "አ/ም": "ዓመተ ምሕረት",  # a homophone spelling of ዓ
    "ዓ/ዓ": "ዓመተ ዓለም",
    "እ/ኤ/አ": "እንደ ኤውሮፓውያን አቆጣጠር",
    "እ/ኤ/ኣ": "እንደ ኤውሮፓውያን አቆጣጠር",
    "እ/አ/አ": "እንደ አውሮፓውያን አቆጣጠር",
    "እ/ኢ/አ": "እንደ ኢትዮጵያ አቆጣጠር",
    "ቅ/ል/ክ": "ቅድመ ልደተ ክርስቶስ",
    "ክ/ል/በ": "ከክርስቶስ ልደት በፊት",
    "ክ/በ": "ከክርስቶስ በፊት",
    "ዓክልበ": "ዓመት ከክርስቶስ ልደት በፊት",
    "ቀ/ኃ/ሥ": "ቀዳማዊ ኃይለ ሥላሴ",
    "ቀ/ኃ/ስ": "ቀዳማዊ ኃይለ ሥላሴ",
    "ቀ/ሀ/ስ": "ቀዳማዊ ኃይለ ሥላሴ",
    "ቀ/ሃ/ስ": "ቀዳማዊ ኃይለ ሥላሴ",
    "ኢ/ፌ/ዴ/ሪ": "ኢትዮጵያ ፌዴራላዊ ዴሞክራሲያዊ ሪፐብሊክ",
    "ወ/ወ/ክ/ማ": "ወጣት ወንዶች ክርስቲያናዊ ማኅበር",
    "ተ/መ/ድ": "የተባበሩት መንግሥታት ድርጅት",
    "ኃ/የተ/የግ/ማ": "ኃላፊነቱ የተወሰነ የግል ማኅበር",
    "ኃ/የተ/የግል ማህበር": "ኃላፊነቱ የተወሰነ የግል ማህበር",
    "ኃ/የተ": "ኃላፊነቱ የተወሰነ",
    "ሃ/የተ/የግ/ማ": "ኃላፊነቱ የተወሰነ የግል ማኅበር",
    "ሃ/የተ": "ኃላፊነቱ የተወሰነ",
    "አ/ማ": "አክሲዮን ማኅበር",
    "መ/ቅ": "መጽሐፍ ቅዱስ",
    "ቤ/ክ": "ቤተ ክርስቲያን",
    "ቤ/መ": "ቤተ መንግሥት",
    "ወ/ዘ/ተ": "ወዘተ",
    "ስ/ቁ": "ስልክ ቁጥር",
    "ተ/ቁ": "ተራ ቁጥር",
    "መ/ቁ": "መዝገብ ቁጥር",  # ambiguous: also መለያ ቁጥር
    "ሰ/መ/ቁ": "ሰበር መዝገብ ቁጥር",
    "ፖ/ሳ/ቁ": "ፖስታ ሳጥን ቁጥር",
    "ኪ/ሜ": "ኪሎ ሜትር",
    "ኪሜ": "ኪሎ ሜትር",
    "ኪ/ሜ/ሰ": "ኪሎ ሜትር በሰዓት",
    "ኪ/ሜ/ሰዓት": "ኪሎ ሜትር በሰዓት",
    "ኪሜ/ሰዓት": "ኪሎ ሜትር በሰዓት",
    "ሜ/ሰ": "ሜትር በሰከንድ",
    "ሜ/ሰከንድ": "ሜትር በሰከንድ",
    "ሴ/ሜ": "ሴንቲ ሜትር",
    "ሚ/ሜ": "ሚሊ ሜትር",
    "ካ/ሜ": "ካሬ ሜትር",
    "ካ/ኪ/ሜ": "ካሬ ኪሎ ሜትር",
    "ሚ/ሊ": "ሚሊ ሊትር",
    "ኪ/ግ": "ኪሎ ግራም",
    "ኪግ": "ኪሎ ግራም",
    "ብር/ሰዓት": "ብር በሰዓት",
    "ብር/ቀን": "ብር በቀን",
    "ብር/ወር": "ብር በወር",
    "ብር/ዓመት": "ብር በዓመት",
    "ብር/ኪሎ": "ብር በኪሎ",
    "ብር/ሊትር": "ብር በሊትር",
}
# Abbreviated first parts before a full word, which stays unchanged.
_HOUSE = r"(?=(?:/\s?|\.)ቤ[ተ-ቶ])"
_BEFORE_A_WORD = {
    rf"ፌ[/.]ጠ[/.]ፍ{_HOUSE}": "ፌዴራል ጠቅላይ ፍርድ",
    rf"ጠ[/.]ፍ{_HOUSE}": "ጠቅላይ ፍርድ",
    rf"ከ[/.]ፍ{_HOUSE}": "ከፍተኛ ፍርድ",
    rf"መጀ?[/.]ደ[/.]ፍ{_HOUSE}": "መጀመሪያ ደረጃ ፍርድ",
    rf"[ሕህኅ][/.]ተ[/.]ም{_HOUSE}": "የሕዝብ ተወካዮች ምክር",
    rf"ፌ[/.]ም{_HOUSE}": "ፌዴሬሽን ምክር",
    rf"ቅ[/.][ጽፅ]{_HOUSE}": "ቅርንጫፍ ጽሕፈት",
    rf"ት{_HOUSE}": "ትምህርት",
    rf"መ{_HOUSE}": "መሥሪያ",
    rf"ም{_HOUSE}": "ምክር",
    rf"[ጽፅ]{_HOUSE}": "ጽሕፈት",
    rf"ፍ{_HOUSE}": "ፍርድ",
    rf"ማ{_HOUSE}": "ማረሚያ",
    r"ቤ(?=[/.](?:ክርስ|ክህነት|መንግ|መ[ጻፃጽፅ]|እስራኤል))": "ቤተ",
    r"ም[/.]ጠ(?=[/.]ሚኒስት)": "ምክትል ጠቅላይ",
    r"ጠ(?=[/.]ሚኒስት)": "ጠቅላይ",
    r"ጠ[/.][ዐዓአ](?=[/.][ሕህኅ][ግጉጎ])": "ጠቅላይ ዐቃቤ",
    r"[ዐዓአ](?=[/.][ሕህኅ][ግጉጎ])": "ዐቃቤ",
    r"ም[/.]ር(?=[/.](?:መስተዳድ|መም[ህሕኅ]))": "ምክትል ርዕሰ",
    r"ር(?=[/.](?:መስተዳድ|መም[ህሕኅ]|ከተማ))": "ርዕሰ",
    r"ም[/.]ሊ(?=[/.]መንበ)": "ምክትል ሊቀ",
    r"ሊ(?=[/.]መንበ)": "ሊቀ",
    r"[ሥስ](?=[/.]አስኪያ)": "ሥራ",
    r"ክ(?=(?:/\s?|\.)(?:ከተማ|ሀገር|ሃገር|አገር|ዘመ|ጦ[ርሩራሮ]))": "ክፍለ",
    r"ክ(?=[/.]ዘበኛ)": "ክብር",
    r"[ሀሃኃኀ](?=[/.]ስብከ)": "ሀገረ",
    r"[ኃሃሀኀ][/.]የተ[/.]የግ(?=[/.]ማ[ህኅሕ])": "ኃላፊነቱ የተወሰነ የግል",
    r"ተ(?=[/.]ቁጥ)": "ተራ",
    r"ስ(?=[/.]ቁጥ)": "ስልክ",
    r"ፖ[/.]ሳ(?=[/.]ቁጥ)": "ፖስታ ሳጥን",
    r"ኪ(?=[/.](?:ሜት|ግራ)[ርሮሩራም])": "ኪሎ",
    r"ሴ(?=[/.]ሜት[ርሮሩራ])": "ሴንቲ",
    r"ሚ(?=[/.](?:ሜት|ሊት|ግራ)[ርሮሩራም])": "ሚሊ",
    r"ካ(?=[/.](?:ሜት[ርሮሩራ]|ኪሎ))": "ካሬ",
    r"ሌ(?=[/.](?:ጄኔራ|ኮሎኔ))": "ሌተና",
    r"ሜ(?=[/.]ጄኔራ)": "ሜጀር",
    r"ብ(?=[/.]ጄኔራ)": "ብርጋዴር",
    # before any word of at least two letters, but not inside a longer abbreviation
    r"(?<!/.)ም(?=/(?:ጎጃም|ሸዋ|ወለጋ|ሐረርጌ|ሀረርጌ|ሃረርጌ|አርሲ|ጉጂ))": "ምዕራብ",
    rf"(?<!/.)ም(?=/[{L}]{{2}})": "ምክትል",
    r"(?<!/.)ቅ(?=/(?:ማርያም|[ሥስ]ላ[ሴሤ]|አርሴማ|[ሐሀሃ]ና(?![ኤን])|ድንግል|ልደታ))": "ቅድስት",
    rf"(?<!/.)ቅ(?=/[{L}]{{2}})": "ቅዱስ",
    rf"(?<!/.)ሻ(?=/[{L}]{{2}})": "ሻምበል",  # ambiguous: also ሻለቃ
}
# First parts of names, which are read only before these words; other words follow these letters too (ተ/ቁጥር).
_OF_NAMES = {
    "ኃ": "ኃይለ",
    "ሃ": "ኃይለ",
    "ኀ": "ኃይለ",
    "ሀ": "ኃይለ",  # ambiguous: also ሀብተ
    "ገ": "ገብረ",
    "ወ": "ወልደ",
    "ተ": "ተክለ",
    "ደ": "ደብረ",
}
# Without homophones, and without endings.
_IN_NAMES = (
    "ማርያም ሚካኤል ሚካኢል ሚካየል ገብርኤል ገብራኤል ሩፋኤል ኡራኤል አማኑኤል ጊዮርጊስ ጊወርጊስ ጊዎርጊስ ጊዬርጊስ ስላሴ ሰላሴ መድህን መድሀን ኪዳን "
    "ህይወት ሂወት መስቀል እግዚ እዝጊ ጻድ ጻዲቅ ሀይማኖት ጨርቆስ ቂርቆስ ኪሮስ ሀና ሰንበት ሰማእት ዮሀንስ ዮሀኒስ ወልድ ኢየሱስ እየሱስ "
    "ክርስቶስ ሀዋር ጴጥሮስ ጳውሎስ ማርቆስ ሉቃስ እስጢፋኖስ ብርሀን ሚናስ አረጋ ታቦር ዘይት ሊባኖስ ሲና ጽዮን ወርቅ መለኮት ዋህድ ድንግል "
    "ልደታ ትንሳኤ ተንሳኤ አምላክ መንፈስ መላክ ማህጸን"
)
# Titles that end with a dot.
_WITH_DOT = {"ሚር": "ሚስተር", "ዶር": "ዶክተር", "ፕሮፌ": "ፕሮፌሰር"}

_ORDERS = 8  # with the labialised form: ዶ/ሯ
# A dot and a single letter behind are part of a longer abbreviation.
_END = rf"(?=(?:ንና|ን|ና|ም|ው|ዋ)?(?!/?[{L}]|\.[{L}](?![{L}0-9])))"
# After a changed vowel only an ending may follow: ዶ/ሮችን, but not ወ/ታደር.
_ENDINGS = rf"(?=(?:ዎች|ዎቹ|ች|ቹ|ው|ዋ|ነት|ን|ና|ም|ስ)*(?![{L}]))"


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
    return f"{body}(?:{key[-1]}|[{chr(row)}-{chr(row + _ORDERS - 1)}]{_ENDINGS})"


_FULL = {_any_vowel(key): (re.compile(_any_vowel(key)), words) for key, words in _INFLECTED.items()}
# A dot after the last letter belongs to the abbreviation if the sentence continues.
_CONTINUES = rf"(?:\.(?=\s*[{L}0-9A-Za-z,()]))?"

_RULE_FIXED = re.compile(rf"({_PREFIX})({_alternatives(_FIXED)}){_END}{_CONTINUES}")
_RULE_INFLECTED = re.compile(rf"({_PREFIX})({_inflected_pattern()})")
_RULE_BEFORE_A_WORD = tuple(
    (re.compile(rf"({_PREFIX}){key}[/.]\s?"), words) for key, words in _BEFORE_A_WORD.items()
)
_STARTS_OF_NAMES = tuple(_IN_NAMES.split())
_RULE_NAME = re.compile(rf"({_PREFIX})([{''.join(_OF_NAMES)}])/(?=([{L}]+))")
_RULE_WITH_DOT = re.compile(rf"({_PREFIX})({'|'.join(_WITH_DOT)})\.")
# Fast tests: most lines match no rule.
_MAY_MATCH = re.compile(rf"/|[{L}]\.\s*[{L}0-9]|(?:{'|'.join(_WITH_DOT)}|ወዘተ)\.|ኪ[ሜግ]|ዓክልበ")
_PARTS = re.compile(rf"/|\.[{L}]")
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
    if _PARTS.search(text):
        for pattern, words in _RULE_BEFORE_A_WORD:
            text = pattern.sub(partial(_before_a_word, words), text)
        text = _RULE_NAME.sub(_name, text)
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
    words = _prefixed(match[1], _FIXED[_plain(match[2])])
    is_touching = match[0].endswith(".") and match.string[match.end()].isalnum()
    return words + (" " if is_touching else "")


def _prefixed(prefix: str, words: str) -> str:
    """Return the words with a prefix, which replaces the prefix that they have on their own."""
    has_own = words.startswith(("የተባበሩት", "የሕዝብ", "ከክርስቶስ"))
    return prefix + (words[1:] if prefix and has_own else words)


def _before_a_word(words: str, match: re.Match[str]) -> str:
    return f"{_prefixed(match[1], words)} "


def _name(match: re.Match[str]) -> str:
    prefix, letter, word = match.groups()
    word = merge_homophones(word, "strict")
    if letter == "ሀ" and word.startswith("ወልድ"):
        return f"{prefix}ሀብተ "
    return f"{prefix}{_OF_NAMES[letter]} " if word.startswith(_STARTS_OF_NAMES) or word == "አብ" else match[0]


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
