"""Voices in the check: wrong labels and changing voices deviate; vectors are stored and reused."""

from pathlib import Path

import numpy as np
import soundfile

from indextts.data.manifest import Utterance
from indextts.data.quality.clips import measure_clips
from indextts.data.quality.voices import hear_voices
from indextts.data.speaker_vectors import VoiceEncoder

RATE_HZ = 16_000
VOICES = {"deep": 0.9, "high": -0.9}  # how much a sample resembles the one before
NUM_CLIPS = 11  # of each voice


def spoken(voice: str, seed: int) -> np.ndarray:
    """Return 2 s of noise with the spectrum of a voice."""
    noise = np.random.default_rng(seed).normal(0, 0.05, 2 * RATE_HZ)
    return np.convolve(noise, VOICES[voice] ** np.arange(40))[: len(noise)]


def spectrum(samples: np.ndarray) -> np.ndarray:
    power = np.square(np.abs(np.fft.rfft(samples)))[: len(samples) // 32 * 16].reshape(16, -1).sum(axis=1)
    return power / np.linalg.norm(power)


def test_wrong_labels_and_changing_voices_deviate_and_vectors_are_stored(tmp_path):
    clips = {f"{voice} {n}": spoken(voice, n) for voice in VOICES for n in range(NUM_CLIPS)}
    clips["deep changes"] = np.concatenate([spoken("deep", 12)[:RATE_HZ], spoken("high", 13)])
    clips["deep wrong"] = spoken("high", 14)
    utterances = []
    for name, samples in clips.items():
        path = tmp_path / f"{name}.wav"
        soundfile.write(path, samples, RATE_HZ)
        utterances.append(Utterance(name, path, "ሰላም", name.split()[0], len(samples) / RATE_HZ))
    measured = measure_clips(utterances, None, 1)
    weights = tmp_path / "weights.bin"
    weights.write_bytes(b"of the encoder")
    heard = []

    def load(_: Path) -> VoiceEncoder:
        return lambda samples: heard.append(len(samples)) or spectrum(samples)

    hear_voices(measured, weights, tmp_path / "check", load)
    of = {clip.utterance.id: dict(clip.measures) for clip in measured}
    usual = [measures for id, measures in of.items() if id not in ("deep changes", "deep wrong")]
    assert of["deep wrong"]["voice_deviation"] > 5 > max(each["voice_deviation"] for each in usual)
    assert of["deep changes"]["halves_deviation"] > max(4, *(each["halves_deviation"] for each in usual))

    num_heard = len(heard)
    assert num_heard >= len(clips)
    hear_voices(measured, weights, tmp_path / "check", load)
    assert {clip.utterance.id: clip.measures for clip in measured} == of
    assert len(heard) == num_heard
