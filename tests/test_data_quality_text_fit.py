"""Tests of indextts/data/quality/text_fit.py: clips whose text fits much worse than the others."""

import numpy as np
import pytest

from indextts.data.quality import text_fit as module
from indextts.data.quality.text_fit import Heard, TextFit


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
