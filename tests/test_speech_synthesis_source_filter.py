"""Tests of indextts/speech/synthesis/source_filter.py, and of load_speech in renderer.py."""

import logging

import numpy as np
import pytest
import soundfile
import torch

from indextts.features.audio import load_audio
from indextts.features.builtin import BuiltinBackend, SpeechParameters, log_mel, voice_of
from indextts.features.builtin_networks import NUM_CODES
from indextts.speech.synthesis.renderer import load_speech
from indextts.speech.synthesis.source_filter import MAX_PEAK, harmonics, render
from tests.conftest import REPOSITORY

CLIPS = sorted((REPOSITORY / "demo/audio").glob("*.opus"))[:12]
BACKEND = BuiltinBackend(NUM_CODES)


@pytest.fixture(scope="module")
def clips() -> list[np.ndarray]:
    return [load_audio(path, 24_000) for path in CLIPS]


def parameters(codes: torch.Tensor, clip: np.ndarray) -> SpeechParameters:
    return BACKEND.parameters(codes, voice_of(BACKEND.features(clip)))


def distance(sound: np.ndarray, clip: np.ndarray) -> float:
    """Mean difference of the log-mel frames without their level, in nats."""
    found, wanted = log_mel(sound), log_mel(clip)
    length = min(len(found), len(wanted))
    off = found[:length] - wanted[:length]
    return float((off - off.mean()).abs().mean())


def test_the_sound_of_a_clips_codes_resembles_the_clip(clips):
    for number in range(3):
        sound = render(parameters(BACKEND.codes(BACKEND.features(clips[number])), clips[number]))
        others = [distance(sound, clip) for index, clip in enumerate(clips) if index != number]
        assert distance(sound, clips[number]) < 0.7 * min(others)


def test_the_same_codes_speak_in_the_voice_of_another_recording(clips):
    codes = BACKEND.codes(BACKEND.features(clips[0]))  # a man's
    pitches = [parameters(codes, clips[number]) for number in (0, 3)]  # 3 is a woman's
    low, high = (float(each.log_pitch[each.is_voiced].mean()) for each in pitches)
    assert high - low > 0.3


@pytest.mark.parametrize("num_codes", [0, 1, 25])
def test_a_code_is_960_samples(clips, num_codes):
    sound = render(parameters(torch.zeros(num_codes, dtype=torch.long), clips[0]))
    assert sound.shape == (960 * num_codes,)
    assert sound.dtype == np.float32
    assert np.isfinite(sound).all()


def test_a_sound_that_would_clip_is_attenuated(clips):
    spoken = parameters(BACKEND.codes(BACKEND.features(clips[0])), clips[0])
    loud = SpeechParameters(spoken.envelope + 9, spoken.noise_db, spoken.is_voiced, spoken.log_pitch)
    assert np.abs(render(loud)).max() == pytest.approx(MAX_PEAK)


def test_the_source_has_all_harmonics_of_the_pitch_with_the_power_of_white_noise():
    sound = harmonics(
        torch.full((100,), 240.0), torch.ones(24_000, dtype=torch.bool)
    )  # 100 samples in a period
    power = torch.fft.rfft(sound).abs().square() / len(sound)
    assert float(power.mean()) == pytest.approx(1, rel=0.1)
    lines = power[::240][1:50]
    assert float(lines.std() / lines.mean()) < 0.05
    assert float(lines.sum() / power.sum()) > 0.98


def test_flat_parameters_give_white_noise_and_a_part_has_the_noise_of_the_whole():
    frames = 200
    flat = SpeechParameters(
        torch.zeros(frames, 64),
        torch.zeros(frames, 3),
        torch.zeros(frames, dtype=torch.bool),
        torch.full((frames,), 5.0),
    )
    scaled = SpeechParameters(flat.envelope - 6, flat.noise_db, flat.is_voiced, flat.log_pitch)
    sound = render(scaled, seed=3)
    assert float(np.square(sound).mean()) == pytest.approx(np.exp(-6), rel=0.1)
    part = SpeechParameters(
        *(each[100:] for each in (scaled.envelope, scaled.noise_db, scaled.is_voiced, scaled.log_pitch))
    )
    np.testing.assert_allclose(render(part, seed=3, first_frame=100)[2000:], sound[26_000:], atol=1e-4)


VOICE = sorted((REPOSITORY / "demo/audio").glob("*.opus"))[0]


def write_speech(path, duration_s: float):
    samples = np.resize(load_audio(VOICE, 24_000), int(duration_s * 24_000))
    soundfile.write(path, samples, 24_000)
    return path


def test_the_first_15_s_are_read_at_the_wanted_rate_with_a_warning(tmp_path, caplog):
    path = write_speech(tmp_path / "a.wav", 20)
    with caplog.at_level(logging.WARNING):
        assert load_speech(path, 22_050).shape == (330_750,)
        assert load_speech(path, 16_000).shape == (240_000,)
    assert [(record.levelname, record.args) for record in caplog.records] == [
        ("WARNING", (path, 20.0, 15))
    ] * 2
