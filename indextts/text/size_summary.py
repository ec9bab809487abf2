"""Tokens per word of an extended tokenizer at smaller sizes, so that a user can judge its size.

    X.model.summary.json    {"version": 1, "base_size": 12000, "num_texts": 2000,
                             "sizes": [{"size": 13000, "tokens_per_word": 2.81, "num_rare": 105}, ...]}

Merges are appended in the order they are learned. So the first merges of a tokenizer are those of a smaller
one, and one extension gives the whole curve.
"""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from indextts.system.files import written_aside
from indextts.text.tokenizer import Tokenizer, parse_model

VERSION = 1
NUM_SIZES = 6
MAX_TEXTS = 2_000  # for the tokens per word; every size encodes them
RARE = 20  # occurrences; with fewer, a training hardly teaches the row of a piece


@dataclass(frozen=True)
class SizePoint:
    """A size of the tokenizer.

    Args:
        tokens_per_word: of the texts.
        num_rare: appended pieces with fewer than RARE occurrences in all texts, projected from those encoded.
    """

    size: int
    tokens_per_word: float
    num_rare: int


@dataclass(frozen=True)
class SizeSummary:
    """The curve of a tokenizer."""

    base_size: int
    num_texts: int
    points: tuple[SizePoint, ...]


def summarize(extended: Tokenizer, base_size: int, texts: Sequence[str]) -> SizeSummary:
    """Return the curve of a tokenizer over `texts`, from its letters alone to all of its pieces."""
    every = max(1, len(texts) // MAX_TEXTS)
    normalized = [extended.normalize(text) for text in texts[::every][:MAX_TEXTS]]
    appended = extended.pieces[base_size:]
    num_letters = next((n for n, piece in enumerate(appended) if len(piece) > 1), len(appended))
    first, last = base_size + num_letters, extended.size
    sizes = sorted({round(first + (last - first) * n / (NUM_SIZES - 1)) for n in range(NUM_SIZES)})
    points = (_measured(extended, size, base_size, normalized, every) for size in sizes)
    return SizeSummary(base_size, len(normalized), tuple(points))


def _measured(
    extended: Tokenizer, size: int, base_size: int, normalized: Sequence[str], every: int
) -> SizePoint:
    proto = parse_model(extended.model_bytes)
    del proto.pieces[size:]
    proto.trainer_spec.vocab_size = size
    cut = Tokenizer(proto.SerializeToString(deterministic=True), extended.path, extended.options)
    counts = Counter(token for text in normalized for token in cut.encode_normalized(text))
    num_words = sum(len(cut.normalized_words(text).split()) for text in normalized)
    num_rare = sum(every * counts[token] < RARE for token in range(base_size, size))
    return SizePoint(size, round(counts.total() / max(1, num_words), 3), num_rare)


def summary_path(model: Path) -> Path:
    """Return the path of the summary beside a tokenizer."""
    return model.with_name(f"{model.name}.summary.json")


def write_summary(model: Path, summary: SizeSummary) -> None:
    """Write the summary beside its tokenizer."""
    content = {
        "version": VERSION,
        "base_size": summary.base_size,
        "num_texts": summary.num_texts,
        "sizes": [asdict(point) for point in summary.points],
    }
    with written_aside(summary_path(model), is_unique=True) as aside:
        aside.write_text(json.dumps(content), encoding="utf-8")


def read_summary(model: Path) -> SizeSummary | None:
    """Return the summary of a tokenizer; None if it is absent, corrupt or of another version."""
    try:
        content = json.loads(summary_path(model).read_text(encoding="utf-8"))
        if content["version"] != VERSION:
            return None
        points = tuple(
            SizePoint(int(each["size"]), float(each["tokens_per_word"]), int(each["num_rare"]))
            for each in content["sizes"]
        )
        return SizeSummary(int(content["base_size"]), int(content["num_texts"]), points)
    except (OSError, ValueError, KeyError, TypeError):
        return None
