"""Character errors of transcripts, independent of spelling.

The character error rate suits Amharic, where homophones and word boundaries are written freely and a word
error rate would measure spelling: both texts are normalised (numbers become words), homophones are merged,
and punctuation and spaces are removed (`text_key`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from indextts.commands.normalizer_options import DEFAULT_OPTIONS, NormalizerOptions
from indextts.text.ethiopic import text_key
from indextts.text.normalize import normalize

RESAMPLES = 1000
MIN_LEAKED_LETTERS = 3  # a shorter word is heard by chance
MIN_REPEATS = 4  # of a loop, including the first occurrence


@dataclass(frozen=True)
class Errors:
    """The edits between a transcript and its reference text of `characters`."""

    edits: int
    characters: int

    @property
    def bounded(self) -> "Errors":
        """The same with at most all characters: one loop must not outweigh a hundred transcripts."""
        return Errors(min(self.edits, self.characters), self.characters)


def count_errors(meant: str, heard: str, options: NormalizerOptions = DEFAULT_OPTIONS) -> Errors:
    """Return the errors of the transcript `heard` for the text `meant`, independent of spelling."""
    reference, hypothesis = scored(meant, options), scored(heard, options)
    return Errors(edit_distance(reference, hypothesis), len(reference))


def scored(text: str, options: NormalizerOptions = DEFAULT_OPTIONS) -> str:
    """Return the characters of `text` for the comparison."""
    return text_key(normalize(text, options))


def edit_distance(a: str, b: str) -> int:
    """Return the Levenshtein distance of `a` and `b`."""
    return _distances(a, b)[-1][-1]


def _distances(a: str, b: str) -> list[list[int]]:
    """Return the distance of each beginning of `a` and `b`, by the algorithm of Wagner and Fischer (1974)."""
    rows = [list(range(len(b) + 1))]
    for i, char in enumerate(a, 1):
        row, above = [i], rows[-1]
        for j, other in enumerate(b, 1):
            row.append(min(above[j] + 1, row[j - 1] + 1, above[j - 1] + (char != other)))
        rows.append(row)
    return rows


@dataclass(frozen=True)
class Edges:
    """Letters of a text not heard at its start and its end; negative: letters heard beyond the text."""

    start: int
    end: int


def edges(reference: str, hypothesis: str) -> Edges | None:
    """Return the difference at the edges of two texts; None if they share no two letters in a row.

    An edge ends at the first two letters in a row that both have, so that a wrong letter is not an edge.
    """
    pairs = matches(reference, hypothesis)
    anchors = [pair for pair, after in pairwise(pairs) if after == (pair[0] + 1, pair[1] + 1)]
    if not anchors:
        return None
    (first, first_heard), (last, last_heard) = anchors[0], anchors[-1]
    end = (len(reference) - last) - (len(hypothesis) - last_heard)
    return Edges(first - first_heard, end)


@dataclass(frozen=True)
class WordFaults:
    """Words lost at the edges of a text, and `leaked` words of the prompt's text that are heard before it."""

    first_lost: bool
    last_lost: bool
    leaked: int


def word_faults(
    meant: str, heard: str, prompt: str = "", options: NormalizerOptions = DEFAULT_OPTIONS
) -> WordFaults:
    """Return the faults of the transcript `heard`, where `prompt` is the text of the voice's recording."""
    words, of_prompt = (
        [key for word in normalize(text, options).split() if (key := text_key(word))]
        for text in (meant, prompt)
    )
    transcript = scored(heard, options)
    found = edges("".join(words), transcript)
    if found is None:
        return WordFaults(True, True, _num_within(of_prompt, words, transcript))
    before = transcript[: max(-found.start, 0)]
    leaked = _num_within(of_prompt, words, before)
    return WordFaults(found.start >= len(words[0]), found.end >= len(words[-1]), leaked)


def _num_within(words: Sequence[str], excluded: Sequence[str], text: str) -> int:
    return sum(len(word) >= MIN_LEAKED_LETTERS and word in text for word in {*words}.difference(excluded))


def matches(a: str, b: str) -> list[tuple[int, int]]:
    """Return the places of the letters that an alignment with the fewest edits leaves as they are."""
    rows = _distances(a, b)
    i, j = len(a), len(b)
    pairs = []
    while i and j:
        if a[i - 1] == b[j - 1] and rows[i][j] == rows[i - 1][j - 1]:
            i, j = i - 1, j - 1
            pairs.append((i, j))
        elif rows[i][j] == rows[i - 1][j - 1] + 1:
            i, j = i - 1, j - 1
        elif rows[i][j] == rows[i - 1][j] + 1:
            i -= 1
        else:
            j -= 1
    return pairs[::-1]


def total(errors: Sequence[Errors]) -> Errors:
    """Return the sums of edits and of characters."""
    return Errors(sum(each.edits for each in errors), sum(each.characters for each in errors))


def error_rate(errors: Sequence[Errors]) -> float:
    """Return the sum of edits over the sum of characters; 0 without characters and edits."""
    return total(errors).edits / max(total(errors).characters, 1)


def interval(errors: Sequence[Errors]) -> tuple[float, float]:
    """Return the 95 % confidence interval of the rate, by bootstrap over clips."""
    edits = np.array([e.edits for e in errors])
    characters = np.array([e.characters for e in errors])
    drawn = np.random.default_rng(0).integers(len(errors), size=(RESAMPLES, len(errors)))
    rates = edits[drawn].sum(axis=1) / np.maximum(characters[drawn].sum(axis=1), 1)
    low, high = np.quantile(rates, [0.025, 0.975])
    return float(low), float(high)


def has_loop(symbols: NDArray[np.int64], min_length: int) -> bool:
    """Return whether `symbols` (N,) repeat a pattern at least four times, over at least `min_length`."""
    for period in range(1, min(min_length, len(symbols) // MIN_REPEATS) + 1):
        repeated = longest_run(symbols[period:] == symbols[:-period])
        if repeated + period >= max(min_length, MIN_REPEATS * period):
            return True
    return False


def longest_run(is_true: NDArray[np.bool_]) -> int:
    """Return the length of the longest run of True in `is_true` (N,)."""
    ends = np.flatnonzero(~np.concatenate([[False], is_true, [False]]))
    return int(np.diff(ends).max() - 1)
