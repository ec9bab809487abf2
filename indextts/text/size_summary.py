"""Tokens per word of an extended tokenizer at smaller sizes, so that a user can judge its size.

    X.model.summary.json    {"version": 1, "base_size": 12000, "num_texts": 2000,
                             "sizes": [{"size": 13000, "tokens_per_word": 2.81, "num_rare": 105}, ...]}

Merges are appended in the order they are learned. So the first merges of a tokenizer are those of a smaller
one, and one extension gives the whole curve.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, Field

from indextts.errors import disk_errors
from indextts.system.files import written_aside
from indextts.system.yaml_files import read_if_valid
from indextts.text.tokenizer import Tokenizer

NUM_SIZES = 6
MAX_TEXTS = 2_000  # for the tokens per word; every size encodes them
RARE = 20  # occurrences; with fewer, a training hardly changes the row of a piece


class SizePoint(BaseModel, frozen=True):
    """A size of the tokenizer."""

    size: int
    tokens_per_word: float
    num_rare: int  # appended pieces with fewer than RARE occurrences in all texts, projected


class SizeSummary(BaseModel, frozen=True):
    """The curve of a tokenizer."""

    version: Literal[1] = 1
    base_size: int
    num_texts: int
    sizes: tuple[SizePoint, ...] = Field(min_length=1)


def summarize(extended: Tokenizer, base_size: int, texts: Sequence[str]) -> SizeSummary:
    """Return the curve of a tokenizer over `texts`, from its letters alone to all of its pieces."""
    every = max(1, -(-len(texts) // MAX_TEXTS))
    normalized = [extended.normalize(text) for text in texts[::every]]
    scale = len(texts) / max(1, len(normalized))
    appended = [extended.pieces[token] for token in extended.appended_ids(base_size)]
    num_letters = next((n for n, piece in enumerate(appended) if len(piece) > 1), len(appended))
    first, last = base_size + num_letters, extended.size
    sizes = sorted({round(first + (last - first) * n / (NUM_SIZES - 1)) for n in range(NUM_SIZES)})
    points = tuple(_measured(extended, size, base_size, normalized, scale) for size in sizes)
    return SizeSummary(base_size=base_size, num_texts=len(normalized), sizes=points)


def _measured(
    extended: Tokenizer, size: int, base_size: int, normalized: Sequence[str], scale: float
) -> SizePoint:
    cut = extended.shortened(size)
    counts = Counter(token for text in normalized for token in cut.encode_normalized(text))
    num_words = sum(len(cut.normalized_words(text).split()) for text in normalized)
    num_rare = sum(scale * counts[token] < RARE for token in cut.appended_ids(base_size))
    tokens_per_word = round(counts.total() / max(1, num_words), 3)
    return SizePoint(size=size, tokens_per_word=tokens_per_word, num_rare=num_rare)


def summary_path(model: Path) -> Path:
    """Return the path of the summary beside a tokenizer."""
    return model.with_name(f"{model.name}.summary.json")


def write_summary(model: Path, summary: SizeSummary) -> None:
    """Write the summary beside its tokenizer; a UserError if that fails."""
    path = summary_path(model)
    where = f"--output-model {model}: its summary {path.name}"
    with disk_errors(where), written_aside(path, is_unique=True) as aside:
        aside.write_text(summary.model_dump_json(), encoding="utf-8")


def read_summary(model: Path) -> SizeSummary | None:
    """Return the summary of a tokenizer; None if it is absent, corrupt, empty or of another version."""
    return read_if_valid(SizeSummary, summary_path(model))
