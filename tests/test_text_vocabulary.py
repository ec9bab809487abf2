import pytest

from indextts.text.vocabulary import advise_size


@pytest.mark.parametrize(
    ("hours", "num_pieces"),
    [(0, 2000), (19.9, 2000), (20, 4000), (50, 4000), (99, 4000), (100, 8000), (200, 12_000), (5000, 12_000)],
)
def test_more_hours_of_speech_allow_more_pieces(hours, num_pieces):
    advice = advise_size(hours)
    assert advice.num_pieces == num_pieces
    assert f"{hours:.1f} hours" in str(advice)


def test_the_smallest_size_is_advised_if_the_hours_are_unknown():
    assert advise_size(None).num_pieces == 2000
    assert "hours" not in str(advise_size(None))
    assert advise_size(None).objection(24_000) == ""


def test_few_pieces_are_fine_for_little_speech():
    assert advise_size(0.2).objection(600) == ""
    assert "are many" in advise_size(0.2).objection(12_000)


def test_a_size_above_twice_or_below_half_the_advice_has_a_warning():
    advice = advise_size(120)
    assert [advice.objection(count) for count in (4000, 8000, 16_000)] == ["", "", ""]
    assert "are few" in advice.objection(3999)
    assert "are many" in advice.objection(16_001)
