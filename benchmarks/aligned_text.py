"""Alignment of a long recording with its text: borders of clips, and planted faults that reach the review.

    python -m benchmarks.aligned_text [--asr FOLDER] [--minutes 20]

1. espeak-ng reads the sentences of the demo in one voice with pauses, in a recording with some noise.
2. The text has a line for each sentence, except for planted faults: lines out of order in 3 places, and 2
   lines that are missing.
3. tools/import_dataset.py aligns both with the recognizer, which tests/espeak_recognizer.py trains if none
   is given. It never saw a sentence of the recording, only single words.

A border of a clip is compared with the first or last sample of its sentences that is louder than 2 % of the
peak. A sentence out of order counts as found if it is not kept where the text has it; a missing line, if its
speech is in a doubtful clip.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import soundfile
from numpy.typing import NDArray
from pydantic import Field

from benchmarks.frame import REPOSITORY, Benchmark, publish, table
from indextts.commands.terminal import parse, run
from indextts.data.manifest import Utterance, read_utterances
from indextts.errors import UserError
from indextts.system.json_lines import read_json_lines
from tests.espeak_recognizer import cached_recognizer
from tests.spoken_languages import spoken

RATE_HZ = 22_050  # of espeak-ng
MAX_ERROR_S = 0.2
LOUD = 0.02  # of the peak
SENTENCES_PER_MINUTE = 20  # at least


class AlignedText(Benchmark):
    """Measure the borders of aligned clips, and the planted faults that reach the review."""

    program: ClassVar[str] = "benchmarks.aligned_text"
    asr: Path | None = Field(None, description="Folder of a CTC recognizer; None trains one.")
    minutes: float = Field(20.0, gt=0, description="Length of the recording.")
    voice: str = Field("f2", description="Variant of espeak-ng.")
    seed: int = Field(7, description="Seed of all random choices.")
    folder: Path | None = Field(None, description="Folder for the data, which is kept.")


@dataclass(frozen=True)
class Spoken:
    """A sentence of the recording, in seconds."""

    text: str
    start_s: float
    end_s: float


@dataclass(frozen=True)
class Planted:
    """The lines of the text, and the numbers of the sentences with faults.

    Args:
        lines: the text.
        moved: for each place, the sentences whose order was changed.
        missing: the sentences that the text lacks.
    """

    lines: list[str]
    moved: list[list[int]]
    missing: list[int]


@dataclass(frozen=True)
class Result:
    """Result of the import, compared with the recording.

    Args:
        errors_s: of the borders of kept clips.
        num_wrong: kept clips whose text is not what is spoken in them.
        places_found: places with changed order of which a sentence is in the review.
        missing_found: missing lines whose speech is in the review.
    """

    num_kept: int
    num_kept_sentences: int
    num_doubtful: int
    errors_s: list[float]
    num_wrong: int
    places_found: int
    missing_found: int
    not_heard: int


def main(argv: Sequence[str] | None = None) -> int:
    command = parse(AlignedText, argv)
    with tempfile.TemporaryDirectory() as name:
        folder = command.folder or Path(name)
        asr = command.asr or cached_recognizer(folder / "recognizers")
        source = folder / "source"
        source.mkdir(parents=True, exist_ok=True)
        sentences, samples = record(command)
        soundfile.write(source / "book.wav", samples, RATE_HZ)
        planted = plant_faults(sentences)
        (source / "book.txt").write_text("\n".join(planted.lines), encoding="utf-8")
        started = time.monotonic()
        align(source, folder / "dataset", asr)
        elapsed_s = time.monotonic() - started
        found = judge(sentences, planted, folder / "dataset")
    publish(command, "Aligned text", report(command, sentences, planted, found, elapsed_s))
    return 0


def record(command: AlignedText) -> tuple[list[Spoken], NDArray[np.float32]]:
    """Return the sentences of a recording with their times, and its samples (S,)."""
    rng = np.random.default_rng(command.seed)
    texts = texts_to_read(command.minutes, rng)
    parts: list[NDArray[np.float32]] = [np.zeros(RATE_HZ // 2, np.float32)]
    length, found = RATE_HZ // 2, []
    for text in texts:
        if length > command.minutes * 60 * RATE_HZ:
            break
        samples, rate_hz = spoken(text, f"am+{command.voice}", 50, 130)
        assert rate_hz == RATE_HZ
        loud = np.flatnonzero(np.abs(samples) > LOUD * np.abs(samples).max())
        samples = samples[loud[0] : loud[-1] + 1]
        found.append(Spoken(text, length / RATE_HZ, (length + len(samples)) / RATE_HZ))
        pause = np.zeros(round(rng.uniform(0.3, 1.0) * RATE_HZ), np.float32)
        parts += [samples, pause]
        length += len(samples) + len(pause)
    joined = np.concatenate(parts)
    noise = rng.standard_normal(len(joined)) * joined.std() * 10 ** (-40 / 20)
    return found, (0.5 * (joined + noise) / np.abs(joined).max()).astype(np.float32)


def texts_to_read(minutes: float, rng: np.random.Generator) -> list[str]:
    """Return the sentences of the demo in random order, then sentences of random words of them."""
    lines = (REPOSITORY / "demo/sentences.txt").read_text("utf-8").split("\n")
    texts = [line for line in lines if line.strip()]
    words = sorted({word.strip("።፣!?፤") for text in texts for word in text.split()})
    texts = [texts[number] for number in rng.permutation(len(texts)).tolist()]
    while len(texts) < SENTENCES_PER_MINUTE * minutes:
        chosen = rng.choice(len(words), rng.integers(4, 10), replace=False).tolist()
        texts.append(" ".join(words[number] for number in chosen) + "።")
    return texts


def plant_faults(sentences: Sequence[Spoken], places: int = 3, missing: int = 2) -> Planted:
    """Return the text with its order changed in some places, and with lines missing.

    The places, in turn: two neighbours swapped, a line five lines too late, three lines rotated.
    """
    orders = ((1, 0), (1, 2, 3, 4, 5, 0), (2, 0, 1))
    order = list(range(len(sentences)))
    moved, gone = [], []
    for number in range(places + missing):
        start = len(sentences) * (number + 1) // (places + missing + 1)
        if number >= places:
            gone.append(start)
            continue
        place = orders[number % len(orders)]
        order[start : start + len(place)] = [start + offset for offset in place]
        moved.append(list(range(start, start + len(place))))
    lines = [sentences[number].text for number in order if number not in gone]
    return Planted(lines, moved, gone)


def align(source: Path, output_dir: Path, asr: Path) -> None:
    program = [sys.executable, "tools/import_dataset.py", f"--source={source}", f"--output-dir={output_dir}"]
    ended = subprocess.run([*program, f"--asr={asr}", "--speaker=reader"], cwd=REPOSITORY)
    if ended.returncode:
        raise UserError(f"the import ended with status {ended.returncode}")


def judge(sentences: Sequence[Spoken], planted: Planted, dataset: Path) -> Result:
    """Return what became of the sentences and of the planted faults."""
    utterances = read_utterances(dataset / "manifest.jsonl")
    kept = [utterance for utterance in utterances if not utterance.is_doubtful]
    doubtful = [span_of(utterance) for utterance in utterances if utterance.is_doubtful]
    number_of = {each.text: number for number, each in enumerate(sentences)}
    errors_s, num_wrong, in_kept = [], 0, set()
    for utterance in kept:
        start_s, end_s = span_of(utterance)
        inside = [
            number
            for number, each in enumerate(sentences)
            if min(end_s, each.end_s) - max(start_s, each.start_s) > 0.5 * (each.end_s - each.start_s)
        ]
        meant = [number_of[text] for text in texts_of(utterance.text, number_of)]
        if not inside or meant != inside:
            num_wrong += 1
            continue
        in_kept.update(inside)
        errors_s += [abs(start_s - sentences[inside[0]].start_s), abs(end_s - sentences[inside[-1]].end_s)]

    def is_in_review(number: int) -> bool:
        each = sentences[number]
        return any(
            min(end, each.end_s) - max(start, each.start_s) > 0.5 * (each.end_s - each.start_s)
            for start, end in doubtful
        )

    rejected = (
        [record for _, record in read_json_lines(dataset / "rejected.jsonl")]
        if (dataset / "rejected.jsonl").is_file()
        else []
    )
    return Result(
        num_kept=len(kept),
        num_kept_sentences=len(in_kept),
        num_doubtful=len(doubtful),
        errors_s=errors_s,
        num_wrong=num_wrong,
        places_found=sum(any(map(is_in_review, place)) for place in planted.moved),
        missing_found=sum(map(is_in_review, planted.missing)),
        not_heard=sum(record["code"] == "not_heard" for record in rejected),
    )


def span_of(utterance: Utterance) -> tuple[float, float]:
    """Return start and end of a clip in its recording; the id has the start in milliseconds."""
    start_s = int(utterance.id.rpartition("_")[2]) / 1000
    return start_s, start_s + utterance.duration_s


def texts_of(text: str, known: dict[str, int]) -> list[str]:
    """Return the sentences of a clip, in their order in its text."""
    found = [each for each in known if each in text]
    return sorted(found, key=text.index)


def report(
    command: AlignedText, sentences: Sequence[Spoken], planted: Planted, found: Result, elapsed_s: float
) -> list[str]:
    within = [error <= MAX_ERROR_S for error in found.errors_s]
    minutes = sentences[-1].end_s / 60
    share = 100 * sum(within) / max(1, len(within))
    median = 1000 * float(np.median(found.errors_s)) if found.errors_s else 0.0
    rows = [
        ["recording", f"{minutes:.1f} minutes, {len(sentences)} sentences, voice {command.voice}"],
        ["kept clips", f"{found.num_kept} with {found.num_kept_sentences} of {len(sentences)} sentences"],
        [f"borders within {MAX_ERROR_S:g} s", f"{share:.1f} % of {len(within)}, median {median:.0f} ms"],
        ["kept clips with a wrong text", f"{found.num_wrong}"],
        ["doubtful clips", f"{found.num_doubtful}"],
        ["places out of order in the review", f"{found.places_found} of {len(planted.moved)}"],
        ["missing lines in the review", f"{found.missing_found} of {len(planted.missing)}"],
        ["lines of the text that were not heard", f"{found.not_heard}"],
        ["time of the import", f"{elapsed_s:.0f} s, {minutes * 60 / elapsed_s:.1f} h of speech per hour"],
    ]
    return table(["", "result"], rows)


if __name__ == "__main__":
    run(main)
