"""Tests of indextts/data/quality/pauses.py: tones in the pauses are heard, speech and noise are not."""

import numpy as np
import pytest

from indextts.commands.quality_limits import QualityLimits
from indextts.data.manifest import Utterance
from indextts.data.quality.clips import Clip, Sound
from indextts.data.quality.measures import measure_text
from indextts.data.quality.pauses import tones_db
from indextts.data.quality.text_fit import text_fit
from indextts.data.quality.verdicts import judge
from indextts.features import vad

RATE_HZ = vad.SAMPLE_RATE_HZ
TIMES = np.arange(4 * RATE_HZ) / RATE_HZ
SPEECH = [vad.Span(0.5, 2.0), vad.Span(2.5, 3.8)]
NOISE = np.random.default_rng(0).standard_normal(len(TIMES))


def voiced() -> np.ndarray:
    """Return a voice of 120 Hz in the spans of SPEECH: (S,)."""
    is_speech = np.zeros(len(TIMES))
    for span in SPEECH:
        is_speech[int(span.start_s * RATE_HZ) : int(span.end_s * RATE_HZ)] = 1
    voice = is_speech * sum(np.sin(2 * np.pi * 120 * k * TIMES) / k for k in range(1, 20))
    return voice / np.sqrt(np.mean(voice[is_speech > 0] ** 2))


def level(*others: np.ndarray) -> float | None:
    return tones_db(np.sum([voiced(), *others], axis=0).astype(np.float32), SPEECH)


def test_quiet_music_is_heard_in_the_pauses():
    chord = sum(np.sin(2 * np.pi * hz * TIMES) for hz in (220, 277, 330)) * np.sqrt(2 / 3)
    assert level(10 ** (-20 / 20) * chord, 0.003 * NOISE) == pytest.approx(-20, abs=3)
    assert level(10 ** (-30 / 20) * chord, 0.003 * NOISE) == pytest.approx(-30, abs=3)


def test_noise_and_the_speech_itself_are_no_tones():
    assert level(0.003 * NOISE) < -60
    assert level(0.1 * NOISE) < -45  # 20 dB below the speech
    assert level() == -90


def test_the_end_of_a_word_that_passes_for_a_pause_is_no_music():
    vowel = np.sin(2 * np.pi * 300 * TIMES) * ((TIMES > 2.0) & (TIMES < 2.3))  # of 1.2 s of pauses
    assert level(vowel, 0.003 * NOISE) < -60


def test_a_recording_without_pauses_or_speech_is_not_measured():
    everything = [vad.Span(0, TIMES[-1])]
    assert tones_db(NOISE.astype(np.float32), everything) is None
    assert tones_db(NOISE.astype(np.float32), []) is None
    assert tones_db(NOISE[:500].astype(np.float32), [vad.Span(0, 0.03)]) is None
    short = [vad.Span(0.15, TIMES[-1] - 0.08)]
    assert tones_db(NOISE.astype(np.float32), short) is None


def test_a_clip_is_compared_with_what_the_speaker_always_has():
    """A hum in all clips of a speaker rejects none of them; music above it does."""
    hum, music = [-30.0] * 24, [-14.0]
    utterance, text = Utterance("u", None, "ሰላም", "almaz", 3.0), measure_text("ሰላም ነው ዛሬ")
    measured = [{"duration_s": 3.0, "tones_db": tones} for tones in (*hum, *music)]
    clips = [Clip(utterance, Sound(measures), text, measures) for measures in measured]
    judge(clips, QualityLimits(), text_fit([]))
    assert ["music" in {flag.reason for flag in each.flags} for each in clips] == [False] * 24 + [True]
    judge(clips[:3], QualityLimits(), text_fit([]))
    assert all("music" in {flag.reason for flag in each.flags} for each in clips[:3])
