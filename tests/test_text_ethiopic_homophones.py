import pytest

from indextts.text.ethiopic import LABIALISED_VARIANTS, LOOSE, STRICT, merge_homophones, merge_labialised


def test_strict_merges_forty_letters_and_loose_forty_seven():
    assert (len(STRICT), len(LOOSE)) == (40, 47)
    assert STRICT.items() <= LOOSE.items()
    assert "".join(sorted(LOOSE.keys() - STRICT.keys())) == "ኹኺኻኼኽኾዃ"


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
