"""What cleaning does to speech with planted noise: for DNSMOS, for a recognizer, and what is accepted.

`python -m benchmarks.cleaning --folder DATA` needs the extra clean, and what recognizers.py needs.
"""

import tempfile
from collections.abc import Sequence
from itertools import islice, product
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from benchmarks.frame import Benchmark, publish, table
from benchmarks.recognizers import CPU, RATE_HZ, recordings
from indextts.commands.normalizer_options import NormalizerOptions
from indextts.commands.terminal import parse, run
from indextts.data.sound_cleaning import MAX_LOSS, MAX_LOST, MIN_GAIN, MIN_LIKENESS
from indextts.features import dnsmos
from indextts.features.cleaners import kept_speech, without_hum, without_noise
from indextts.features.recognizers.loading import load_recognizer
from indextts.text.transcripts import count_errors
from tests.recognizers import write_whisper_base

LIMITS = ((1, -1), (MAX_LOST, -1), (1, 0.9), (1, MIN_LIKENESS), (MAX_LOST, MIN_LIKENESS))  # lost, likeness
SNR_DB = {"weak white": 20, "white": 10, "voices": 10, "hum": 5, "music": 10, "reverberation": 0}
Samples = NDArray[np.float32]


class Cleaning(Benchmark):
    """Plant noise into human recordings, clean them, and compare what a recognizer hears."""

    program: ClassVar[str] = "benchmarks.cleaning"
    folder: Path = Field(description="Folder of the recordings.")
    clips: int = Field(6, ge=4, description="Clips of each language.")


class Try(NamedTuple):
    letters: int
    edits: list[int]  # of the recognizer, before and after
    ratings: list[list[float]]  # SIG, BAK, OVRL, before and after
    kept: tuple[float, float]  # lost speech, likeness; 1 where only notches were set, as it is not asked for

    def is_accepted(self, lost: float, like: float) -> bool:
        sig, _, ovrl = np.subtract(self.ratings[1], self.ratings[0])
        return bool(ovrl >= MIN_GAIN and sig >= -MAX_LOSS and self.kept[0] <= lost and self.kept[1] >= like)


def main(argv: Sequence[str] | None = None) -> int:
    command = parse(Cleaning, argv)
    tries: dict[str, list[Try]] = {kind: [] for kind in SNR_DB}
    with tempfile.TemporaryDirectory() as temporary:
        for language in ("en", "de"):
            options = NormalizerOptions(language=language)
            recognizer = load_recognizer(write_whisper_base(Path(temporary) / language), CPU, language)
            clips = list(islice(recordings(command.folder, language), command.clips))
            for kind, (number, (text, speech)) in product(SNR_DB, enumerate(clips)):
                planted = plant(kind, speech, [clips[number - past][1] for past in (1, 2, 3)])
                hum_free = without_hum(planted, RATE_HZ)
                sounds = [planted, without_noise(planted, RATE_HZ) if hum_free is None else hum_free]
                errors = [count_errors(text, x, options).bounded for x in recognizer.transcribe(sounds)]
                lost, like = kept_speech(sounds[0], sounds[1], RATE_HZ)
                kept, ratings = (lost, like if hum_free is None else 1), [*map(dnsmos.rate, sounds)]
                tries[kind].append(Try(errors[0].characters, [each.edits for each in errors], ratings, kept))
    found = [each for of_kind in tries.values() for each in of_kind]
    chosen = [[f"{pair}", compared([x for x in found if x.is_accepted(*pair)])] for pair in LIMITS]
    rows = [cells(f"{kind}, {SNR_DB[kind]} dB", of_kind) for kind, of_kind in tries.items()]
    header = ["planted", "errors", "OVRL", "lost, likeness", "cleaned", "accepted by DNSMOS", "accepted now"]
    publish(command, "Cleaning", [*table(header, rows), "", *table(["lost, likeness", "accepted"], chosen)])
    return 0


def cells(kind: str, found: Sequence[Try]) -> list[str]:
    letters, edits = sum(each.letters for each in found), np.sum([each.edits for each in found], axis=0)
    ovrl = np.mean([[rating[2] for rating in each.ratings] for each in found], axis=0)
    chosen = [
        found,
        *([each for each in found if each.is_accepted(*limits)] for limits in (LIMITS[0], LIMITS[-1])),
    ]
    shown = [f"{edits[0] / letters:.1%} → {edits[1] / letters:.1%}", f"{ovrl[0]:.1f} → {ovrl[1]:.1f}"]
    kept = "{:.0%}, {:.2f}".format(*np.median([each.kept for each in found], axis=0))
    return [kind, *shown, kept, *map(compared, chosen)]


def compared(found: Sequence[Try]) -> str:
    better, worse = (sum(sign * (one.edits[0] - one.edits[1]) > 0 for one in found) for sign in (1, -1))
    return f"{len(found)}: {better} better, {worse} worse"


def plant(kind: str, speech: Samples, others: Sequence[Samples]) -> Samples:
    """Return speech (S,) with a noise of SNR_DB, at its signal-to-noise ratio."""
    times = np.arange(len(speech)) / RATE_HZ
    noise = np.random.default_rng(0).standard_normal(len(speech))
    if kind == "reverberation":
        noise = np.convolve(speech, noise[:RATE_HZ] * 10 ** (-3 * times[:RATE_HZ] / 0.6))[: len(speech)]
    elif kind == "voices":
        noise = np.sum([np.resize(other, len(speech)) for other in others], axis=0)
    elif kind == "hum":
        noise = np.sum([np.sin(2 * np.pi * 50 * k * times) / k for k in range(1, 9)], axis=0)
    elif kind == "music":  # chords of half a second
        chords = np.array([(220, 277, 330), (196, 247, 294), (262, 330, 392)])[(2 * times).astype(int) % 3].T
        noise = np.sum([np.sin(2 * np.pi * h * chords * times) / h for h in (1, 2, 3)], axis=(0, 1))
    noise *= speech.std() / noise.std() * 10 ** (-SNR_DB[kind] / 20)
    return (0.5 * (speech + noise)).astype(np.float32)


if __name__ == "__main__":
    run(main)
