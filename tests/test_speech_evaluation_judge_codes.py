"""Tests of indextts/speech/evaluation/judge.py: loops and histograms of codes."""

import numpy as np
import pytest

from indextts.speech.evaluation.judge import has_loop, histogram, histogram_distance, longest_run


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
        (codes(), False),
        (codes([1]), False),
    ],
)
def test_a_loop_repeats_four_times_for_two_seconds(clip: np.ndarray, is_loop: bool):
    assert has_loop(clip, 50) == is_loop


def test_the_two_seconds_of_a_loop_follow_the_codes_per_second():
    assert has_loop(codes(SPEECH, np.full(50, 7)), 25)
    assert not has_loop(codes(SPEECH, np.full(49, 7)), 25)


def test_the_longest_run_is_found_wherever_it_is():
    for text, length in (("", 0), ("0", 0), ("1", 1), ("1101110", 3), ("0111", 3), ("1110", 3)):
        assert longest_run(np.array([char == "1" for char in text], dtype=bool)) == length


def test_histograms_are_shares_and_their_distance_is_from_0_to_1():
    a = histogram([np.array([0, 0, 1]), np.array([3])], 4)
    np.testing.assert_array_equal(a, [0.5, 0.25, 0, 0.25])
    b = histogram([np.array([0, 2])], 4)
    assert histogram_distance(a, a) == 0
    assert histogram_distance(a, b) == pytest.approx(0.5)  # half of the codes would have to change
    assert histogram_distance(histogram([np.array([0])], 4), histogram([np.array([1])], 4)) == 1
    np.testing.assert_array_equal(histogram([], 4), np.zeros(4))
