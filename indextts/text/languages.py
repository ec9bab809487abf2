"""Languages: their scripts, alphabets and names, by ISO 639 code.

    code      "am"; three-letter codes and regions are accepted: "amh", "am_et", "amh_asr"
    scripts   of its letters, as ISO 15924 codes: {"Ethi"}; from CLDR's likely scripts (langcodes)
    letters   its alphabet, from CLDR's exemplar characters (gflanguages); Unicode script data: fontTools

Korean has 11,172 syllables; its alphabet here is the 2,350 of KS X 1001, which nearly all texts consist of.
"""

import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import gflanguages
import langcodes
from fontTools import unicodedata as unicode_scripts

from indextts.errors import UserError
from indextts.system.language_codes import standard_code
from indextts.text.ethiopic import amharic_letters

AMHARIC = "am"
SAMPLES_OF_AMHARIC = ("ሰላም ለሁላችሁም።", "ኢትዮጵያ ብዙ ወንዞች አሏት፣ ትልቁ ዓባይ ነው።", "በ2017 ዓ.ም ስንት ትምህርት ቤቶች ተከፈቱ?")

# Scripts that a code of several scripts stands for.
_SCRIPTS_OF = {"Kore": ("Hang",), "Jpan": ("Hira", "Kana", "Hani"), "Hans": ("Hani",), "Hant": ("Hani",)}
# Letters that take as long as a fidel, which is a syllable or the consonant at its end: medians over 60
# sentences of espeak-ng in 20 languages, against Amharic. A letter of other scripts takes as long as one.
_LETTERS_PER_SYLLABLE = {
    **dict.fromkeys(("Latn", "Cyrl", "Grek", "Armn", "Geor"), 2.0),
    **dict.fromkeys(("Arab", "Hebr", "Syrc"), 1.4),
}
# A number and the word after it are written without a space.
_NUMBERS_JOINED = frozenset(["Hang", "Thai", "Laoo", "Khmr", "Mymr", "Hira", "Kana", "Hani"])


@dataclass(frozen=True)
class Language:
    """A language; `code` is the shortest ISO 639 code, with a script if it is not the usual one."""

    code: str
    name: str
    autonym: str
    scripts: frozenset[str]
    letters: tuple[str, ...]  # the letters and vowel signs of its alphabet in upper case; empty if unknown
    samples: tuple[str, ...]  # sentences in the language; empty if unknown

    @property
    def letters_per_syllable(self) -> float:
        """The number of letters of its script that are spoken in the time of a syllable."""
        return max(_LETTERS_PER_SYLLABLE.get(script, 1.0) for script in self.scripts)

    @property
    def joins_numbers(self) -> bool:
        """A number and the word after it are written without a space."""
        return not self.scripts.isdisjoint(_NUMBERS_JOINED)

    def owns(self, char: str) -> bool:
        """Return whether a letter or mark belongs to the script of the language."""
        return not self.scripts.isdisjoint(scripts_of(char))

    def joins(self, char: str) -> bool:
        """Return whether a character of its script is written in words; ideographs are words themselves."""
        return self.owns(char) and "Hani" not in scripts_of(char)

    def count_letters(self, text: str) -> tuple[int, int]:
        """Return the number of letters in the script of the language, and of all letters."""
        num_own = num_all = 0
        for char, count in Counter(text).items():
            if char.isalpha():
                num_all += count
                num_own += count if self.owns(char) else 0
        return num_own, num_all

    def share(self, text: str) -> float:
        """Return the share of the letters of `text` that are in its script, 0 without letters."""
        num_own, num_all = self.count_letters(text)
        return num_own / num_all if num_all else 0.0


def find_language(code: str) -> Language:
    """Return the language of a code; a UserError if there is no such language."""
    standard = standard_code(code)
    if standard is None:
        raise UserError(f"language {code!r}: unknown; use an ISO 639 code such as am, ko or sw")
    return _language(standard)


def known_languages() -> list[Language]:
    """Return the languages with an alphabet, by name; one for each code."""
    codes = {standard_code(f"{entry.language}-{entry.script}") for entry in _entries().values()}
    found = [_language(code) for code in codes if code is not None]
    return sorted((language for language in found if language.letters), key=lambda each: each.name)


def own_letters(language: Language, texts: Iterable[str]) -> set[str]:
    """Return the letters and marks of `texts` in the script of a language."""
    return {char for char in set().union(*texts) if _is_letter(char) and language.owns(char)}


def count_syllables(letters: str) -> float:
    """Return about how many syllables letters of one script are."""
    scripts = scripts_of(letters[0]) if letters else ()
    return len(letters) / max((_LETTERS_PER_SYLLABLE.get(script, 1.0) for script in scripts), default=1.0)


@lru_cache(maxsize=65_536)
def scripts_of(char: str) -> frozenset[str]:
    """Return the scripts that use a character, as ISO 15924 codes; {"Zyyy"} for a common one."""
    return frozenset(unicode_scripts.script_extension(char))


@lru_cache(maxsize=256)
def _language(code: str) -> Language:
    if code == AMHARIC:  # without the data of all languages, which takes half a second to read
        return Language(
            AMHARIC, "Amharic", "አማርኛ", frozenset(["Ethi"]), amharic_letters(), SAMPLES_OF_AMHARIC
        )
    tag = langcodes.Language.get(code).maximize()
    script = str(tag.script)
    entry = _entries().get(f"{tag.language}_{script}")
    scripts = frozenset(_SCRIPTS_OF.get(script, (script,)))
    if entry is None:
        return Language(code, code, code, scripts, (), ())
    name = str(entry.preferred_name or entry.name).split(",")[0]
    exemplars = f"{entry.exemplar_chars.base} {entry.exemplar_chars.marks}"
    letters = _alphabet(exemplars, scripts)
    autonym = str(entry.autonym).partition(" (")[0] or name
    samples = (entry.sample_text.tester, entry.sample_text.specimen_36, entry.sample_text.styles)
    return Language(code, name, autonym, scripts, letters, tuple(filter(None, samples)))


@lru_cache(maxsize=1)
def _entries() -> dict[str, "gflanguages.LanguageProto"]:  # a name that older versions lack
    return dict(gflanguages.LoadLanguages())


def _alphabet(exemplars: str, scripts: frozenset[str]) -> tuple[str, ...]:
    """Return the letters of CLDR's notation, such as "a b {ch} 가-힣", in upper case."""
    chars: set[str] = set()
    for item in exemplars.replace("\u25cc", "").split():
        first, dash, last = item.partition("-")
        if dash and len(first) == len(last) == 1:
            chars.update(map(chr, range(ord(first), ord(last) + 1)))
        else:
            chars.update(item.strip("{}"))
    upper = {char for each in chars for char in unicodedata.normalize("NFC", each.upper())}
    is_of_script = {char for char in upper if not scripts.isdisjoint(scripts_of(char))}
    return tuple(sorted(char for char in is_of_script if _is_letter(char) and not _is_rare_hangul(char)))


def _is_letter(char: str) -> bool:
    return unicodedata.category(char)[0] in "LM"


def _is_rare_hangul(char: str) -> bool:
    """Return whether a Hangul syllable is not in KS X 1001, the character set of EUC-KR."""
    if not "\uac00" <= char <= "\ud7a3":
        return False
    try:
        return len(char.encode("euc_kr")) != 2  # rarer ones take 8 bytes, as a filler and three letters
    except UnicodeEncodeError:
        return True
