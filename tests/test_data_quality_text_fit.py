"""Tests of indextts/data/quality/text_fit.py: clips whose text fits much worse than the others."""

import numpy as np
import pytest

from indextts.data.quality import text_fit as module
from indextts.data.quality.text_fit import Heard, LengthFit, TextFit, length_fit


def heard(error: float, alignment: float | None = None, unheard: int = 0, beyond: int = 0) -> Heard:
    return Heard("", error, alignment, unheard, beyond)


def text_fit(clips: list[Heard], speaker: str = "almaz") -> TextFit:
    return module.text_fit([(speaker, clip) for clip in clips])


def usual(count: int = 200, mean: float = 12.0) -> list[Heard]:
    chance = np.random.default_rng(0)
    return [heard(abs(chance.normal(mean, 4)), chance.normal(-0.4, 0.15)) for _ in range(count)]


def test_wrong_texts_deviate_whatever_their_share():
    for num_wrong in (1, 10, 80):
        wrong = [heard(80 + number % 20, -6.0) for number in range(num_wrong)]
        clips = [*usual(), *wrong]
        fit = text_fit(clips)
        deviations = [fit.measures("almaz", clip)["text_mismatch"] for clip in clips]
        assert all(value > 5 for value in deviations[200:])
        assert sum(value > 5 for value in deviations[:200]) == 0


def test_either_error_rate_or_alignment_is_enough():
    fit = text_fit(usual())
    assert fit.measures("almaz", heard(90, None))["text_mismatch"] > 5
    assert fit.measures("almaz", heard(12, -3.0))["text_mismatch"] > 5
    assert fit.measures("almaz", heard(12, -0.4))["text_mismatch"] < 1
    assert fit.measures("almaz", None) == {}


def test_a_perfect_recognizer_flags_no_single_letter():
    fit = text_fit([heard(0, 0.0)] * 50)
    one_letter = fit.measures("almaz", heard(8, -0.2, unheard=1, beyond=2))
    assert all(one_letter[name] < 5 for name in ("text_mismatch", "text_unheard", "text_beyond"))
    assert fit.measures("almaz", heard(8, -0.2, unheard=3))["text_unheard"] > 5
    assert fit.measures("almaz", heard(8, -0.2, beyond=3))["text_beyond"] > 5


def test_speakers_that_are_not_understood_are_named_and_not_judged():
    clips = [("almaz", clip) for clip in usual()] + [("dawit", clip) for clip in usual(30, mean=75)]
    fit = module.text_fit(clips)
    assert fit.spreads["error_percent"].median == pytest.approx(12, abs=1)
    assert "text_mismatch" not in fit.measures("dawit", heard(99, -9.0))
    assert fit.measures("almaz", heard(99, -9.0))["text_mismatch"] > 5
    assert any("dawit: 7" in fact for fact in fit.facts(5.0))


def test_a_speaker_with_an_accent_is_compared_with_the_own_clips():
    almaz, dawit = usual(300, mean=8), usual(60, mean=40)
    fit = module.text_fit([("almaz", clip) for clip in almaz] + [("dawit", clip) for clip in dawit])
    assert all(fit.measures("dawit", clip)["text_mismatch"] < 5 for clip in dawit)
    assert fit.measures("almaz", dawit[0])["text_mismatch"] > 5
    assert fit.measures("dawit", heard(90, -6.0))["text_mismatch"] > 5
    assert any("dawit" in fact for fact in fit.facts(5.0))


@pytest.mark.parametrize("clips", [usual(count=19), usual(mean=90)], ids=["few clips", "bad recognizer"])
def test_nothing_is_judged_without_a_reliable_median(clips: list[Heard]):
    fit = text_fit(clips)
    assert set(fit.measures("almaz", clips[0])) == {"error_percent", "alignment"}
    assert "not compared" in fit.facts(5.0)[-1]
    assert text_fit([]).facts(5.0) == []


def spoken(unevenness: float = 0.085) -> tuple[np.ndarray, np.ndarray]:
    """Return the syllables of 400 right texts, and the seconds of their speech by two people."""
    chance = np.random.default_rng(1)
    syllables = np.round(np.exp(chance.normal(3.4, 0.6, 400)))
    return syllables, (syllables + 2) / np.where(np.arange(400) % 2, 7, 9) * np.exp(
        chance.standard_t(5, 400) * unevenness
    )


def lengths_of(syllables: np.ndarray, speech_s: np.ndarray) -> LengthFit:
    return length_fit(["almaz", "dawit"] * 200, syllables.tolist(), speech_s.tolist())


SHIFTED = np.concatenate([np.arange(200), np.arange(199, 399)])
ONE_FILE = np.concatenate([np.arange(100), np.arange(159, 99, -1), np.arange(160, 400)])


@pytest.mark.parametrize(
    ("rows", "wrong", "shift"),
    [
        (np.arange(400), range(0), None),
        (np.random.default_rng(2).permutation(400), range(400), 0),
        (SHIFTED, range(200, 400), 1),
        (ONE_FILE, range(100, 160), 0),
        (np.zeros(400, int), range(400), 0),
    ],
    ids=["right", "all wrong", "shifted from the middle on", "one file wrong", "one text"],
)
def test_rows_with_texts_of_other_recordings_are_found(rows: np.ndarray, wrong: range, shift: int | None):
    syllables, speech_s = spoken()
    fit = lengths_of(syllables[rows], speech_s)
    found = {place for run in fit.runs for place in run.places}
    assert len(found - set(wrong)) <= 4
    assert len(found & set(wrong)) >= 0.9 * len(wrong)
    assert [run.shift for run in fit.runs] == ([] if shift is None else [shift])
    assert fit.measures(399)["misplaced"] == (len(fit.runs[-1].places) if 399 in found else None)


@pytest.mark.parametrize(("is_cut", "least"), [(False, 0.5), (True, 0.8)], ids=["exchanged", "cut in half"])
def test_single_wrong_texts_are_found_by_their_length(is_cut: bool, least: float):
    syllables, speech_s = spoken()
    faulty = np.arange(5, 400, 10)
    texts = syllables.copy()
    texts[faulty] = syllables[faulty] // 2 if is_cut else syllables[np.roll(faulty, 1)]
    fit = lengths_of(texts, speech_s)
    is_odd = np.array([fit.measures(place)["length_deviation"] for place in range(400)]) > 3.7
    assert fit.runs == ()
    assert is_odd[faulty].mean() >= least
    assert np.delete(is_odd, faulty).mean() <= 0.01


def test_people_who_speak_unevenly_and_small_sets_are_not_accused():
    assert lengths_of(*spoken(unevenness=0.25)).runs == ()
    few = length_fit(["almaz"] * 19, [9.0] * 19, [2.0] * 19)
    assert (few.correlation, few.runs) == (None, ())
    unknown = length_fit(["almaz"] * 40, [0.0] * 40, [2.0] * 40)
    assert unknown.measures(0) == {"length_deviation": None, "misplaced": None}
