import pytest

from indextts.commands.normalizer_options import NormalizerOptions
from indextts.text.leftovers import Leftover, find_leftovers


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ሰላም ነው፣ 5 ሰው በ2017 ዓ.ም ት/ቤት ሄደ።", []),
        ("በCOVID-19 ምክንያት BBCን እና WHO አየ", [("latin", "COVID"), ("latin", "BBC"), ("latin", "WHO")]),
        ("COVID ዛሬ COVID ነገ", [("latin", "COVID")]),
        ("ታውkል ብሎ UK-ባልሆኑ", [("mixed", "ታውkል"), ("mixed", "UK-ባልሆኑ")]),
        ("የአ.ጤ.ድ ጉባኤ", [("abbreviation", "አ.ጤ.ድ")]),
        ("የኤድስ ቪ/ኤድስ ነው", [("abbreviation", "ቪ/ኤድስ")]),
        ("እና/ወይም ኪሎ/ሁለት የኤፍ.ቢ.አይ ሰው", []),
        ("ነው.እሱ መጣ", []),
        ("5 km 3 ዶ/ር", []),
        ("Room 12", [("latin", "Room")]),
        ("[ሳቅ] ስም|ዕድሜ በ|ላ ‡ ነው", [("mark", "[ሳቅ]"), ("repaired", "በ|ላ"), ("sign", "|"), ("sign", "‡")]),
        ("the room 12", [("digits", "12"), ("latin", "the"), ("latin", "room")]),
    ],
)
def test_forms_that_no_rule_reads_are_found_once(text, expected):
    assert find_leftovers(text) == [Leftover(*each) for each in expected]


def test_a_form_with_a_reading_is_no_longer_left():
    options = NormalizerOptions(readings=[("COVID", "ኮቪድ", "word"), ("አ.ጤ.ድ", "የዓለም ጤና ድርጅት", "word")])
    assert find_leftovers("በCOVID የአ.ጤ.ድ WHO", options) == [Leftover("latin", "WHO")]


def test_digits_that_a_switched_off_rule_leaves_are_found():
    options = NormalizerOptions(rules_off=["numbers"])
    assert find_leftovers("5 ሰው", options) == [Leftover("digits", "5")]


def test_in_other_languages_digits_and_foreign_words_are_found():
    assert find_leftovers("서울 BTS", NormalizerOptions(language="ko")) == [Leftover("latin", "BTS")]
    assert find_leftovers("habari BBC 5 g", NormalizerOptions(language="sw")) == [Leftover("digits", "5")]
