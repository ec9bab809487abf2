import numpy as np
import pytest

from indextts.features.audio import load_audio
from indextts.features.vad import (
    SAMPLE_RATE_HZ,
    WINDOW_S,
    Span,
    find_speech,
    speech_probabilities,
    speech_spans,
)
from tests.conftest import REPOSITORY


@pytest.fixture(scope="module")
def speech() -> np.ndarray:
    return load_audio(REPOSITORY / "demo/audio/demo_0003.opus", SAMPLE_RATE_HZ)


def test_speech_is_found_between_silences(speech):
    silence = np.zeros(2 * SAMPLE_RATE_HZ, np.float32)
    spans = find_speech(np.concatenate([silence, speech, silence]))
    assert spans[0].start_s == pytest.approx(2, abs=0.2)
    assert spans[-1].end_s == pytest.approx(2 + len(speech) / SAMPLE_RATE_HZ, abs=0.2)
    assert sum(span.duration_s for span in spans) > 0.8 * len(speech) / SAMPLE_RATE_HZ


def test_silence_and_noise_contain_no_speech():
    noise = np.random.default_rng(0).normal(0, 0.05, 3 * SAMPLE_RATE_HZ).astype(np.float32)
    assert find_speech(np.zeros(3 * SAMPLE_RATE_HZ, np.float32)) == []
    assert find_speech(noise) == []
    assert find_speech(np.zeros(0, np.float32)) == []


def test_several_calls_for_a_long_recording_give_continuous_spans(speech):
    """The model keeps its state between calls, so that the result equals that of a single call."""
    long = np.tile(speech, 10)  # longer than the 16.4 s of a call
    assert len(long) > 17 * SAMPLE_RATE_HZ
    part = speech_probabilities(long[: 16 * SAMPLE_RATE_HZ])
    np.testing.assert_allclose(speech_probabilities(long)[: len(part)], part, rtol=0, atol=1e-5)
    alone = speech_probabilities(long[20 * 512 * 26 :])  # the same audio without its history
    assert np.abs(speech_probabilities(long)[20 * 26 :][:5] - alone[:5]).max() > 1e-3


def test_short_pauses_do_not_end_speech_and_clicks_are_not_speech():
    yes, maybe, no = 0.9, 0.4, 0.1
    speech = [no, *[yes] * 10, no, no, *[yes] * 5, maybe, maybe, yes, *[no] * 5, yes, yes, *[no] * 4]
    assert speech_spans(speech, 100.0) == [Span(1 * WINDOW_S, 21 * WINDOW_S)]


def test_speech_ends_with_the_recording():
    assert speech_spans([0.9] * 10, 0.31) == [Span(0.0, 0.31)]
