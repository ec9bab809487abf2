"""Tests of indextts/features/mel_spectrogram.py; test_conformance.py compares it with published numbers."""

import math

import numpy as np
import soxr
import torch

from indextts.features.mel_spectrogram import resample


def tone(frequency_hz: float, rate_hz: int, duration_s: float = 1.0) -> torch.Tensor:
    time = torch.arange(int(rate_hz * duration_s)) / rate_hz
    return 0.3 * torch.sin(2 * math.pi * frequency_hz * time)


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
