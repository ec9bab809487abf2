import pytest

from indextts.text.ethiopic import (
    LABIALISED_VARIANTS,
    LOOSE,
    MAX_TIGRINYA_SHARE,
    STRICT,
    merge_homophones,
    merge_labialised,
    text_key,
    tigrinya_share,
)


@pytest.mark.parametrize("other", ["ሰላም ነው", "ሠላም፣ነው።", "  ሰላም  ነው! ", "ሰላም\u135f ነው"])
def test_spellings_of_one_sentence_have_one_key(other):
    assert text_key(other) == text_key("ሰላም ነው።")


def test_keys_merge_two_spellings_that_the_normaliser_keeps():
    assert text_key("ዉስጥ") == text_key("ውስጥ")
    assert text_key("ወስጥ") != text_key("ውስጥ")


@pytest.mark.parametrize("other", ["ሰላም ነች", "ሰላም", "ሸላም ነው", "2 ሰላም ነው"])
def test_different_sentences_have_different_keys(other):
    assert text_key(other) != text_key("ሰላም ነው።")


def test_no_letter_is_merged_into_one_that_is_merged_itself():
    for table in (STRICT, LOOSE, LABIALISED_VARIANTS):
        assert not set(table) & set(table.values())


@pytest.mark.parametrize(
    ("text", "strict", "loose"),
    [
        ("ሐመር ሓኪም ኅዳር ኃይለ ሃገር", "ሀመር ሀኪም ህዳር ሀይለ ሀገር", "ሀመር ሀኪም ህዳር ሀይለ ሀገር"),
        ("ሠላም ሥራ ሦስት", "ሰላም ስራ ሶስት", "ሰላም ስራ ሶስት"),
        ("ዓለም ዐይን ዕለት ኣበበ", "አለም አይን እለት አበበ", "አለም አይን እለት አበበ"),
        ("ፀሐይ ጸሐፊ ፅጌ", "ጸሀይ ጸሀፊ ጽጌ", "ጸሀይ ጸሀፊ ጽጌ"),
        ("አምልኾ ኻያ", "አምልኾ ኻያ", "አምልሆ ሀያ"),
        ("ኸኧ", "ኸኧ", "ኸኧ"),  # sounds of their own
        ("ሸሼ ሺሽ ዉው ዪይ ዴደ", "ሸሼ ሺሽ ዉው ዪይ ዴደ", "ሸሼ ሺሽ ዉው ዪይ ዴደ"),
        ("ሗሧፇ", "ኋሷጿ", "ኋሷጿ"),
    ],
)
def test_letters_of_one_sound_become_one(text, strict, loose):
    assert merge_homophones(text, "off") == text
    assert merge_homophones(text, "strict") == strict
    assert merge_homophones(text, "loose") == loose


def test_labialised_letters_become_plain_ones():
    assert merge_labialised("ጐንደር ቍጥር ኰ ጓ") == "ጎንደር ቁጥር ኮ ጓ"


@pytest.mark.parametrize(
    ("text", "is_tigrinya"),
    [
        ("ሎሚ ንግሆ ናብ ዕዳጋ ከይደ ብዙሓት ሰባት ድማ ረኺበ ኣለኹ", True),
        ("ዛሬ ጠዋት ወደ ገበያ ሄድኩ እና ብዙ ሰዎችን አገኘሁ", False),
        ("ይኼ ለማንም አይበጅም፣ ይኼን ይኸውም", False),
        ("no fidel", False),
    ],
)
def test_tigrinya_is_recognised_by_its_letters(text: str, is_tigrinya: bool):
    assert (tigrinya_share(text) > MAX_TIGRINYA_SHARE) == is_tigrinya
