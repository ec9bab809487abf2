"""Tests of indextts/text/transcripts.py: error rates of transcripts."""

import pytest

from indextts.text.transcripts import (
    Errors,
    count_errors,
    edit_distance,
    error_rate,
    interval,
)


@pytest.mark.parametrize(
    ("a", "b", "distance"),
    [
        ("", "", 0),
        ("", "abc", 3),
        ("abc", "", 3),
        ("abc", "abc", 0),
        ("kitten", "sitting", 3),
        ("ab", "ba", 2),
    ],
)
def test_the_edit_distance_is_the_fewest_edits(a: str, b: str, distance: int):
    assert edit_distance(a, b) == edit_distance(b, a) == distance


@pytest.mark.parametrize(
    ("meant", "heard", "edits", "characters"),
    [
        ("ሰላም ለዓለም።", "ሰላምለአለም", 0, 7),  # marks, spaces and spelling do not count
        ("ፀሐይ ወጣች", "ጸሀይ ወጣች", 0, 6),
        ("ሰላም", "ሰላ", 1, 3),  # one letter lost
        ("ሰላም", "ሰለም", 1, 3),  # one other
        ("ሰላም", "ሰላምታ", 1, 3),  # one more
        ("ሰላም", "", 3, 3),
        ("5 ሰዎች", "አምስት ሰዎች", 0, 7),  # numbers are read out
        ("OK ነው", "ok ነው", 0, 4),
    ],
)
def test_only_audible_differences_count_as_errors(meant: str, heard: str, edits: int, characters: int):
    assert count_errors(meant, heard) == Errors(edits, characters)


def test_the_rate_weighs_characters_and_not_clips():
    assert error_rate([Errors(1, 10), Errors(5, 10), Errors(0, 80)]) == pytest.approx(0.06)
    assert error_rate([Errors(6, 3)]) == 2.0  # much more was heard than meant
    assert error_rate([Errors(0, 0)]) == 0.0


def test_the_interval_holds_the_rate_and_shrinks_with_more_clips():
    few, many = [Errors(0, 10), Errors(4, 10)] * 5, [Errors(0, 10), Errors(4, 10)] * 200
    (low, high), (nearer, nearer_still) = interval(few), interval(many)
    assert low < nearer < 0.2 < nearer_still < high
    assert interval([Errors(1, 4)] * 9) == (0.25, 0.25)
