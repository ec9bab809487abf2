"""Number of training texts that a run reads differently than its checkpoint, without tokenizing them.

Readings are compared text by text; other options of the normaliser on `MAX_COMPARED` texts. The rules of
another version are not in this program, so that the number is unknown.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from indextts.data.manifest import stream_pairs
from indextts.data.pair_index import find_index
from indextts.runs.restore_facts import ChangedTexts
from indextts.text.normalize import reads_alike
from indextts.text.normalizer_record import options_with_other_readings, recorded_options
from indextts.text.tokenizer import Tokenizer

MAX_COMPARED = 2_000  # a second or two of work


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
    options, now = recorded_options(old), tokenizer.options
    if options is None:
        return None
    index = find_index(path, tokenizer, run_dir)
    if index is None:
        texts = list(dict.fromkeys(pair.target_text for pair, _ in stream_pairs(path)))
    else:
        texts = [index.pairs.texts.text(row) for row in range(len(index.pairs.texts))]
    has_other_rules = options_with_other_readings(old, now) is None
    compared = texts[:: max(1, -(-len(texts) // MAX_COMPARED))] if has_other_rules else texts
    return ChangedTexts(
        sum(not reads_alike(text, options, now) for text in compared), len(compared), len(texts)
    )
