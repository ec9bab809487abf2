"""Tests of benchmarks.transliterate.py."""

import re
import unicodedata

import pytest

from benchmarks.transliterate import transliterate
from indextts.text.ethiopic import amharic_letters

# The vowel at the end of a letter's Unicode name, and how it is spelled here.
VOWEL_OF_NAME = {"A": "E", "U": "U", "I": "I", "AA": "A", "EE": "E", "E": "", "O": "O"}


@pytest.mark.parametrize(
    ("amharic", "latin"),
    [
        ("ሰላም", "SELAM"),
        ("አዲስ አበባ", "ADIS ABEBA"),
        ("ኢትዮጵያ", "ITYOPYA"),
        ("እንጀራ", "INJERA"),
        ("ቋንቋ", "KWANKWA"),
        ("ጐንደር", "GWENDER"),
        ("ሃያ ሀያ", "HAYA HAYA"),
        ("ጥቁር ዓባይ", "TKUR ABAY"),
        ("ሺህ ብር", "SHIH BR"),
    ],
)
def test_known_words_are_spelled_as_people_spell_them(amharic: str, latin: str):
    assert transliterate(amharic) == latin


def test_every_amharic_letter_becomes_latin_capitals():
    wrong = {
        c: transliterate(c) for c in amharic_letters() if not re.fullmatch("[A-Z]{1,4}", transliterate(c))
    }
    assert not wrong


def test_the_vowel_of_every_letter_is_that_of_its_unicode_name():
    vowelled = {
        letter: re.search(r"(?:[^AEIOUW]|GLOTTAL |PHARYNGEAL )(AA|EE|[AUIEO])$", unicodedata.name(letter))
        for letter in amharic_letters()
        if letter not in "ሀሐኀአዐእዕፘፙፚ"  # two orders of one sound; no consonant; RYA, MYA, FYA
    }
    checked = {letter: match[1] for letter, match in vowelled.items() if match}
    assert len(checked) > 200
    for letter, vowel in checked.items():
        spelled = re.search("[AEIOU]?$", transliterate(letter))
        assert spelled is not None
        assert spelled[0] == VOWEL_OF_NAME[vowel], unicodedata.name(letter)


def test_letters_of_one_sound_have_one_spelling():
    for alike in ("ሀሃሐሓኀኃ", "ሰሠ", "አዐኣዓ", "ጸፀ", "ሕህኅ"):
        assert len({transliterate(letter) for letter in alike}) == 1


def test_all_else_stays_as_it_is():
    assert transliterate("ABC 12, ▁፩ 你 é") == "ABC 12, ▁፩ 你 é"
