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
from numpy.typing import NDArray

from indextts.commands.pairs_file import PairsFile, parse_files
from indextts.data.epoch_mix import EpochMix
from indextts.data.manifest import sample_pairs
from indextts.data.pair_index import find_index, index_path
from indextts.models.gpt.config import load_config_of
from indextts.runs.schedule import EpochSize
from indextts.system.files import FileStamp, file_stamp
from indextts.text.bases import for_language, load_tokenizer
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

    Args:
        manifests: as in a command, with their languages and shares.

    Raises:
        UserError: a file cannot be read or is not a pair manifest.
    """
    return _measured(manifests, tokenizer, config)[0]


def measure_texts(manifests: Sequence[Path], tokenizer: Path, config: Path) -> TextMeasure:
    """Return statistics of the tokenized texts, sampled in a file with many pairs; errors as above."""
    return _measured(manifests, tokenizer, config)[1]


def _measured(manifests: Sequence[Path], tokenizer: Path, config: Path) -> tuple[PairsSize, TextMeasure]:
    files = parse_files(list(manifests))
    paths = [file.path for file in files]
    indexes = tuple(stamped(index_path(path)) for path in paths)
    return _measure(files, tuple(map(stamped, paths)), indexes, stamped(tokenizer), stamped(config))


@lru_cache(maxsize=8)  # called at each change of the form
def _measure(
    files: tuple[PairsFile, ...],
    _manifests: tuple[StampedPath, ...],
    _indexes: tuple[StampedPath, ...],
    tokenizer: StampedPath,
    config: StampedPath,
) -> tuple[PairsSize, TextMeasure]:
    encoder = load_tokenizer(tokenizer[0])
    sizes = load_config_of(config[0], encoder)
    readers = [for_language(encoder, file.language) for file in files]
    samples = [sample_pairs(file.path, MAX_SAMPLED_PAIRS) for file in files]
    num_sampled = sum(len(some) for _, some in samples)
    total = sum(count for count, _ in samples)
    indexes = [
        find_index(file.path, reader) if num_sampled < total else None
        for file, reader in zip(files, readers, strict=True)
    ]
    parts = []
    for reader, (_, some), index in zip(readers, samples, indexes, strict=True):
        if index is not None and all(indexes):
            num_text, num_codes = index.pairs.num_text_ids, index.pairs.num_codes.astype(np.int64)
        else:
            num_text = np.array([len(reader.encode(pair.target_text)) for pair in some], np.int64)
            num_codes = np.array([pair.target_num_codes for pair in some], np.int64)
        fits = (num_text > 0) & (num_text <= sizes.max_text_tokens) & (num_codes <= sizes.max_mel_tokens)
        # the prefix, start and stop of the text, start of the codes, counted as the trainer does
        parts.append(((sizes.prefix_length + 3 + num_text + num_codes)[fits], len(num_text)))
    lengths = np.concatenate([fitting for fitting, _ in parts])
    read = sum(number for _, number in parts)
    size = PairsSize(
        size=_epoch_size(files, [fitting for fitting, _ in parts], read, samples, total),
        spread=float(lengths.std()) if len(lengths) else 0.0,
        is_sampled=read < total,
        num_left_out=read - len(lengths),
    )
    own = [pair for file, (_, some) in zip(files, samples, strict=True) if not file.language for pair in some]
    return size, measure(encoder, [pair.target_text for pair in own])


def _epoch_size(
    files: Sequence[PairsFile],
    lengths: Sequence[NDArray[np.int64]],
    num_read: int,
    samples: Sequence[tuple[int, Sequence[object]]],
    total: int,
) -> EpochSize:
    """Return the size of an epoch, scaled to all pairs if they were sampled.

    Args:
        lengths: of the pairs of each file that were read and fit.
        num_read: number of pairs that were read.
        samples: of each file, the number of its pairs and those that were sampled.
        total: number of pairs in all files.
    """
    joined = np.concatenate(lengths)
    seen = EpochSize(len(joined), int(joined.sum()), int(joined.max(initial=0)))
    if not seen.num_samples:
        return seen
    if num_read < total:
        share_that_fits = seen.num_samples / num_read
        sizes = [round(count * share_that_fits) for count, _ in samples]
    else:
        sizes = [len(each) for each in lengths]
    mix = EpochMix.of(sizes, [file.share for file in files])
    if mix is None:
        return seen if num_read == total else seen.scaled(total * seen.num_samples // num_read)
    means = [each.mean() if len(each) else joined.mean() for each in lengths]
    positions = sum(count * mean for count, mean in zip(mix.counts, means, strict=True))
    return EpochSize(mix.num_samples, round(positions), seen.longest)


def stamped(path: Path) -> StampedPath:
    """Return the path with its stamp, as the key of a cache."""
    try:
        return path, file_stamp(path)
    except OSError:
        return path, None  # the function that reads the file raises the error
