"""Tests of the removal of hum."""

import numpy as np

from indextts.features.cleaners import lost_speech, without_hum
from tests.spoken_languages import spoken


def ratio_db(clean: np.ndarray, samples: np.ndarray) -> float:
    return float(10 * np.log10((clean**2).mean() / ((samples - clean) ** 2).mean()))


def test_hum_is_removed_without_loss_and_speech_without_hum_stays():
    clean, rate_hz = spoken("እንደምን አደሩ፣ ዛሬ ፀሐይ በጣም ሞቃታማ ናት።", "am+f2")
    times = np.arange(len(clean)) / rate_hz
    hum = sum(np.sin(2 * np.pi * 50 * k * times) / k for k in (1, 2, 3, 5)) * clean.std() * 0.3
    noisy = (clean + hum).astype(np.float32)
    cleaned = without_hum(noisy, rate_hz)
    assert cleaned is not None
    assert ratio_db(clean, cleaned) > ratio_db(clean, noisy) + 6
    assert lost_speech(noisy, cleaned, rate_hz) < 0.02
    assert without_hum(clean.astype(np.float32), rate_hz) is None


def test_lost_speech_is_the_share_that_is_gone():
    clean, rate_hz = spoken("እንደምን አደሩ፣ ዛሬ ፀሐይ በጣም ሞቃታማ ናት።", "am+f2")
    samples = clean.astype(np.float32)
    half = np.where(np.arange(len(samples)) < len(samples) // 2, samples, 0).astype(np.float32)
    assert lost_speech(samples, samples, rate_hz) == 0
    assert 0.3 < lost_speech(samples, half, rate_hz) < 0.7
    assert lost_speech(samples, np.zeros_like(samples), rate_hz) == 1
