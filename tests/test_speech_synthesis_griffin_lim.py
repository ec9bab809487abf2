import numpy as np
import pytest
import torch

from indextts.features.audio import load_audio
from indextts.features.builtin import BuiltinBackend, fit, log_mel, mel_filters
from indextts.speech.synthesis.griffin_lim import MAX_PEAK, frames_to_audio, invert_mel, render_codes
from tests.conftest import REPOSITORY

CLIPS = sorted((REPOSITORY / "demo/audio").glob("*.opus"))[:12]


@pytest.fixture(scope="module")
def clips() -> list[np.ndarray]:
    return [load_audio(path, 24_000) for path in CLIPS]


@pytest.fixture(scope="module")
def backend() -> BuiltinBackend:
    return fit(CLIPS, num_codes=128, seed=0)


def distance(sound: np.ndarray, clip: np.ndarray) -> float:
    """Mean difference of the log-mel frames, in nats."""
    found, wanted = log_mel(sound), log_mel(clip)
    length = min(len(found), len(wanted))
    return float((found[:length] - wanted[:length]).abs().mean())


def test_the_sound_of_a_clips_codes_resembles_the_clip(backend, clips):
    for number in range(3):
        sound = render_codes(backend, backend.codes(backend.features(clips[number])))
        others = [distance(sound, clip) for index, clip in enumerate(clips) if index != number]
        assert distance(sound, clips[number]) < 0.6 * min(others)


def test_most_codes_of_the_sound_equal_the_codes_it_was_rendered_from(backend, clips):
    codes = backend.codes(backend.features(clips[0]))
    again = backend.codes(backend.features(render_codes(backend, codes)))
    assert float((again == codes).float().mean()) > 0.7


@pytest.mark.parametrize("num_codes", [0, 1, 50])
def test_a_code_is_480_samples(backend, num_codes):
    sound = render_codes(backend, torch.zeros(num_codes, dtype=torch.long))
    assert sound.shape == (480 * num_codes,)
    assert sound.dtype == np.float32
    assert np.isfinite(sound).all()


def test_a_sound_that_would_clip_is_attenuated(clips):
    loud = frames_to_audio(log_mel(clips[0]) + 8)
    assert np.abs(loud).max() == pytest.approx(MAX_PEAK)


def test_a_spectrum_has_its_bands():
    power = torch.rand(513, 7, generator=torch.Generator().manual_seed(0))
    filters = torch.from_numpy(mel_filters())
    found = invert_mel(filters @ power)
    assert (found >= 0).all()
    torch.testing.assert_close(filters @ found, filters @ power, rtol=0.1, atol=0)
