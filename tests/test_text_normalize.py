import random
import sys
import unicodedata

import pytest

from indextts.text.ethiopic import amharic_letters, is_ethiopic, is_ethiopic_letter
from indextts.text.normalize import normalize


def test_the_amharic_letters_are_the_291_that_every_amharic_tokenizer_must_hold(shared):
    required = (shared / "data" / "amharic" / "required_chars.txt").read_text("utf-8").strip()
    assert len(amharic_letters()) == 291
    assert set(amharic_letters()) == set(required)


def test_ethiopic_letters_are_told_from_marks_numerals_and_other_scripts():
    assert all(is_ethiopic(char) and is_ethiopic_letter(char) for char in amharic_letters())
    assert all(is_ethiopic(char) and not is_ethiopic_letter(char) for char in "።፣፲፼\u135f")
    assert all(is_ethiopic_letter(char) for char in "ᎀⶀꬁ\U0001e7e0")
    assert not any(is_ethiopic(char) for char in "A1. \u1249")  # U+1249 lies inside the block, unassigned


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ሰላም ነው።", "ሰላም ነው."),
        ("ሰላም ነው፡፡ እሺ", "ሰላም ነው. እሺ"),
        ("ሰላም ነው:: እሺ", "ሰላም ነው. እሺ"),
        ("ሰላም ነው፡። እሺ፡:", "ሰላም ነው. እሺ."),
        ("ሰላም ነው ፡ ፡ እሺ", "ሰላም ነው. እሺ"),
        ("ሰላም፣ ለሁሉ፤ አሉ፥ እንዲህ፦ ሄደ", "ሰላም, ለሁሉ, አሉ, እንዲህ, ሄደ"),
        ("ሄደ፧ የት፨", "ሄደ? የት."),
        ("ቃል፡ቃል፡ቃል።", "ቃል ቃል ቃል."),
        ("ቃል:ቃል", "ቃል ቃል"),
        ("እንዲህ: ሄደ", "እንዲህ, ሄደ"),
        ("እንዲህ፡- ሄደ :– መጣ", "እንዲህ, ሄደ, መጣ"),
        ("፠ምዕራፍ ÷ ሰላም÷ ነው", "ምዕራፍ ÷ ሰላም, ነው"),
    ],
)
def test_ethiopic_marks_and_their_look_alikes_become_ascii(text, expected):
    assert normalize(text) == expected


@pytest.mark.parametrize("text", ["3፡30", "3:30"])
def test_a_time_keeps_its_colon(text):
    assert normalize(f"ከ{text} ሰዓት፡፡") == "ከ3:30 ሰዓት."


def test_a_full_stop_of_word_spaces_after_a_number_is_a_full_stop():
    assert normalize("በ1985፡፡ በ1985፡ ዓ.ም") == "በ1985. በ1985 ዓ.ም"


def test_a_word_that_follows_an_ethiopic_mark_without_a_space_gets_one():
    assert normalize("ነው።እሱ፣5 ሰው") == "ነው. እሱ, 5 ሰው"
    assert normalize("እ.ኤ.አ 50፣000 3.5") == "እ.ኤ.አ 50,000 3.5"


def test_quotes_and_brackets_become_apostrophes_as_in_the_published_front_end():
    assert normalize('“ሰላም” «ነው» ‹አለ› (እሱ) [እሷ] "ሄደ" <<መጣ>>') == "'ሰላም' 'ነው' 'አለ' 'እሱ' 'እሷ' 'ሄደ' 'መጣ'"


def test_dashes_ellipses_and_full_width_marks_become_those_of_the_published_front_end():
    assert normalize("ሰላም — ነው… እሺ... አለ，ሄደ！ ከ5–6 ~7") == "ሰላም - ነው… እሺ… አለ,ሄደ! ከ5-6 -7"


def test_invisible_characters_and_emoji_disappear():
    assert normalize("\ufeffሰ\u200bላ\u00adም\u200e ነ\x00ው 3\ufe0f\u20e3😀ሄደ\ud800") == "ሰላም ነው 3 ሄደ"


def test_every_kind_of_space_becomes_one_space():
    assert normalize("\t ሰላም\u00a0\u202f\u3000ነው \r\n እሺ\u2028 ፣ ሄደ \u2581") == "ሰላም ነው እሺ, ሄደ"


def test_latin_letters_become_upper_case_and_composed():
    assert normalize("የgoogle Man\u0303ana straße ñ") == "የGOOGLE MAÑANA STRASSE Ñ"


def test_digits_and_ethiopic_numerals_stay():
    assert normalize("በ2017 ፲፱፻፹፭ 50%") == "በ2017 ፲፱፻፹፭ 50%"


def test_a_space_before_a_decimal_point_stays():
    assert normalize("ዋጋ .5 ነው .") == "ዋጋ .5 ነው."


@pytest.mark.parametrize("text", ["", " ", "\n", "፡", "\u200b", "😀"])
def test_a_text_of_nothing_spoken_is_empty(text):
    assert normalize(text) == ""


def test_normalising_twice_is_normalising_once_for_every_character():
    for code_point in range(sys.maxunicode + 1):
        char = chr(code_point)
        if unicodedata.category(char) != "Cn":
            once = normalize(f"ሀ{char}ለ3{char}3 a{char}.")
            assert normalize(once) == once, hex(code_point)


def test_normalising_twice_is_normalising_once_for_random_texts():
    characters = "ሀለ፡:።፣፥፦-–.,…' \"(<>3፫5aÅß÷/!?\u200b\u0301\u0345😀"
    chosen = random.Random(0)
    for _ in range(50_000):
        text = "".join(chosen.choices(characters, k=chosen.randint(1, 9)))
        once = normalize(text)
        assert normalize(once) == once, ascii(text)


def test_normalising_leaves_no_ethiopic_mark_in_real_text(shared):
    lines = (shared / "data" / "amharic" / "corpus_raw.txt").read_text("utf-8").splitlines()
    for line in lines:
        text = normalize(line)
        assert not set(text) & set("፠፡።፣፤፥፦፧፨\u200b\xa0"), text
        assert normalize(text) == text
