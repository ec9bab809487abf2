"""The facts of languages: codes, scripts, alphabets, shares."""

import pytest

from indextts.errors import UserError
from indextts.system.language_codes import standard_code
from indextts.text.ethiopic import text_key
from indextts.text.languages import find_language, known_languages, own_letters


@pytest.mark.parametrize(
    ("written", "code"),
    [
        ("am", "am"),
        ("am-ET", "am"),
        ("am_et", "am"),
        ("amh_asr", "am"),
        ("kor", "ko"),
        ("cmn", "zh"),
        ("gez", "gez"),
        ("sr-Latn", "sr-Latn"),
        ("sr-Cyrl", "sr"),
    ],
)
def test_every_usual_way_to_write_a_language_gives_one_code(written, code):
    assert standard_code(written) == code
    assert find_language(written).code == code


@pytest.mark.parametrize("written", ["", "xx", "Amharic", "english", "a", "am/et", "ሀ", "1", "am\n", "../am"])
def test_what_is_no_language_is_refused_with_the_value(written):
    assert standard_code(written) is None
    with pytest.raises(UserError) as error:
        find_language(written)
    assert repr(written) in str(error.value)


@pytest.mark.parametrize(
    ("code", "scripts", "num_letters"),
    [
        ("am", {"Ethi"}, 291),
        ("ko", {"Hang"}, 2350),
        ("ja", {"Hira", "Kana", "Hani"}, None),
        ("ar", {"Arab"}, None),
        ("th", {"Thai"}, None),
        ("sw", {"Latn"}, 24),
    ],
)
def test_a_language_has_its_scripts_and_an_alphabet_of_them(code, scripts, num_letters):
    language = find_language(code)
    assert language.scripts == scripts
    assert language.letters
    assert all(language.owns(letter) for letter in language.letters)
    assert all(letter == letter.upper() for letter in language.letters)
    assert num_letters in (None, len(language.letters))
    assert language.samples


def test_vowel_signs_and_letters_of_common_characters_belong_to_their_script():
    assert find_language("th").owns("\u0e31")  # a vowel sign
    assert find_language("ar").owns("\u064b")  # a mark that Syriac shares
    assert find_language("ja").owns("ー")
    assert not find_language("ja").owns("1")
    assert not find_language("ko").owns("A")


def test_ideographs_are_words_and_kana_and_hangul_are_joined():
    assert find_language("ja").joins("か")
    assert not find_language("ja").joins("日")
    assert find_language("ko").joins("한")


@pytest.mark.parametrize(
    ("code", "text", "share"),
    [
        ("ko", "한국 ab", 0.5),
        ("am", "ሰላም", 1),
        ("sw", "habari 12", 1),
        ("ar", "12 !", 0),
    ],
)
def test_the_share_counts_letters_in_the_script(code, text, share):
    assert find_language(code).share(text) == share


def test_letters_of_an_alphabet_take_less_time_than_those_of_a_syllabary():
    rates = {code: find_language(code).letters_per_syllable for code in ("am", "ko", "ar", "sw")}
    assert rates["am"] == rates["ko"] == 1 < rates["ar"] < rates["sw"]


def test_own_letters_are_those_of_the_texts_in_the_script():
    assert own_letters(find_language("ko"), ["한 A1.", "글!"]) == {"한", "글"}


def test_the_list_of_languages_names_each_once():
    known = known_languages()
    codes = [language.code for language in known]
    assert len(set(codes)) == len(codes) > 500
    assert {"am", "ko", "ar", "th", "sw", "ti", "om", "so"} <= set(codes)
    assert all(standard_code(code) == code for code in codes)


def test_the_key_of_a_text_keeps_vowel_signs_of_other_scripts_and_no_ethiopic_marks():
    assert text_key("สัตว์") != text_key("สตว")
    assert text_key("की") != text_key("का")
    assert text_key("ሠላም፣ ነው።") == text_key("ሰላም ነው.") == text_key("ሰላ\u135fም ነው")
