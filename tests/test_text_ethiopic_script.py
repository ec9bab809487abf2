import pytest

from indextts.text.ethiopic import MAX_TIGRINYA_SHARE, ethiopic_share, tigrinya_share


def test_the_share_of_ethiopic_is_of_the_letters_alone():
    assert ethiopic_share("ሰላም, 2017!") == 1.0
    assert ethiopic_share("ሰላም UNO") == 0.5
    assert ethiopic_share("፳፻ 12 ።") == ethiopic_share("") == 0.0


@pytest.mark.parametrize(
    ("text", "is_tigrinya"),
    [
        ("ሎሚ ንግሆ ናብ ዕዳጋ ከይደ ብዙሓት ሰባት ድማ ረኺበ ኣለኹ", True),
        ("ዛሬ ጠዋት ወደ ገበያ ሄድኩ እና ብዙ ሰዎችን አገኘሁ", False),
        ("no fidel", False),
    ],
)
def test_tigrinya_is_recognised_by_its_letters(text: str, is_tigrinya: bool):
    assert (tigrinya_share(text) > MAX_TIGRINYA_SHARE) == is_tigrinya
