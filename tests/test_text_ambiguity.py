import pytest

from indextts.commands.normalizer_options import NormalizerOptions
from indextts.text.ambiguity import find_ambiguities, nearest_reading, other_value


@pytest.mark.parametrize(
    ("text", "option", "words"),
    [
        ("በ1985 ዓ.ም ተወለደ።", "years", ("በአንድ ሺህ", "በአሥራ")),
        ("ስልክ 0911 ነው 0911234567", "phone_numbers", None),
        ("ዋጋው 12.50 ብር ነው", "money_decimals", ("ብር ከሃምሳ ሳንቲም", "ነጥብ አምስት ዜሮ ብር")),
    ],
)
def test_an_option_with_two_right_readings_is_found(text, option, words):
    [found] = find_ambiguities(text)
    assert found.option == option
    assert found.chosen != found.other
    assert words in (None, found.words)
    [swapped] = find_ambiguities(
        text, NormalizerOptions(**{option: other_value(option, NormalizerOptions())})
    )
    assert (swapped.chosen, swapped.other) == (found.other, found.chosen)


@pytest.mark.parametrize("text", ["5 ሰው በ2017 ዓ.ም", "ሰላም ነው", "12.5 ብር", "1,985 ሰው"])
def test_a_text_with_one_reading_is_not_ambiguous(text):
    assert find_ambiguities(text) == []


def test_the_reading_nearer_to_what_was_heard_is_proposed():
    [found] = find_ambiguities("በ1985 ዓ.ም ተወለደ")
    readings = (found.chosen, found.other)
    assert nearest_reading(readings, "ባንድ ሺ ዘጠኝ መቶ ሰማኒያ አምስት አመተ ምህረት ተወለደ") == 0
    assert nearest_reading(readings, "በአስራ ዘጠኝ መቶ ሰማኒያ አምስት ተወለደ") == 1
    assert nearest_reading(readings, "") is None
    assert nearest_reading(readings, "ላ") is None  # the shorter reading has fewer errors, but most are wrong
    assert nearest_reading(["ሀለመ", "ሀለሰ"], "ሀለ") is None  # no nearer than the other
