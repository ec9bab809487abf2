"""Tests of indextts/text/transcripts.py: error rates of transcripts, and loops."""

import numpy as np
import pytest

from indextts.commands.normalizer_options import NormalizerOptions, Reading
from indextts.text.transcripts import (
    Edges,
    Errors,
    WordFaults,
    count_errors,
    edges,
    edit_distance,
    error_rate,
    has_loop,
    interval,
    longest_run,
    word_faults,
)


@pytest.mark.parametrize(
    ("a", "b", "distance"),
    [
        ("", "", 0),
        ("", "abc", 3),
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
        ("ሰላም", "ሰላ", 1, 3),  # one letter lost
        ("ሰላም", "ሰላምታ", 1, 3),  # one more
        ("ሰላም", "", 3, 3),
        ("5 ሰዎች", "አምስት ሰዎች", 0, 7),  # numbers are read out
        ("OK ነው", "ok ነው", 0, 4),
    ],
)
def test_only_audible_differences_count_as_errors(meant: str, heard: str, edits: int, characters: int):
    assert count_errors(meant, heard) == Errors(edits, characters)


def test_a_text_is_compared_as_its_readings_say_it():
    options = NormalizerOptions(readings=(Reading("BBC", "ቢቢሲ", "word"),))
    assert count_errors("BBC ነው", "ቢቢሲ ነው", options) == Errors(0, 5)
    assert count_errors("BBC ነው", "ቢቢሲ ነው").edits == 3


@pytest.mark.parametrize(
    ("reference", "hypothesis", "expected"),
    [
        ("abcdefgh", "abcdefgh", Edges(0, 0)),
        ("abcdefgh", "abcde", Edges(0, 3)),  # the end was cut off
        ("abcdefgh", "defgh", Edges(3, 0)),
        ("abcde", "xyabcdexyz", Edges(-2, -3)),  # more was said
        ("abcdefgh", "xbcdefgx", Edges(0, 0)),  # wrong letters
        ("abcdefgh", "abcdxh", Edges(0, 2)),  # a single letter at the edge may be chance
        ("abcd", "bada", None),
        ("", "", None),
    ],
)
def test_letters_missing_and_too_many_at_the_edges_are_counted(
    reference: str, hypothesis: str, expected: Edges | None
):
    assert edges(reference, hypothesis) == expected


def test_the_rate_weighs_characters_and_not_clips():
    assert error_rate([Errors(1, 10), Errors(5, 10), Errors(0, 80)]) == pytest.approx(0.06)
    assert error_rate([Errors(6, 3)]) == 2.0  # much more was heard than meant
    assert error_rate([Errors(0, 0)]) == 0.0


def test_the_interval_holds_the_rate_and_shrinks_with_more_clips():
    few, many = [Errors(0, 10), Errors(4, 10)] * 5, [Errors(0, 10), Errors(4, 10)] * 200
    (low, high), (nearer, nearer_still) = interval(few), interval(many)
    assert low < nearer < 0.2 < nearer_still < high
    assert interval([Errors(1, 4)] * 9) == (0.25, 0.25)


@pytest.mark.parametrize(
    ("heard", "expected"),
    [
        ("ሠላም ለዓለም ሁሉ", WordFaults(False, False, 0)),
        ("ሰላ ለዓለ ሁሉ", WordFaults(False, False, 0)),  # misheard, not lost
        ("ለዓለም ሁሉ", WordFaults(True, False, 0)),
        ("ተማሪዎች መጡ ሰላም ለዓለም ሁሉ", WordFaults(False, False, 1)),  # "መጡ" is too short to count
        ("ሰላም ለዓለም ሁሉ ተማሪዎች", WordFaults(False, False, 0)),  # not at the start
        ("ተማሪዎች", WordFaults(True, True, 1)),
        ("", WordFaults(True, True, 0)),
    ],
)
def test_words_lost_at_the_edges_and_words_of_the_prompt_are_found(heard: str, expected: WordFaults):
    assert word_faults("ሰላም፣ ለዓለም ሁሉ።", heard, "ብዙ ተማሪዎች መጡ ሰላም።") == expected


def codes(*parts: np.ndarray) -> np.ndarray:
    return np.concatenate([np.zeros(0), *parts]).astype(np.int64)


SPEECH = np.random.default_rng(0).integers(0, 500, 200)


@pytest.mark.parametrize(
    ("clip", "is_loop"),
    [
        (codes(SPEECH), False),
        (codes(SPEECH, np.full(99, 7)), False),  # a pause of nearly 2 s
        (codes(SPEECH, np.full(100, 7)), True),
        (codes(SPEECH, np.tile(np.arange(30), 4)), True),  # 0.6 s, four times
        (codes(SPEECH, np.tile(np.arange(30), 3)), False),
        (codes(np.tile(np.arange(90), 4), SPEECH), True),  # wherever it is
        (codes(SPEECH, np.tile(np.arange(5), 10)), False),  # a trembling second
        (codes([1]), False),
    ],
)
def test_a_loop_repeats_four_times_for_two_seconds(clip: np.ndarray, is_loop: bool):
    assert has_loop(clip, 100) == is_loop


def test_the_two_seconds_of_a_loop_follow_the_codes_per_second():
    assert has_loop(codes(SPEECH, np.full(50, 7)), 50)
    assert not has_loop(codes(SPEECH, np.full(49, 7)), 50)


def test_the_longest_run_is_found_wherever_it_is():
    for text, length in (("", 0), ("0", 0), ("1", 1), ("1101110", 3), ("0111", 3), ("1110", 3)):
        assert longest_run(np.array([char == "1" for char in text], dtype=bool)) == length
