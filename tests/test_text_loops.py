"""Tests of the loops in indextts/text/transcripts.py."""

import numpy as np
import pytest

from indextts.text.transcripts import has_loop, longest_run


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
    assert has_loop(clip, 100) == is_loop


def test_the_two_seconds_of_a_loop_follow_the_codes_per_second():
    assert has_loop(codes(SPEECH, np.full(50, 7)), 50)
    assert not has_loop(codes(SPEECH, np.full(49, 7)), 50)


def test_the_longest_run_is_found_wherever_it_is():
    for text, length in (("", 0), ("0", 0), ("1", 1), ("1101110", 3), ("0111", 3), ("1110", 3)):
        assert longest_run(np.array([char == "1" for char in text], dtype=bool)) == length
