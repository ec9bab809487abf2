"""What the notches against hum do to human recordings: for DNSMOS, for a recognizer, and what is accepted.

`python -m benchmarks.cleaning --folder DATA` needs what recognizers.py needs. `notched`: clips in which hum
was found; the other columns are theirs. A clip is better or worse if Whisper base, which hears it before and
after, makes fewer or more errors. `accepted`: what tools/clean_audio.py would use, without --asr.
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
from indextts.data.sound_cleaning import MAX_LOSS, MAX_LOST, MIN_GAIN
from indextts.features import dnsmos
from indextts.features.cleaners import lost_speech, without_hum
from indextts.features.recognizers.loading import load_recognizer
from indextts.text.transcripts import count_errors
from tests.recognizers import write_whisper_base

SOUNDS = (  # planted, dB below the speech
    *(("hum", snr_db) for snr_db in (0, 5, 10, 20)),
    *(("hum of 60 Hz", 0), ("hum and white", 5), ("none", 99), ("white", 10), ("voices", 10), ("music", 10)),
)
Samples = NDArray[np.float32]


class Cleaning(Benchmark):
    """Plant hum and other sounds into recordings, clean them, and compare what a recognizer hears."""

    program: ClassVar[str] = "benchmarks.cleaning"
    folder: Path = Field(description="Folder of the recordings.")
    clips: int = Field(6, ge=4, description="Clips of each language.")


class Try(NamedTuple):
    letters: int
    edits: list[int]  # of the recognizer, before and after
    ratings: list[list[float]]  # SIG, BAK, OVRL, before and after
    lost: float  # share of the speech

    @property
    def is_accepted(self) -> bool:
        sig, _, ovrl = np.subtract(self.ratings[1], self.ratings[0])
        return bool(ovrl >= MIN_GAIN and sig >= -MAX_LOSS and self.lost <= MAX_LOST)


def main(argv: Sequence[str] | None = None) -> int:
    command = parse(Cleaning, argv)
    tries: dict[tuple[str, int], list[Try]] = {sound: [] for sound in SOUNDS}
    with tempfile.TemporaryDirectory() as temporary:
        for language in ("en", "de"):
            options = NormalizerOptions(language=language)
            recognizer = load_recognizer(write_whisper_base(Path(temporary) / language), CPU, language)
            clips = list(islice(recordings(command.folder, language), command.clips))
            for sound, (number, (text, speech)) in product(SOUNDS, enumerate(clips)):
                planted = plant(*sound, speech, [clips[number - past][1] for past in (1, 2, 3)])
                cleaned = without_hum(planted, RATE_HZ)
                if cleaned is not None:
                    sounds = [planted, cleaned]
                    errors = [count_errors(text, x, options).bounded for x in recognizer.transcribe(sounds)]
                    lost, ratings = lost_speech(planted, cleaned, RATE_HZ), [*map(dnsmos.rate, sounds)]
                    tries[sound].append(
                        Try(errors[0].characters, [each.edits for each in errors], ratings, lost)
                    )
    rows = [cells(f"{kind}, {snr_db} dB", found) for (kind, snr_db), found in tries.items()]
    header = ["planted", "notched", "errors", "OVRL", "lost", "of the notched", "accepted"]
    head = [str(__doc__), f"{2 * command.clips} recordings, English and German:", ""]
    publish(command, "What cleaning does to speech", [*head, *table(header, rows)])
    return 0


def cells(kind: str, found: Sequence[Try]) -> list[str]:
    if not found:
        return [kind, "0", *5 * [""]]
    letters, edits = sum(each.letters for each in found), np.sum([each.edits for each in found], axis=0)
    ovrl = np.mean([[rating[2] for rating in each.ratings] for each in found], axis=0)
    shown = [f"{edits[0] / letters:.1%} → {edits[1] / letters:.1%}", f"{ovrl[0]:.1f} → {ovrl[1]:.1f}"]
    lost = f"{np.median([each.lost for each in found]):.0%}"
    chosen = [found, [each for each in found if each.is_accepted]]
    return [kind, f"{len(found)}", *shown, lost, *map(compared, chosen)]


def compared(found: Sequence[Try]) -> str:
    better, worse = (sum(sign * (one.edits[0] - one.edits[1]) > 0 for one in found) for sign in (1, -1))
    return f"{len(found)}: {better} better, {worse} worse"


def plant(kind: str, snr_db: int, speech: Samples, others: Sequence[Samples]) -> Samples:
    """Return speech (S,) with a sound of SOUNDS, `snr_db` below the speech."""
    times = np.arange(len(speech)) / RATE_HZ
    white = np.random.default_rng(0).standard_normal(len(speech))
    if kind == "voices":
        noise = np.sum([np.resize(other, len(speech)) for other in others], axis=0)
    elif kind == "music":  # chords of half a second
        chords = np.array([(220, 277, 330), (196, 247, 294), (262, 330, 392)])[(2 * times).astype(int) % 3].T
        noise = np.sum([np.sin(2 * np.pi * h * chords * times) / h for h in (1, 2, 3)], axis=(0, 1))
    elif kind.startswith("hum"):
        mains_hz = 60 if "60" in kind else 50
        noise = np.sum([np.sin(2 * np.pi * mains_hz * k * times) / k for k in range(1, 9)], axis=0)
        noise += white * noise.std() * ("white" in kind)
    else:
        noise = white
    gain = speech.std() / noise.std() * 10 ** (-snr_db / 20)
    planted: Samples = (0.5 * (speech + gain * noise)).astype(np.float32)
    return planted


if __name__ == "__main__":
    run(main)
