"""Sentences of a text, and their places in a long recording from the output of a CTC model. No torch here.

Axes: T positions, L columns of the model, N letters of a sentence, H letters heard on the best path.

Each line is cut after the marks that end a sentence. A sentence of fewer letters than MIN_LETTERS, such as
a number before a verse, is joined with the next one of its line, else with the one before. Then:

    1. Runs of GRAM letters that occur once in the text and once in what was heard show where a sentence may
       be.
    2. Each sentence is aligned near these places (features/recognizers/forced_alignment.py).
    3. The heaviest chain of places in the order of the text and of the recording is kept.
    4. Sentences without such runs, mostly short ones, are aligned between their neighbours in the chain.

The speech of a sentence that is out of order is left to the review. The cost grows with the length of the
recording, not with its square: no sentence is aligned to more than MAX_WINDOW_S.
"""

import re
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from indextts.commands.normalizer_options import NormalizerOptions
from indextts.data.importing.items import Rejection
from indextts.data.importing.text_lines import text_lines
from indextts.data.report import robust_deviation
from indextts.features.recognizers.forced_alignment import MAX_COST, Costs, align_letters
from indextts.text.transcript_marks import clean_transcripts
from indextts.text.transcripts import scored

MIN_LETTERS = 8
MAX_SENTENCES = 100_000
_SENTENCE = re.compile(r""".+?(?:[።፨፧?!…]+|፡፡|(?<=[^\W\d_]{2})\.(?=["'”’»)\]]*(?:\s|$)))["'”’»)\]]*|.+$""")

GRAM = 5
CLUSTERS = 2  # places that are tried for a sentence
MARGIN_S = 1.5  # around the place that the runs of letters give
MAX_WINDOW_S = 90.0
MIN_SCORE = -2.0  # nats per letter, of a text with too few sentences to compare
WORST_SCORE = -4.0
SPARE_COST = MAX_COST  # one misheard letter, which counts much in a short sentence
MIN_SENTENCES = 20
DEVIATIONS = 5.0  # robust standard deviations below the median
MIN_DEVIATION = 0.15
OVERLAP_S = 0.1  # of neighbours, whose last and first letters may share a position

Letters = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence of a text file; `letters` as `text.transcripts.scored`."""

    line: int
    text: str
    letters: str


def read_sentences(
    path: Path, options: NormalizerOptions, keep: Sequence[str] = ()
) -> tuple[list[Sentence], list[Rejection]]:
    """Return the sentences of a text file that have letters, and the lines that cannot be used."""
    found: list[Sentence] = []
    rejections = []
    lines = list(text_lines(path))
    cleaned = iter(clean_transcripts([line for _, line in lines if isinstance(line, str)], keep))
    for where, line in lines:
        if isinstance(line, Rejection):
            rejections.append(line)
            continue
        found += _of_line(where.line or 1, next(cleaned).text, options)
        if len(found) > MAX_SENTENCES:
            reason = f"more than {MAX_SENTENCES:,} sentences for one recording; the rest is not used"
            return found[:MAX_SENTENCES], [*rejections, Rejection(where, "not_text", reason)]
    return found, rejections


def split_sentences(line: str) -> list[str]:
    """Return the sentences of a line, with their marks."""
    return [part for match in _SENTENCE.finditer(line) if (part := match.group().strip())]


def _of_line(number: int, line: str, options: NormalizerOptions) -> Iterator[Sentence]:
    texts: list[str] = []
    pending = ""
    for part in split_sentences(line):
        pending = f"{pending} {part}".strip()
        if len(scored(pending, options)) >= MIN_LETTERS:
            texts.append(pending)
            pending = ""
    if pending and texts:
        texts[-1] += f" {pending}"
    elif pending:
        texts.append(pending)
    for text in texts:
        if letters := scored(text, options):
            yield Sentence(number, text, letters)


def word_ends(sentence: Sentence, options: NormalizerOptions) -> list[tuple[str, int]]:
    """Return each word of a sentence, and the number of letters up to its end; -1 within a reading.

    A word may be read together with the next, such as a number with its unit: no place to cut.
    """
    words = sentence.text.split()
    found = []
    for count, word in enumerate(words, start=1):
        before, after = (scored(" ".join(part), options) for part in (words[:count], words[count:]))
        found.append((word, len(before) if before + after == sentence.letters else -1))
    return found


@dataclass(frozen=True)
class Heard:
    """Letters on the best path."""

    columns: Letters  # (H,)
    positions: Letters  # (H,), where each begins


@dataclass(frozen=True)
class Place:
    """A sentence in the recording."""

    sentence: int  # its index
    start: int  # a position
    end: int  # exclusive
    score: float  # in nats per letter, at most 0
    first: Letters  # (N,), positions of each letter
    last: Letters  # (N,)

    def margin(self, min_score: float) -> float:
        """Return the nats by which the sentence fits; negative if it does not."""
        limit = max(WORST_SCORE * len(self.first), min_score * len(self.first) - SPARE_COST)
        return self.score * len(self.first) - limit


def place_sentences(
    sentences: Sequence[Letters], costs: Costs, heard: Heard, positions_per_s: float
) -> list[Place]:
    """Return where the sentences are spoken, in the order of text and recording, without those not found.

    Args:
        sentences: (N,) columns of each; sentences without letters of the model are not found.
        costs: (T, L), in nats; may be a memory map.
    """
    find = partial(_find, sentences, costs)
    found = [
        place
        for sentence, spans in _likely_spans(sentences, heard).items()
        for start, end in spans
        if (place := find(sentence, *_widened(start, end, heard, len(costs), positions_per_s)))
    ]
    min_score = _min_score(found)
    overlap = round(OVERLAP_S * positions_per_s)

    def chain(places: Sequence[Place]) -> list[Place]:
        return _chain([place for place in places if place.margin(min_score) >= 0], min_score, overlap)

    kept = chain(found)
    max_window = round(MAX_WINDOW_S * positions_per_s)
    while True:  # sentences between neighbours that fit between them, until no more is found
        added: list[Place] = []
        for before, after in zip([None, *kept], [*kept, None], strict=True):
            gap = range(before.sentence + 1 if before else 0, after.sentence if after else len(sentences))
            start, end = before.end if before else 0, after.start if after else len(costs)
            if gap and start < end:
                windows = _windows([len(sentences[number]) for number in gap], start, end, max_window)
                tried = (find(number, *window) for number, window in zip(gap, windows, strict=True))
                added += chain(list(filter(None, tried)))
        if not added:
            return kept
        kept = sorted([*kept, *added], key=lambda place: place.sentence)


def _find(sentences: Sequence[Letters], costs: Costs, sentence: int, start: int, end: int) -> Place | None:
    """Return the place of a sentence in a part of the recording."""
    letters = sentences[sentence]
    if not len(letters) or end <= start:
        return None
    found = align_letters(costs[start:end], letters)
    if found is None:
        return None
    first, last = found.first + start, found.last + start
    return Place(sentence, int(first[0]), int(last[-1]) + 1, found.score, first, last)


def _likely_spans(sentences: Sequence[Letters], heard: Heard) -> dict[int, list[tuple[int, int]]]:
    """Return for each sentence the spans of heard letters, first and last, where it may be spoken."""
    grams = [_grams(letters) for letters in sentences]
    sizes = np.array([len(codes) for codes in grams], np.int64)
    in_text, text_places = _unique(np.concatenate([np.zeros(0, np.int64), *grams]))
    in_sound, sound_places = _unique(_grams(heard.columns))
    _, of_text, of_sound = np.intersect1d(in_text, in_sound, assume_unique=True, return_indices=True)
    places = text_places[of_text]
    owner = np.repeat(np.arange(len(grams)), sizes)[places]
    starts = sound_places[of_sound] - (places - (np.cumsum(sizes) - sizes)[owner])
    spans: dict[int, list[tuple[int, int]]] = {}
    for number in np.unique(owner).tolist():
        length = len(sentences[number])
        for start in _clusters(np.sort(starts[owner == number]), max(4, round(0.3 * length))):
            spans.setdefault(number, []).append((start, start + length - 1))
    return spans


def _grams(letters: Letters) -> Letters:
    """Return a number for each run of GRAM letters."""
    if len(letters) < GRAM:
        return np.zeros(0, np.int64)
    runs = np.lib.stride_tricks.sliding_window_view(letters, GRAM).astype(np.int64)
    return runs @ (4096 ** np.arange(GRAM, dtype=np.int64))  # a model has fewer columns


def _unique(values: Letters) -> tuple[Letters, Letters]:
    """Return the values that occur once, sorted, and their places."""
    found, places, counts = np.unique(values, return_index=True, return_counts=True)
    return found[counts == 1], places[counts == 1]


def _clusters(starts: Letters, width: int) -> list[int]:
    """Return the medians of the largest groups of sorted starts within `width` of each other."""
    found: list[int] = []
    while len(starts) and len(found) < CLUSTERS:
        ends = np.searchsorted(starts, starts + width, side="right")
        first = int(np.argmax(ends - np.arange(len(starts))))
        group = starts[first : ends[first]]
        found.append(int(np.median(group)))
        starts = np.concatenate([starts[:first], starts[ends[first] :]])
    return found


def _widened(
    start: int, end: int, heard: Heard, num_positions: int, positions_per_s: float
) -> tuple[int, int]:
    """Return the positions of a span of heard letters, with a margin for letters that were misheard."""
    spare = 3 + round(0.2 * (end - start))
    margin = round(MARGIN_S * positions_per_s)
    last = len(heard.positions) - 1
    low, high = (int(heard.positions[min(max(place, 0), last)]) for place in (start - spare, end + spare))
    return max(0, low - margin), min(num_positions, high + margin)


def _min_score(places: Sequence[Place]) -> float:
    """Return the lowest score of a sentence that is spoken, from the scores of the set."""
    best: dict[int, float] = {}
    for place in places:
        best[place.sentence] = max(place.score, best.get(place.sentence, WORST_SCORE))
    if len(best) < MIN_SENTENCES:
        return MIN_SCORE
    median = statistics.median(best.values())
    deviation = robust_deviation(score - median for score in best.values())
    return max(WORST_SCORE, median - DEVIATIONS * max(deviation, MIN_DEVIATION))


def _chain(places: Sequence[Place], min_score: float, overlap: int) -> list[Place]:
    """Return the places in the order of both text and recording with the largest sum of weights."""
    if not places:
        return []
    ordered = sorted(places, key=lambda place: (place.sentence, place.start))
    sentence = np.array([place.sentence for place in ordered])
    start = np.array([place.start for place in ordered])
    end = np.array([place.end for place in ordered])
    weight = np.array([1e-3 + place.margin(min_score) for place in ordered])
    total, before = weight.copy(), np.full(len(ordered), -1)
    for number in range(1, len(ordered)):
        is_before = (sentence[:number] < sentence[number]) & (end[:number] <= start[number] + overlap)
        is_before &= start[:number] < start[number]
        if is_before.any():
            best = int(np.argmax(np.where(is_before, total[:number], -np.inf)))
            total[number] += total[best]
            before[number] = best
    number, found = int(np.argmax(total)), []
    while number >= 0:
        found.append(ordered[number])
        number = int(before[number])
    return found[::-1]


def _windows(sizes: Sequence[int], start: int, end: int, max_window: int) -> list[tuple[int, int]]:
    """Return where to look for the sentences of a gap with so many letters each: all of it, or a part."""
    ends = np.cumsum(sizes)
    middles = start + (end - start) * (ends - np.array(sizes) / 2) / max(1, ends[-1])
    half = max_window // 2
    return [(max(start, int(middle) - half), min(end, int(middle) + half)) for middle in middles]
