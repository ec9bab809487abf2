"""Character error rate as it means something for Amharic: one letter for each sound, no marks, no spaces.

Spelling is free in Amharic, words are glued and split at will, so that word error rates measure spelling.
Both sides are read out first (numbers become words), and then lose marks and spaces (`text_key`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from indextts.text.normalize import DEFAULT_OPTIONS, normalize
from indextts.text.text_key import text_key

RESAMPLES = 1000


@dataclass(frozen=True)
class Errors:
    """Edits that turn what was heard into what was meant, of `characters` that were meant."""

    edits: int
    characters: int


def count_errors(meant: str, heard: str) -> Errors:
    """Return the errors between two texts, whatever their spelling."""
    reference, hypothesis = scored(meant), scored(heard)
    return Errors(edit_distance(reference, hypothesis), len(reference))


def scored(text: str) -> str:
    """Return the characters of `text` that are compared."""
    return text_key(normalize(text, DEFAULT_OPTIONS))


def edit_distance(a: str, b: str) -> int:
    """Return the fewest insertions, deletions and substitutions of a character between `a` and `b`.

    Row by row of the table of Wagner and Fischer 1974, "The String-to-String Correction Problem".
    """
    row = list(range(len(b) + 1))
    for i, char in enumerate(a, 1):
        before, row[0] = row[0], i
        for j, other in enumerate(b, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (char != other))
    return row[-1]


def error_rate(errors: Sequence[Errors]) -> float:
    """Return all edits over all characters; nothing to say is no error."""
    return sum(e.edits for e in errors) / max(sum(e.characters for e in errors), 1)


def interval(errors: Sequence[Errors], seed: int = 0) -> tuple[float, float]:
    """Return the 95 % interval of the rate, from clips drawn again with replacement (Efron's bootstrap)."""
    edits = np.array([e.edits for e in errors])
    characters = np.array([e.characters for e in errors])
    drawn = np.random.default_rng(seed).integers(len(errors), size=(RESAMPLES, len(errors)))
    rates = edits[drawn].sum(axis=1) / np.maximum(characters[drawn].sum(axis=1), 1)
    low, high = np.quantile(rates, [0.025, 0.975])
    return float(low), float(high)
