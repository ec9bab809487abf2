"""Number of training texts that a run reads differently than its checkpoint, without tokenizing all of them.

The number comes from the first of these that applies:

    the index replaced one of the checkpoint's normaliser    counted when it was built
    other readings, the same version and options             all texts are compared by their readings
    other options of the same version                        `MAX_COMPARED` texts are normalised twice
    an older version, whose index is still there             `MAX_COMPARED` texts are tokenized again

Otherwise it is unknown: the rules of older versions are no longer in this program.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from indextts.data.manifest import stream_pairs
from indextts.data.pair_columns import PairColumns
from indextts.data.pair_index import find_index, find_old_pairs
from indextts.runs.restore_facts import ChangedTexts
from indextts.text.normalize import reads_alike
from indextts.text.normalizer_record import options_with_other_readings, recorded_options
from indextts.text.tokenizer import Tokenizer

MAX_COMPARED = 2_000  # a second or two of work
_ItemT = TypeVar("_ItemT")


def count_changed_texts(
    manifests: Sequence[Path], tokenizer: Tokenizer, old: Mapping[str, Any], run_dir: Path
) -> ChangedTexts | None:
    """Return how many texts of pairs files the tokenizer reads differently than an older normaliser.

    Args:
        old: `NormalizerOptions.record` of the older normaliser; empty if it is unknown.
        run_dir: folder of the indexes if that of the pairs is read-only.

    Returns:
        None if nothing changed or the number is unknown.

    Raises:
        UserError: a pairs file is invalid.
    """
    if not old or old == tokenizer.options.record:
        return None
    parts = [_count(path, tokenizer, dict(old), run_dir) for path in manifests]
    found = [part for part in parts if part is not None]
    if not parts or len(found) < len(parts):
        return None
    return ChangedTexts(
        num_changed=sum(part.num_changed for part in found),
        num_compared=sum(part.num_compared for part in found),
        num_texts=sum(part.num_texts for part in found),
    )


def _count(path: Path, tokenizer: Tokenizer, old: dict[str, Any], run_dir: Path) -> ChangedTexts | None:
    index = find_index(path, tokenizer, run_dir)
    if index is not None and index.replaced is not None and index.replaced.normalizer == old:
        replaced = index.replaced
        return ChangedTexts(replaced.num_changed, replaced.num_texts, len(index.pairs.texts))
    now = tokenizer.options
    if (options := recorded_options(old)) is not None:
        texts = (
            _texts(path)
            if index is None
            else [index.pairs.texts.text(row) for row in range(len(index.pairs.texts))]
        )
        has_other_rules = options_with_other_readings(old, now) is None
        compared = _spread(texts) if has_other_rules else texts
        num_changed = sum(not reads_alike(text, options, now) for text in compared)
        return ChangedTexts(num_changed, len(compared), len(texts))
    pairs = find_old_pairs(path, tokenizer, old, run_dir)
    return None if pairs is None else _tokenized_again(pairs, tokenizer)


def _spread(items: Sequence[_ItemT]) -> Sequence[_ItemT]:
    """Return at most `MAX_COMPARED` items from all places of the sequence."""
    return items[:: -(-len(items) // MAX_COMPARED)] if items else items


def _tokenized_again(old: PairColumns, tokenizer: Tokenizer) -> ChangedTexts:
    rows = _spread(range(len(old.texts)))
    num_changed = sum(
        not np.array_equal(old.tokens[row], tokenizer.encode(old.texts.text(row))) for row in rows
    )
    return ChangedTexts(num_changed, len(rows), len(old.texts))


def _texts(path: Path) -> list[str]:
    """Return the distinct texts of a pairs file without an index."""
    return list(dict.fromkeys(pair.target_text for pair, _ in stream_pairs(path)))
