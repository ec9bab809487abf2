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

from indextts.text.amharic import TABLES
from indextts.text.ethiopic import ETHIOPIC_LETTERS as L
from indextts.text.ethiopic import merge_homophones

# Prefixes of a word or number, alone or in pairs (በየ, እስከነ).
PREFIXES = "በ|የ|ለ|ከ|ስለ|እስከ|ወደ|እንደ|እነ|በስተ|ያለ|እየ"
_PREFIX = rf"(?<![{L}])(?:{PREFIXES}|[በየለከ]ነ){{0,2}}"

# See amharic.toml for what each of them is.
_INFLECTED, _WITH_DOT = TABLES["inflected"], TABLES["with_dot"]
_HOUSE = r"(?=(?:/\s?|\.)ቤ[ተ-ቶ])"
_BEFORE_A_WORD = {
    pattern.replace("<house>", _HOUSE).replace("<letter>", L): words
    for pattern, words in TABLES["before_a_word"].items()
}
_OF_NAMES, _IN_NAMES = TABLES["of_names"], TABLES["words"]["in_names"]

_ORDERS = 8  # with the labialised form: ዶ/ሯ
# A dot and a single letter behind are part of a longer abbreviation.
_END = rf"(?=(?:ንና|ን|ና|ም|ው|ዋ)?(?!/?[{L}]|\.[{L}](?![{L}0-9])))"
# After a changed vowel only an ending may follow: ዶ/ሮችን, but not ወ/ታደር.
_ENDINGS = rf"(?=(?:ዎች|ዎቹ|ች|ቹ|ው|ዋ|ነት|ን|ና|ም|ስ)*(?![{L}]))"


_ONE_SPELLING = str.maketrans("ህኅስፅ", "ሕሕሥጽ")  # of short forms, which are written with any of these
_FIXED = {key.translate(_ONE_SPELLING): words for key, words in TABLES["fixed"].items()}


def _alternatives(keys: Mapping[str, str]) -> str:
    """Return a regular expression for any of `keys`, longest first; a slash also matches a dot."""
    longest_first = "|".join(sorted(map(re.escape, keys), key=len, reverse=True))
    for row in ("ሕህኅ", "ሥስ", "ጽፅ"):
        longest_first = longest_first.replace(row[0], f"[{row}]")
    return longest_first.replace("/", r"[/.]\s?")


def _plain(found: str) -> str:
    """Return an abbreviation in the spelling of the tables."""
    return re.sub(r"[/.]\s?", "/", found).rstrip("/").translate(_ONE_SPELLING)


def _any_vowel(key: str) -> str:
    row = ord(key[-1]) & ~7  # the first order of its last letter
    body = re.escape(key[:-1]).replace("/", r"(?:\.| ?/ ?)")
    others = "".join(known[-1] for known in (*_INFLECTED, *_FIXED) if known[:-1] == key[:-1])  # ወ/ር, ወ/ሮ
    return f"{body}(?:{key[-1]}|(?![{others} ])[{chr(row)}-{chr(row + _ORDERS - 1)}]{_ENDINGS})"


_FULL = {_any_vowel(key): (re.compile(_any_vowel(key)), words) for key, words in _INFLECTED.items()}
# A dot after the last letter belongs to the abbreviation if the sentence continues.
_CONTINUES = rf"(?:\.(?=\s*[{L}0-9A-Za-z,()]))?"

_RULE_FIXED = re.compile(rf"({_PREFIX})({_alternatives(_FIXED)}){_END}{_CONTINUES}")
_ANY_INFLECTED = "|".join(map(_any_vowel, sorted(_INFLECTED, key=len, reverse=True)))
_RULE_INFLECTED = re.compile(rf"({_PREFIX})({_ANY_INFLECTED})")
_WORDS_BEFORE = tuple(_BEFORE_A_WORD.values())
_RULE_BEFORE_A_WORD = re.compile(
    rf"(?<![{L}])(?=[{L}]+[/.])({_PREFIX})(?:{'|'.join(map('({})'.format, _BEFORE_A_WORD))})[/.]\s?"
)
_STARTS_OF_NAMES = tuple(_IN_NAMES.split())
_RULE_NAME = re.compile(rf"({_PREFIX})([{''.join(_OF_NAMES)}])[/.]\s?(?=([{L}]+))")
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
    text = _RULE_INFLECTED.sub(lambda match: match[1] + _inflected(match[2]), text)
    text = _RULE_FIXED.sub(_fixed, text)
    if _PARTS.search(text):
        for _ in range(2):  # ም/ሥ/አስኪያጅ: the first part is read before a whole word only
            text = _RULE_BEFORE_A_WORD.sub(_before_a_word, text)
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


def _before_a_word(match: re.Match[str]) -> str:
    assert match.lastindex is not None  # of the alternative, behind that of the prefix
    return f"{_prefixed(match[1], _WORDS_BEFORE[match.lastindex - 2])} "


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
