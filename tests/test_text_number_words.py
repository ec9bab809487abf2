import random

import pytest

from indextts.commands.normalizer_options import NormalizerOptions
from indextts.text.normalize import normalize
from indextts.text.number_words import (
    MAX_CARDINAL,
    cardinal,
    digits_in_pairs,
    ethiopic_numerals_to_digits,
    from_ethiopic,
)

# A second way from numbers to words: from decimal digits, three at a time.
DIGIT_WORDS = dict(
    zip("123456789", ["አንድ", "ሁለት", "ሦስት", "አራት", "አምስት", "ስድስት", "ሰባት", "ስምንት", "ዘጠኝ"], strict=True)
)
TEN_WORDS = dict(
    zip("123456789", ["አሥር", "ሃያ", "ሠላሳ", "አርባ", "ሃምሳ", "ስልሳ", "ሰባ", "ሰማንያ", "ዘጠና"], strict=True)
)
GROUP_WORDS = ("", "ሺህ", "ሚሊዮን", "ቢሊዮን", "ትሪሊዮን")


def spelled(number: int) -> str:
    if number == 0:
        return "ዜሮ"
    groups = f"{number:,}".split(",")
    words = []
    for name, group in zip(reversed(GROUP_WORDS[: len(groups)]), groups, strict=True):
        hundred, ten, one = group.zfill(3)
        if hundred != "0":
            words.append(f"{DIGIT_WORDS[hundred]} መቶ")
        if ten != "0":
            words.append("አሥራ" if ten == "1" and one != "0" else TEN_WORDS[ten])
        if one != "0":
            words.append(DIGIT_WORDS[one])
        if int(group) and name:
            words.append(name)
    return " ".join(words)


def test_numbers_to_9999_and_at_random_to_a_trillion_agree_with_a_second_speller():
    chosen = random.Random(0)
    for number in [*range(10_000), *(chosen.randrange(10 ** chosen.randint(4, 12)) for _ in range(10_000))]:
        assert cardinal(number) == spelled(number), number


# What ኛ makes of the last word: ት ድ ር ን take the vowel of the first order, ኝ becomes ነ.
LAST_WORD_OF_ORDINAL = {
    "አንድ": "አንደኛ",
    "ሁለት": "ሁለተኛ",
    "ሦስት": "ሦስተኛ",
    "አራት": "አራተኛ",
    "አምስት": "አምስተኛ",
    "ስድስት": "ስድስተኛ",
    "ሰባት": "ሰባተኛ",
    "ስምንት": "ስምንተኛ",
    "ዘጠኝ": "ዘጠነኛ",
    "አሥር": "አሥረኛ",
}


def test_written_numbers_to_9999_are_read_alone_with_a_prefix_and_as_ordinals():
    for number in range(0, 10_000, 9):
        words = spelled(number)
        assert normalize(f"{number} ሰው") == f"{words} ሰው"
        assert normalize(f"ለ{number} ሰው") == f"ለ{words} ሰው"
        assert normalize(f"ከ{number * 10**6:,} በላይ") == f"ከ{spelled(number * 10**6)} በላይ"
        if number:
            before, space, last = words.rpartition(" ")
            ordinal = before + space + LAST_WORD_OF_ORDINAL.get(last, last + "ኛ")
            assert normalize(f"የ{number}ኛ") == f"የ{ordinal}"


def test_numbers_below_0_and_past_the_last_scale_have_no_words():
    assert cardinal(MAX_CARDINAL).startswith("ዘጠኝ መቶ ዘጠና ዘጠኝ ትሪሊዮን ")
    for number in (-1, MAX_CARDINAL + 1):
        with pytest.raises(ValueError, match=r"0\.\."):
            cardinal(number)


def test_the_options_choose_the_spelling():
    options = NormalizerOptions(thousand="ሺ", million="ሚሊየን", fifty="አምሳ", sixty="ስድሳ", eighty="ሰማኒያ")
    assert cardinal(50_060_080, options) == "አምሳ ሚሊየን ስድሳ ሺ ሰማኒያ"


def test_digits_in_pairs_keep_every_zero():
    assert digits_in_pairs("0911230007") == "ዜሮ ዘጠኝ አሥራ አንድ ሃያ ሦስት ዜሮ ዜሮ ዜሮ ሰባት"
    assert digits_in_pairs("123") == "አንድ ሃያ ሦስት"


@pytest.mark.parametrize(
    ("number", "numeral"),
    [
        (1, "፩"),
        (10, "፲"),
        (100, "፻"),
        (1985, "፲፱፻፹፭"),
        (2017, "፳፻፲፯"),
        (1000, "፲፻"),
        (10_000, "፼"),
        (10_001, "፼፩"),
        (100_010_000, "፼፩፼"),
        (10**6, "፻፼"),
        (10**8, "፼፼"),
        (987_654_321, "፱፼፹፯፻፷፭፼፵፫፻፳፩"),
    ],
)
def test_ethiopic_numerals_are_those_of_the_reference(number, numeral):
    assert from_ethiopic(numeral) == number


def test_invalid_sequences_of_ethiopic_numerals_are_read_one_by_one():
    for numeral in ("፩፪፫", "፩፻", "፩፼", "፻፻", "፩፲", "፲፳", "፼፩፻"):
        with pytest.raises(ValueError, match=numeral):
            from_ethiopic(numeral)
    assert ethiopic_numerals_to_digits("፩፪፫ ከ፻፼5") == "1 2 3 ከ1,000,000 5"
