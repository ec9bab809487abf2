"""Long recordings without texts for the benchmark of transcription: sentences of espeak-ng with pauses.

Each recording has one voice. Its sentences have no punctuation, so that espeak-ng makes no pause within
them, and are joined with pauses of 0.25 to 1.2 s; what is said, and when, is known.

Axes: S samples.
"""

import random
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile
import soxr
from numpy.typing import NDArray

from indextts.text.ethiopic import letters_of, text_key
from indextts.text.normalize import normalize
from tests.spoken_languages import spoken

RATE_HZ = 16_000
PAUSE_S = (0.25, 1.2)
MIN_LETTERS, MAX_LETTERS = 8, 45  # of a sentence
VOICES = (
    ("m1", 40, 150),
    ("f2", 50, 160),
    ("m3", 60, 165),
    ("f4", 45, 170),
    ("m2", 50, 155),
    ("f1", 55, 160),
)
NOISE_DB = (20.0, 35.0)  # below the speech


@dataclass(frozen=True)
class Said:
    """A sentence of a recording, with its place in seconds."""

    start_s: float
    end_s: float
    text: str


@dataclass(frozen=True)
class RawRecording:
    """A recording and what is said in it."""

    path: Path
    said: Sequence[Said]


def usable_sentences(texts: Path, seed: int, letters: Container[str]) -> list[str]:
    """Return the sentences of a file in random order, normalised, without punctuation, each once.

    Args:
        letters: those that the recognizers can write, homophones merged; others are in no sentence.
    """
    found: dict[str, None] = {}
    for line in texts.read_text("utf-8").splitlines():
        for sentence in line.replace("?", "።").replace("!", "።").split("።"):
            if not any(char.isascii() and char.isalnum() for char in sentence):
                words = " ".join(filter(None, map(letters_of, normalize(sentence).split())))
                spoken_letters = text_key(words)
                is_writable = all(letter in letters for letter in spoken_letters)
                if is_writable and MIN_LETTERS <= len(spoken_letters) <= MAX_LETTERS:
                    found[words] = None
    sentences = sorted(found)
    random.Random(seed).shuffle(sentences)
    return sentences


def make_recordings(folder: Path, sentences: Sequence[str], minutes: float, seed: int) -> list[RawRecording]:
    """Write a recording for each voice, together of about `minutes`; no sentence is said twice."""
    folder.mkdir(parents=True, exist_ok=True)
    chance, left = random.Random(seed), iter(sentences)
    return [
        _make_recording(
            folder / f"{variant}.flac", (variant, pitch, rate), left, 60 * minutes / len(VOICES), chance
        )
        for variant, pitch, rate in VOICES
    ]


def _make_recording(
    path: Path, voice: tuple[str, int, int], sentences: Iterator[str], length_s: float, chance: random.Random
) -> RawRecording:
    variant, pitch, words_per_minute = voice
    parts: list[NDArray[np.float32]] = []
    said: list[Said] = []
    time_s = 0.0
    while time_s < length_s:
        text = next(sentences)
        samples, rate_hz = spoken(text, f"am+{variant}", pitch, words_per_minute)
        samples = soxr.resample(samples, rate_hz, RATE_HZ)
        pause = np.zeros(int(chance.uniform(*PAUSE_S) * RATE_HZ), np.float32)
        start_s = time_s + len(pause) / RATE_HZ
        time_s = start_s + len(samples) / RATE_HZ
        parts += [pause, samples]
        said.append(Said(start_s, time_s, text))
    joined = np.concatenate(parts)  # (S,)
    noise = np.random.default_rng(chance.getrandbits(32)).standard_normal(len(joined), np.float32)
    level = joined.std() * 10 ** (-chance.uniform(*NOISE_DB) / 20)
    loud = joined + level * noise
    soundfile.write(path, 0.5 * loud / np.abs(loud).max(), RATE_HZ, subtype="PCM_16")
    return RawRecording(path, said)
