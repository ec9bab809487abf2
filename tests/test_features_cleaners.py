"""Tests of the removal of noise and music, with the real packages; Demucs with a tiny random model."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from indextts.errors import UserError
from indextts.features.cleaners import VoiceSeparator, kept_speech, without_hum, without_noise
from tests.spoken_languages import spoken

pytest.importorskip("pyrnnoise", reason="needs the extra clean")
pytest.importorskip("demucs", reason="needs the extra clean")
CPU = torch.device("cpu")


def write_separator(path: Path, *sources: str) -> Path:
    """Write a tiny HTDemucs with random weights, as the hub has them."""
    from demucs.htdemucs import HTDemucs

    settings: dict[str, Any] = {
        **{"sources": list(sources), "samplerate": 16_000, "segment": 1, "nfft": 1024, "channels": 4},
        **{"depth": 2, "bottom_channels": 8, "t_layers": 1, "t_heads": 2, "t_hidden_scale": 1.0},
        **{"dconv_comp": 2, "norm_starts": 2, "norm_groups": 2, "multi_freqs": None},
    }
    torch.manual_seed(0)
    weights = {name: value.contiguous() for name, value in HTDemucs(**settings).state_dict().items()}
    metadata = {"klass": "demucs.htdemucs.HTDemucs", "args": "[]", "kwargs": json.dumps(settings)}
    save_file(weights, path, metadata)
    return path


def ratio_db(clean: np.ndarray, samples: np.ndarray) -> float:
    return float(10 * np.log10((clean**2).mean() / ((samples - clean) ** 2).mean()))


@pytest.mark.parametrize("scale", [0.5, 2.0])
def test_noise_is_removed_and_the_speech_stays_in_its_place(scale):
    clean, rate_hz = spoken("እንደምን አደሩ፣ ዛሬ ፀሐይ በጣም ሞቃታማ ናት።", "am+f2")
    clean = scale * clean / np.abs(clean).max()
    noise = np.random.default_rng(0).standard_normal(len(clean)) * clean.std() * 10 ** (-10 / 20)
    noisy = (clean + noise).astype(np.float32)
    cleaned = without_noise(noisy, rate_hz)
    assert (cleaned.shape, cleaned.dtype) == (noisy.shape, np.float32)
    assert ratio_db(clean, cleaned) > ratio_db(clean, noisy) + 3  # would fall if a sample were late


def test_hum_is_removed_without_loss_and_speech_without_hum_stays():
    clean, rate_hz = spoken("እንደምን አደሩ፣ ዛሬ ፀሐይ በጣም ሞቃታማ ናት።", "am+f2")
    times = np.arange(len(clean)) / rate_hz
    hum = sum(np.sin(2 * np.pi * 50 * k * times) / k for k in (1, 2, 3, 5)) * clean.std() * 0.3
    noisy = (clean + hum).astype(np.float32)
    cleaned = without_hum(noisy, rate_hz)
    assert cleaned is not None
    assert ratio_db(clean, cleaned) > ratio_db(clean, noisy) + 6
    assert kept_speech(noisy, cleaned, rate_hz)[0] < 0.02
    assert without_hum(clean.astype(np.float32), rate_hz) is None


def test_lost_speech_is_the_share_that_is_gone():
    clean, rate_hz = spoken("እንደምን አደሩ፣ ዛሬ ፀሐይ በጣም ሞቃታማ ናት።", "am+f2")
    samples = clean.astype(np.float32)
    half = np.where(np.arange(len(samples)) < len(samples) // 2, samples, 0).astype(np.float32)
    assert kept_speech(samples, samples, rate_hz) == (0, pytest.approx(1))
    lost, likeness = kept_speech(samples, half, rate_hz)
    assert 0.3 < lost < 0.7
    assert likeness < 0.8
    assert kept_speech(samples, np.zeros_like(samples), rate_hz) == (1, 0)


def test_silence_stays():
    silence = np.zeros(1000, np.float32)
    np.testing.assert_array_equal(without_noise(silence, 16_000), silence)


def test_a_separation_has_the_length_of_its_input_and_repeats(tmp_path):
    separator = VoiceSeparator(str(write_separator(tmp_path / "tiny.safetensors", "other", "vocals")), CPU)
    samples = np.random.default_rng(0).standard_normal(40_001).astype(np.float32)
    voice = separator.separate(samples, 22_050)
    assert (voice.shape, voice.dtype) == (samples.shape, np.float32)
    np.testing.assert_array_equal(voice, separator.separate(samples, 22_050))


def test_a_model_without_voices_is_refused(tmp_path):
    with pytest.raises(UserError, match="drums"):
        VoiceSeparator(str(write_separator(tmp_path / "tiny.safetensors", "drums", "bass")), CPU)


def test_a_broken_model_is_refused(tmp_path):
    path = tmp_path / "broken.safetensors"
    path.write_bytes(b"of no use")
    with pytest.raises(UserError, match=str(path)):
        VoiceSeparator(str(path), CPU)
