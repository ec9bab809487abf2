"""A long recording that espeak-ng reads, planted faults of its text, and what an import made of both.

A border of a clip is compared with the first or last sample of its sentences that is louder than 2 % of the
peak. A sentence out of order counts as found if it is not kept where the text has it; a missing line, if its
speech is in a doubtful clip.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from indextts.data.manifest import Utterance, read_utterances
from indextts.system.json_lines import read_json_lines
from tests.conftest import REPOSITORY
from tests.spoken_languages import spoken

RATE_HZ = 22_050  # of espeak-ng
LOUD = 0.02  # of the peak
SENTENCES_PER_MINUTE = 20  # at least


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


def record(minutes: float, voice: str = "f2", seed: int = 7) -> tuple[list[Spoken], NDArray[np.float32]]:
    """Return the sentences of a recording that espeak-ng reads, with their times, and its samples (S,)."""
    rng = np.random.default_rng(seed)
    texts = texts_to_read(minutes, rng)
    parts: list[NDArray[np.float32]] = [np.zeros(RATE_HZ // 2, np.float32)]
    length, found = RATE_HZ // 2, []
    for text in texts:
        if length > minutes * 60 * RATE_HZ:
            break
        samples, rate_hz = spoken(text, f"am+{voice}", 50, 130)
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
