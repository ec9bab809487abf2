"""Clean speech, and noise of four kinds to plant in it."""

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import soxr
from numpy.typing import NDArray

from indextts.features import vad
from indextts.features.audio import load_audio
from tests.conftest import REPOSITORY
from tests.spoken_languages import spoken

RATE_HZ = 16_000
LEVEL = 0.05  # RMS of the noise
KINDS = ("white", "pink", "hum", "babble")
VOICES = {"kathleen": "en", "kerstin": "de", "nathalie": "nl"}
Samples = NDArray[np.float64]


def noise_of(kind: str, size: int, others: Sequence[Samples], rng: np.random.Generator) -> Samples:
    """Return noise of the level LEVEL; `others` is the speech of other people, for the babble."""
    noise = rng.standard_normal(size)
    if kind == "pink":
        spectrum = np.fft.rfft(noise)
        noise = np.fft.irfft(spectrum / np.sqrt(np.maximum(np.arange(len(spectrum)), 20)), size)
    elif kind == "hum":
        phases = 2 * np.pi * 50 * np.arange(size) / RATE_HZ
        noise = np.sum([np.sin(k * phases + k * k) / k for k in range(1, 9)], axis=0)
    elif kind == "babble":
        noise = np.sum([np.roll(np.resize(o / o.std(), size), rng.integers(size)) for o in others], axis=0)
    result: Samples = noise * (LEVEL / np.sqrt(np.mean(np.square(noise))))
    return result


def clean_clips(voices: Path) -> Iterator[tuple[str, str, list[Samples]]]:
    """Yield language, text and spans of speech: a clip of two voices of espeak-ng, two of each woman."""
    texts = (REPOSITORY / "demo/sentences.txt").read_text("utf-8").split("\n")
    for number, voice in enumerate(("am+m1", "am+f2")):
        text = " ".join(texts[40 + 2 * number : 42 + 2 * number])
        yield "am", text, spans_of(soxr.resample(*spoken(text, voice), RATE_HZ))[1]
    with (voices / "metadata.tsv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file, delimiter="\t") if 3 < float(row["seconds"]) < 6]
    for speaker, language in VOICES.items():
        own = [row for row in rows if row["speaker"] == speaker][:40]
        found = [(*spans_of(load_audio(voices / row["file"], RATE_HZ)), row["text"]) for row in own]
        yield from ((language, text, spans) for _, spans, text in sorted(found, key=lambda f: f[0])[:2])


def spans_of(samples: NDArray[np.float32]) -> tuple[float, list[Samples]]:
    """Return the level of the pauses relative to the speech, and the spans of speech."""
    is_speech = np.zeros(len(samples), bool)
    spans = [slice(*(int(t * RATE_HZ) for t in (s.start_s, s.end_s))) for s in vad.find_speech(samples)]
    for span in spans:
        is_speech[span] = True
    level = samples[~is_speech].std() / samples[is_speech].std() if 0 < is_speech.mean() < 1 else 1.0
    return level, [samples[span].astype(np.float64) for span in spans]
