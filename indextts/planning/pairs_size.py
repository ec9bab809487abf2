"""Size of an epoch before loading it: the number of pairs and of their positions.

The trainer tokenizes all texts and has exact numbers. Here a file with many pairs is sampled, and the result
has `is_sampled` True, unless a fresh index has the tokens of all texts.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from indextts.data.manifest import sample_pairs
from indextts.data.pair_index import find_index, index_path
from indextts.models.gpt.config import load_config_of
from indextts.runs.schedule import EpochSize
from indextts.system.files import FileStamp, file_stamp
from indextts.text.bases import load_tokenizer
from indextts.text.tokenizer import TextMeasure, measure

MAX_SAMPLED_PAIRS = 2_000  # of a file; the error of their mean length is at most 1 % for speech

StampedPath = tuple[Path, FileStamp | None]  # the stamp changes with the file; None if it is absent


@dataclass(frozen=True)
class PairsSize:
    """Size of an epoch, and the variation of its positions.

    Args:
        size: scaled to all pairs if they were sampled; `longest` is the longest pair that was read.
        spread: standard deviation of the positions per sample.
        is_sampled: only some of the pairs were read.
        num_left_out: pairs that were read and are empty or too long for the model's position tables.
    """

    size: EpochSize
    spread: float
    is_sampled: bool = False
    num_left_out: int = 0

    @property
    def mean(self) -> float:
        """Mean positions of a sample."""
        return self.size.num_positions / max(1, self.size.num_samples)

    def most_positions(self, batch_size: int, batch_tokens: int) -> int:
        """Return the positions of a large micro-batch, larger than about 99.9 % of all."""
        if batch_tokens:
            return batch_tokens
        usual = batch_size * self.mean + 3 * math.sqrt(batch_size) * self.spread
        return round(min(usual, batch_size * self.size.longest))


def measure_pairs(manifests: Sequence[Path], tokenizer: Path, config: Path) -> PairsSize:
    """Return the size of an epoch over these pair manifests with a tokenizer.

    Raises:
        UserError: a file cannot be read or is not a pair manifest.
    """
    return _measured(manifests, tokenizer, config)[0]


def measure_texts(manifests: Sequence[Path], tokenizer: Path, config: Path) -> TextMeasure:
    """Return statistics of the tokenized texts, sampled in a file with many pairs; errors as above."""
    return _measured(manifests, tokenizer, config)[1]


def _measured(manifests: Sequence[Path], tokenizer: Path, config: Path) -> tuple[PairsSize, TextMeasure]:
    indexes = tuple(stamped(index_path(path)) for path in manifests)
    return _measure(tuple(map(stamped, manifests)), indexes, stamped(tokenizer), stamped(config))


@lru_cache(maxsize=8)  # called at each change of the form
def _measure(
    manifests: tuple[StampedPath, ...],
    _indexes: tuple[StampedPath, ...],
    tokenizer: StampedPath,
    config: StampedPath,
) -> tuple[PairsSize, TextMeasure]:
    encoder = load_tokenizer(tokenizer[0])
    sizes = load_config_of(config[0], encoder)
    samples = [sample_pairs(path, MAX_SAMPLED_PAIRS) for path, _ in manifests]
    pairs = [pair for _, some in samples for pair in some]
    total = sum(count for count, _ in samples)
    indexes = [find_index(path, encoder) for path, _ in manifests] if len(pairs) < total else [None]
    if all(indexes):
        columns = [index.pairs for index in indexes if index is not None]
        num_text = np.concatenate([each.num_text_ids for each in columns])
        num_codes = np.concatenate([each.num_codes for each in columns]).astype(np.int64)
    else:
        num_text = np.array([len(encoder.encode(pair.target_text)) for pair in pairs], np.int64)
        num_codes = np.array([pair.target_num_codes for pair in pairs], np.int64)
    fits = (num_text > 0) & (num_text <= sizes.max_text_tokens) & (num_codes <= sizes.max_mel_tokens)
    # the prefix, start and stop of the text, start of the codes, counted as the trainer does
    lengths = (sizes.prefix_length + 3 + num_text + num_codes)[fits]
    read = len(num_text)
    seen = EpochSize(len(lengths), int(lengths.sum()), int(lengths.max(initial=0)))
    size = PairsSize(
        size=seen if read == total else seen.scaled(total * len(lengths) // read),
        spread=float(lengths.std()) if len(lengths) else 0.0,
        is_sampled=read < total,
        num_left_out=read - len(lengths),
    )
    return size, measure(encoder, [pair.target_text for pair in pairs])


def stamped(path: Path) -> StampedPath:
    """Return the path with its stamp, as the key of a cache."""
    try:
        return path, file_stamp(path)
    except OSError:
        return path, None  # the function that reads the file raises the error
