"""Tests of indextts/features/mel_spectrogram.py; test_conformance.py compares it with published numbers."""

import math

import numpy as np
import pytest
import soxr
import torch

from indextts.features.mel_spectrogram import (
    kaldi_frames,
    reference_mel,
    resample,
)


def tone(frequency_hz: float, rate_hz: int, duration_s: float = 1.0) -> torch.Tensor:
    time = torch.arange(int(rate_hz * duration_s)) / rate_hz
    return 0.3 * torch.sin(2 * math.pi * frequency_hz * time)


@pytest.mark.parametrize("num_samples", [385, 1023, 1024, 1279, 1280, 22_050])
def test_a_mel_frame_is_256_samples(num_samples):
    assert reference_mel(torch.zeros(1, num_samples)).shape == (1, 80, num_samples // 256)


def test_silence_is_at_the_floors():
    assert reference_mel(torch.zeros(1, 4000)).unique().tolist() == pytest.approx([math.log(1e-5)])
    assert kaldi_frames(torch.zeros(4000)).unique().tolist() == pytest.approx([math.log(2**-23)])


@pytest.mark.parametrize(("num_samples", "num_frames"), [(400, 1), (559, 1), (560, 2), (16_000, 98)])
def test_only_complete_windows_give_kaldi_frames(num_samples, num_frames):
    assert kaldi_frames(torch.zeros(num_samples)).shape == (num_frames, 80)


@pytest.mark.parametrize("num_samples", [441, 442, 882, 22_050, 13_671])
def test_a_resampled_sound_is_320_samples_of_441(num_samples):
    assert resample(torch.zeros(2, num_samples), 22_050, 16_000).shape == (
        2,
        math.ceil(num_samples * 320 / 441),
    )


def test_resampling_keeps_a_tone_and_drops_what_the_new_rate_cannot_hold():
    resampled = resample(tone(1000, 22_050)[None], 22_050, 16_000)[0]
    torch.testing.assert_close(resampled[100:-100], tone(1000, 16_000)[100:-100], rtol=0, atol=1e-3)
    assert resample(tone(10_000, 22_050)[None], 22_050, 16_000)[0, 100:-100].abs().max() < 0.01


def test_resampling_agrees_with_another_resampler():
    noise = np.random.default_rng(0).normal(0, 0.1, 22_050)
    low = soxr.resample(soxr.resample(noise, 22_050, 8_000), 8_000, 22_050).astype(np.float32)
    ours = resample(torch.from_numpy(low)[None], 22_050, 16_000)[0].numpy()
    theirs = soxr.resample(low, 22_050, 16_000)
    assert np.abs(ours[200:-200] - theirs[: len(ours)][200:-200]).max() < 2e-3
