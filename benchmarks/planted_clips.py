"""Clean clips of the benchmark of planted faults: spoken by espeak-ng, recorded in a simulated room.

Axes: S samples.

Each of eight voices speaks pairs of sentences of the demo, no sentence twice. A recording has a margin of
0.05 to 0.3 s, a level of -26 to -17 dBFS, a noise floor 35 to 50 dB below the speech, and for every other
voice the reflections of a small room. A folder of other recordings can replace half of the clean clips.
"""

import csv
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import soundfile
from numpy.typing import NDArray

from benchmarks.frame import REPOSITORY
from indextts.data.manifest import read_utterances
from tests.spoken_languages import speak

SENTENCES_OF_CLIP = 2
ROOM_S = 0.2  # until the reflections are 60 dB weaker
REFLECTIONS_DB = -18.0

Samples = NDArray[np.float32]


@dataclass(frozen=True)
class Voice:
    """Voice of espeak-ng; `words_per_minute` and `pitch` (0 to 99) as espeak-ng defines them."""

    variant: str
    pitch: int
    words_per_minute: int
    is_in_room: bool


VOICES = (
    Voice("m1", 35, 150, False),
    Voice("f2", 45, 155, True),
    Voice("m3", 60, 140, False),
    Voice("f4", 75, 165, True),
    Voice("m7", 25, 145, False),
    Voice("f5", 60, 150, True),
    Voice("klatt2", 45, 155, False),
    Voice("belinda", 55, 160, True),
)
STRANGER = Voice("Andy", 15, 150, False)


@dataclass(frozen=True)
class Clip:
    """Recording with its line of the manifest; `samples` are (S,) mono in [-1, 1]."""

    id: str
    samples: Samples
    rate_hz: int
    text: str
    speaker: str


class Studio:
    """Recordings of new clips; the same seed gives the same clips."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.rng = np.random.default_rng(seed)
        self._spoken = folder / "spoken.wav"
        self._sentences = [u.text for u in read_utterances(REPOSITORY / "demo/manifest.jsonl")]
        self._unused = {voice: self._shuffled() for voice in (*VOICES, STRANGER)}
        self._turn = 0
        self._count = 0

    def clip(self, voice: Voice | None = None) -> Clip:
        """Return a new clip by a voice, or by the voice whose turn it is."""
        if voice is None:
            voice = VOICES[self._turn % len(VOICES)]
            self._turn += 1
        self._count += 1
        text = self.text(voice)
        speak(text, f"am+{voice.variant}", self._spoken, voice.pitch, voice.words_per_minute)
        samples, rate_hz = soundfile.read(self._spoken, dtype="float32")
        recorded = self._recorded(samples, rate_hz, voice.is_in_room)
        return Clip(f"{voice.variant}_{self._count:04d}", recorded, rate_hz, text, voice.variant)

    def text(self, voice: Voice) -> str:
        """Return a text that the voice has not spoken yet."""
        unused = self._unused[voice]
        if len(unused) < SENTENCES_OF_CLIP:
            unused += self._shuffled()
        return " ".join(unused.pop() for _ in range(SENTENCES_OF_CLIP))

    def _shuffled(self) -> list[str]:
        return [self._sentences[place] for place in self.rng.permutation(len(self._sentences))]

    def _recorded(self, spoken: Samples, rate_hz: int, is_in_room: bool) -> Samples:
        before, after = (round(self.rng.uniform(0.05, 0.3) * rate_hz) for _ in range(2))
        samples = np.pad(spoken, (before, after))
        if is_in_room:
            samples = samples + self._reflections(samples, rate_hz)
        samples = at_level(samples, self.rng.uniform(-26, -17))
        noise = self.rng.standard_normal(len(samples))
        return with_peak(mixed(samples, noise, self.rng.uniform(35, 50)))

    def _reflections(self, samples: Samples, rate_hz: int) -> Samples:
        times = np.arange(round(ROOM_S * rate_hz)) / rate_hz
        response = self.rng.standard_normal(len(times)) * 10 ** (-3 * times / ROOM_S)
        size = len(samples) + len(times)
        heard = np.fft.irfft(np.fft.rfft(samples, size) * np.fft.rfft(response, size), size)[: len(samples)]
        return at_level(heard, level_db(samples) + REFLECTIONS_DB)


def read_recordings(folder: Path, count: int) -> Iterator[Clip]:
    """Yield up to `count` clips of a folder with a metadata.csv: file|text|speaker|..."""
    with (folder / "metadata.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file, delimiter="|"))[:count]
    for row in rows:
        path = folder / row["file"]
        samples, rate_hz = soundfile.read(path, dtype="float32")
        yield Clip(path.stem, samples, rate_hz, row["text"], row["speaker"])


def level_db(samples: NDArray[np.floating]) -> float:
    return float(10 * np.log10(np.mean(np.square(samples, dtype=np.float64)) + 1e-20))


def at_level(samples: NDArray[np.floating], dbfs: float) -> Samples:
    """Return the samples with an RMS of `dbfs`."""
    return (samples * 10 ** ((dbfs - level_db(samples)) / 20)).astype(np.float32)


def mixed(samples: Samples, other: NDArray[np.floating], ratio_db: float) -> Samples:
    """Return the sum of two sounds, the second `ratio_db` below the first; the second repeats if shorter."""
    return samples + at_level(np.resize(other, len(samples)), level_db(samples) - ratio_db)


def with_peak(samples: Samples, peak: float = 0.98) -> Samples:
    """Return the samples, turned down if their peak is higher."""
    return samples * np.float32(min(1.0, peak / max(float(np.abs(samples).max()), 1e-9)))


def changed(clip: Clip, samples: NDArray[np.floating]) -> Clip:
    return replace(clip, samples=with_peak(samples.astype(np.float32)))
