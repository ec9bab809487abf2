"""Tests of indextts/features/log_mel.py and mel_spectrogram.py: input of w2v-BERT 2.0, and mel filters."""

import subprocess
import sys

import numpy as np
import pytest
import soxr
import torch
from transformers import SeamlessM4TFeatureExtractor
from transformers.audio_utils import mel_filter_bank

from indextts.features.log_mel import log_mel_pairs, num_vectors, slaney_filters
from indextts.features.mel_spectrogram import resample
from tests.published_files import noisy_speech


@pytest.mark.parametrize("num_samples", [560, 719, 720, 16_000, 16_160, 36 * 16_000])
@pytest.mark.parametrize("loudness", [1.0, 1e-4, 0.0])
def test_frames_are_those_of_the_published_extractor(num_samples, loudness):
    samples = noisy_speech(num_samples) * np.float32(loudness)
    wanted = SeamlessM4TFeatureExtractor(padding_value=1)(samples, sampling_rate=16_000, return_tensors="np")
    length = int(wanted["attention_mask"].sum())
    found = log_mel_pairs(samples)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, wanted["input_features"][0, :length], rtol=0, atol=1e-5)
    with_last = log_mel_pairs(samples, keeps_odd_frame=True)
    assert with_last.dtype == np.float32
    np.testing.assert_allclose(with_last, wanted["input_features"][0], rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("num_samples", "expected"),
    [(0, 0), (400, 0), (559, 0), (560, 1), (879, 1), (880, 2), (16_160, 49), (16_240, 50)],
)
def test_only_complete_pairs_of_frames_give_a_vector(num_samples, expected):  # pitfall 10
    assert num_vectors(num_samples) == expected
    assert log_mel_pairs(noisy_speech(num_samples)).shape == (expected, 160)


def test_reading_recordings_needs_no_torch():
    program = "import sys, indextts.data.reading, indextts.features.log_mel; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


@pytest.mark.parametrize(("rate_hz", "window", "num_bands"), [(24_000, 1024, 128), (22_050, 1024, 80)])
def test_filters_are_those_of_another_implementation(rate_hz, window, num_bands):
    theirs = mel_filter_bank(window // 2 + 1, num_bands, 0.0, rate_hz / 2, rate_hz, mel_scale="slaney")
    np.testing.assert_allclose(slaney_filters(rate_hz, window, num_bands), theirs.T, atol=1e-6)


def test_resampling_agrees_with_another_resampler():
    noise = np.random.default_rng(0).normal(0, 0.1, 22_050)
    low = soxr.resample(soxr.resample(noise, 22_050, 8_000), 8_000, 22_050).astype(np.float32)
    ours = resample(torch.from_numpy(low)[None], 22_050, 16_000)[0].numpy()
    theirs = soxr.resample(low, 22_050, 16_000)
    assert np.abs(ours[200:-200] - theirs[: len(ours)][200:-200]).max() < 2e-3
