"""Tests of indextts/speech/evaluation/differences.py: differences are shown, and noise is not."""

from dataclasses import replace

import numpy as np
import pytest

from indextts.speech.evaluation.differences import differences, rising_length
from indextts.speech.evaluation.judge import Judgement
from indextts.speech.evaluation.report import Clip, summarize
from indextts.text.transcripts import Errors


def system(
    chance: np.random.Generator, num: int, num_seeds: int, hard: np.ndarray, *, length: float = 1.0
) -> list[Clip]:
    """Return clips of sentences with these error rates; a clip in thirty is lost."""
    characters = np.random.default_rng(num).integers(8, 60, num)
    clips = []
    for number, (size, rate) in enumerate(zip(characters, hard, strict=True)):
        for seed in range(num_seeds):
            is_lost = chance.random() < 0.03
            share = 1.0 if is_lost else min(rate * chance.gamma(4, 0.25), 1.0)
            errors = {"asr": Errors(int(chance.binomial(size, share)), int(size))}
            judgement = Judgement(
                length * chance.normal(3, 0.3), {"asr": ""}, errors, chance.normal(0.6, 0.1), False
            )
            clips.append(Clip(str(number), "", 12, 3.0, "p", judgement, not is_lost, False, seed=seed))
    return clips


def difficulty(chance: np.random.Generator, num: int) -> np.ndarray:
    return chance.beta(0.8, 8, num)  # most sentences are easy, some are hard


@pytest.mark.parametrize(("num", "num_seeds"), [(20, 1), (20, 3)])
def test_at_most_one_in_twenty_pairs_of_equal_systems_differs(num: int, num_seeds: int):
    num_trials, num_different = 200, 0
    for trial in range(num_trials):
        chance = np.random.default_rng([num, num_seeds, trial])
        hard = difficulty(chance, num)
        found = differences({name: system(chance, num, num_seeds, hard) for name in "ab"})
        num_different += any(each.is_shown for each in found)
    assert num_different <= 0.05 * num_trials


def test_a_third_more_errors_are_shown_with_enough_sentences_only():
    chance = np.random.default_rng(0)
    hard = difficulty(chance, 300)
    clips = {"a": system(chance, 300, 3, hard), "b": system(chance, 300, 3, 1.33 * hard)}
    by_measure = {each.measure: each for each in differences(clips)}
    assert by_measure["CER, asr"].is_shown
    assert by_measure["CER, asr"].difference > 0
    assert not by_measure["likeness"].is_shown
    assert differences({name: own[:12] for name, own in clips.items()}) == []  # 4 sentences
    assert differences({"a": clips["a"]}) == []


def test_the_same_clips_do_not_differ_and_unmeasured_ones_are_left_out():
    chance = np.random.default_rng(0)
    clips = system(chance, 20, 2, difficulty(chance, 20))
    unmeasured = [replace(clip, judgement=replace(clip.judgement, likeness=None)) for clip in clips[:6]]
    found = differences({"a": clips, "b": [*unmeasured, *clips[6:]]})
    assert len(found) == 4
    assert {(each.difference, each.is_shown) for each in found} == {(0, False)}


@pytest.mark.parametrize(
    ("lengths", "rises"), [([1.0, 1.1, 1.2], True), ([1.2, 1.1, 1.0], False), ([0.7, 0.8, 0.9], False)]
)
def test_a_length_above_the_recordings_that_rises_with_the_steps_is_flagged(
    lengths: list[float], rises: bool
):
    chance = np.random.default_rng(0)
    hard = difficulty(chance, 40)
    clips = {str(n): system(chance, 40, 2, hard, length=length) for n, length in enumerate(lengths)}
    rows = [summarize(name, int(name), own) for name, own in reversed(clips.items())]
    assert len(rising_length(differences(clips), rows)) == rises
