"""Tests of the measures of a recording: planted noise is read as loud as it is, with pauses and without."""

from pathlib import Path

import numpy as np
import pytest
import soundfile

from indextts.data.manifest import read_utterances
from indextts.data.quality.defects import num_clicks
from indextts.data.quality.measures import measure_audio
from indextts.features import vad
from indextts.features.audio import load_audio
from tests.conftest import REPOSITORY

RATE_HZ = 16_000
LEVEL = 0.05  # RMS of speech and noise


def noise_of(kind: str, size: int) -> np.ndarray:
    """Return noise of the level LEVEL."""
    noise = np.random.default_rng(0).standard_normal(size)
    if kind == "pink":
        spectrum = np.fft.rfft(noise)
        noise = np.fft.irfft(spectrum / np.sqrt(np.maximum(np.arange(len(spectrum)), 20)), size)
    elif kind == "hum":
        phases = 2 * np.pi * 50 * np.arange(size) / RATE_HZ
        noise = np.sum([np.sin(k * phases + k * k) / k for k in range(1, 9)], axis=0)
    return noise * (LEVEL / np.sqrt(np.mean(np.square(noise))))


@pytest.fixture(scope="module")
def speech() -> np.ndarray:
    """The speech of three clips of the demo without its pauses, each with the level LEVEL."""
    parts = []
    for utterance in read_utterances(REPOSITORY / "demo/manifest.jsonl")[70:100:10]:
        samples = load_audio(utterance.audio, RATE_HZ)
        spans = vad.find_speech(samples)
        found = np.concatenate([samples[int(s.start_s * RATE_HZ) : int(s.end_s * RATE_HZ)] for s in spans])
        parts.append(found * (LEVEL / found.std()))
    return np.concatenate(parts)


@pytest.mark.parametrize("snr_db", [8, 15, 22])
@pytest.mark.parametrize("pause_s", [0.0, 2.0])
@pytest.mark.parametrize("kind", ["white", "pink", "hum"])
def test_planted_noise_is_read_within_2_db(
    speech: np.ndarray, tmp_path: Path, kind: str, pause_s: float, snr_db: int
):
    clean = np.pad(speech, int(pause_s / 2 * RATE_HZ))
    noise = noise_of(kind, len(clean))
    soundfile.write(tmp_path / "noisy.wav", clean + noise * 10 ** (-snr_db / 20), RATE_HZ, "FLOAT")
    assert measure_audio(tmp_path / "noisy.wav")[0]["snr_db"] == pytest.approx(snr_db, abs=2)


def test_a_burst_of_a_consonant_is_no_click(speech: np.ndarray):
    """An impulse is a click; the same energy in 2 ms after a closure is a burst."""
    rng, at = np.random.default_rng(0), RATE_HZ
    closed = speech.copy()
    closed[at - 800 : at + 800] *= 0.001
    impulse, burst = closed.copy(), closed.copy()
    impulse[at] += 0.5
    burst[at : at + 32] += 0.5 * rng.standard_normal(32) * np.linspace(1, 0.2, 32)
    assert [num_clicks(each, RATE_HZ, LEVEL) for each in (closed, impulse, burst)] == [0, 1, 0]
