"""What the notches against hum do to human recordings: for DNSMOS, for a recognizer, and what is accepted.

`python -m benchmarks.cleaning --folder DATA` needs what recognizers.py needs. `notched`: clips in which hum
was found; the other columns are theirs. A clip is better or worse if Whisper base, which hears it before and
after, makes fewer or more errors. `accepted`: what tools/clean_audio.py would use, without --asr.
"""

import tempfile
from collections.abc import Sequence
from itertools import islice, product
from pathlib import Path
from typing import ClassVar

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


def main(argv: Sequence[str] | None = None) -> int:
    command = parse(Cleaning, argv)
    tries: dict[tuple[str, int], list[list[float]]] = {sound: [] for sound in SOUNDS}
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
                    edits, lost = [each.edits for each in errors], lost_speech(planted, cleaned, RATE_HZ)
                    before, after = map(dnsmos.rate, sounds)  # SIG, BAK, OVRL
                    is_better = after[2] - before[2] >= MIN_GAIN and after[0] - before[0] >= -MAX_LOSS
                    is_accepted = is_better and lost <= MAX_LOST
                    found = [errors[0].characters, *edits, before[2], after[2], lost, is_accepted]
                    tries[sound].append(found)
    rows = [cells(f"{kind}, {snr_db} dB", found) for (kind, snr_db), found in tries.items()]
    header = ["planted", "notched", "errors", "OVRL", "lost", "of the notched", "accepted"]
    head = [str(__doc__), f"{2 * command.clips} recordings, English and German:", ""]
    publish(command, "What cleaning does to speech", [*head, *table(header, rows)])
    return 0


def cells(kind: str, found: Sequence[Sequence[float]]) -> list[str]:
    if not found:
        return [kind, "0", *5 * [""]]
    letters, before, after, *ovrl, lost, is_accepted = np.array(found).T
    shown = [f"{each.sum() / letters.sum():.1%}" for each in (before, after)]
    rated = [f"{each.mean():.1f}" for each in ovrl]
    changes = before - after, (before - after)[is_accepted == 1]
    compared = [f"{len(x)}: {(x > 0).sum()} better, {(x < 0).sum()} worse" for x in changes]
    return [kind, f"{len(found)}", " → ".join(shown), " → ".join(rated), f"{np.median(lost):.0%}", *compared]


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
