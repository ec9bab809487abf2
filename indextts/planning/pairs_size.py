"""Size of an epoch before loading it: the number of pairs and of their positions, and their order.

With a fresh index beside the pairs, or with few pairs, all are those of the trainer. Otherwise files are
sampled, the result has `is_sampled` True, and the order is not known.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from indextts.commands.pairs_file import PairsFile, parse_files
from indextts.data.epoch_mix import EpochMix, digest_of_mix
from indextts.data.manifest import sample_pairs
from indextts.data.pair_columns import PairColumns
from indextts.data.pair_index import find_index, index_path, load_index
from indextts.models.gpt.config import GPTConfig, load_config_of
from indextts.runs.schedule import EpochSize
from indextts.system.files import FileStamp, count_lines, file_stamp
from indextts.text.bases import for_language, load_tokenizer
from indextts.text.tokenizer import TextMeasure, Tokenizer, measure

MAX_TOKENIZED_PAIRS = 2_000  # a second of work
MAX_SAMPLED_PAIRS = 2_000  # of a file; the error of their mean length is at most 1 % for speech

StampedPath = tuple[Path, FileStamp | None]  # the stamp changes with the file; None if it is absent


@dataclass(frozen=True)
class PairsSize:
    """Size of an epoch, and the variation of its positions."""

    size: EpochSize  # scaled to all pairs if they were sampled; `longest` is the longest pair that was read
    spread: float  # standard deviation of the positions per sample
    is_sampled: bool = False  # only some of the pairs were read
    num_left_out: int = 0  # pairs that were read and are empty or too long for the model's position tables

    @property
    def mean(self) -> float:
        return self.size.num_positions / max(1, self.size.num_samples)

    def most_positions(self, batch_size: int, batch_tokens: int) -> int:
        """Return the positions of a large micro-batch, larger than about 99.9 % of all."""
        if batch_tokens:
            return batch_tokens
        usual = batch_size * self.mean + 3 * math.sqrt(batch_size) * self.spread
        return round(min(usual, batch_size * self.size.longest))


@dataclass(frozen=True)
class ExactEpoch:
    """The training pairs of a run, as the trainer will count and order them."""

    pairs: PairsSize
    data_order: Callable[[int], str]  # returns the digest of the order for a seed
    stores: list[Path]  # the feature stores of all pairs, used or left out


def measure_pairs(
    manifests: Sequence[Path], tokenizer: Path, config: Path, run_dir: Path | None = None
) -> PairsSize:
    """Return the size of an epoch over pair manifests, whose index may be in `run_dir`; else a UserError."""
    files = parse_files(list(manifests))
    exact = read_epoch(files, tokenizer, config, run_dir)
    return exact.pairs if exact else _sampled(files, _stamps(files), stamped(tokenizer), stamped(config))[0]


def measure_texts(manifests: Sequence[Path], tokenizer: Path, config: Path) -> TextMeasure:
    """Return statistics of the tokenized texts, sampled in a file with many pairs; errors as above."""
    files = parse_files(list(manifests))
    return _sampled(files, _stamps(files), stamped(tokenizer), stamped(config))[1]


def read_epoch(
    files: tuple[PairsFile, ...], tokenizer: Path, config: Path, run_dir: Path | None
) -> ExactEpoch | None:
    """Return the training pairs of a run; None if tokenizing them would take long; errors as above."""
    indexes = tuple(stamped(index_path(file.path)) for file in files)
    return _read_epoch(files, _stamps(files), indexes, stamped(tokenizer), stamped(config), run_dir)


@lru_cache(maxsize=8)  # called at each change of the form, for each checkpoint
def _read_epoch(
    files: tuple[PairsFile, ...],
    _manifests: tuple[StampedPath, ...],
    _indexes: tuple[StampedPath, ...],
    tokenizer: StampedPath,
    config: StampedPath,
    run_dir: Path | None,
) -> ExactEpoch | None:
    encoder = load_tokenizer(tokenizer[0])
    columns = _columns(files, encoder, run_dir)
    if columns is None:
        return None
    fits, lengths = _fitting(
        columns.num_text_ids, columns.num_codes.astype(np.int64), load_config_of(config[0], encoder)
    )
    used = columns.take(np.flatnonzero(fits))
    size = EpochSize(len(used), int(lengths.sum()), int(lengths.max(initial=0)))
    mix = None
    if len(used):
        mix = EpochMix.of(used.sizes_of_parts(len(files)), [file.share for file in files])
    pairs = PairsSize(
        size=size if mix is None else mix.size(lengths),
        spread=float(lengths.std()) if len(used) else 0.0,
        num_left_out=len(columns) - len(used),
    )
    return ExactEpoch(pairs, lambda seed: digest_of_mix(used.order_digest(seed), mix), columns.used_stores)


def _columns(files: Sequence[PairsFile], tokenizer: Tokenizer, run_dir: Path | None) -> PairColumns | None:
    """Return the pairs with tokenized texts, None if tokenizing them would take long."""
    readers = [(file.path, for_language(tokenizer, file.language)) for file in files]
    indexes = [find_index(path, reader, run_dir) for path, reader in readers]
    if not all(indexes) and sum(count_lines(file.path) for file in files) <= MAX_TOKENIZED_PAIRS:
        indexes = [load_index(path, reader, run_dir, may_write=False) for path, reader in readers]
    found = [index.pairs for index in indexes if index is not None]
    return PairColumns.joined(found) if len(found) == len(files) else None


@lru_cache(maxsize=8)
def _sampled(
    files: tuple[PairsFile, ...],
    _manifests: tuple[StampedPath, ...],
    tokenizer: StampedPath,
    config: StampedPath,
) -> tuple[PairsSize, TextMeasure]:
    encoder = load_tokenizer(tokenizer[0])
    sizes = load_config_of(config[0], encoder)
    samples = [sample_pairs(file.path, MAX_SAMPLED_PAIRS) for file in files]
    parts = []
    for file, (_, some) in zip(files, samples, strict=True):
        reader = for_language(encoder, file.language)
        num_text = np.array([len(reader.encode(pair.target_text)) for pair in some], np.int64)
        num_codes = np.array([pair.target_num_codes for pair in some], np.int64)
        parts.append(_fitting(num_text, num_codes, sizes)[1])
    lengths = np.concatenate(parts)
    num_read = sum(len(some) for _, some in samples)
    size = PairsSize(
        size=_epoch_of_sample(files, parts, [count for count, _ in samples], num_read),
        spread=float(lengths.std()) if len(lengths) else 0.0,
        is_sampled=True,
        num_left_out=num_read - len(lengths),
    )
    own = [pair for file, (_, some) in zip(files, samples, strict=True) if not file.language for pair in some]
    return size, measure(encoder, [pair.target_text for pair in own])


def _epoch_of_sample(
    files: Sequence[PairsFile], parts: Sequence[NDArray[np.int64]], counts: Sequence[int], num_read: int
) -> EpochSize:
    """Return the size of an epoch of all pairs, from the lengths of those of each file that fit."""
    joined = np.concatenate(parts)
    seen = EpochSize(len(joined), int(joined.sum()), int(joined.max(initial=0)))
    if not seen.num_samples:
        return seen
    sizes = [round(count * seen.num_samples / num_read) for count in counts]
    mix = EpochMix.of(sizes, [file.share for file in files])
    if mix is None:
        return seen.scaled(sum(counts) * seen.num_samples // num_read)
    means = [each.mean() if len(each) else joined.mean() for each in parts]
    positions = sum(count * mean for count, mean in zip(mix.counts, means, strict=True))
    return EpochSize(mix.num_samples, round(positions), seen.longest)


def _fitting(
    num_text: NDArray[np.int64], num_codes: NDArray[np.int64], config: GPTConfig
) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Return which pairs the model's position tables hold, and the positions of these."""
    fits = (num_text > 0) & (num_text <= config.max_text_tokens) & (num_codes <= config.max_mel_tokens)
    # the prefix, start and stop of the text, start of the codes, counted as the trainer does
    return fits, (config.prefix_length + 3 + num_text + num_codes)[fits]


def _stamps(files: Sequence[PairsFile]) -> tuple[StampedPath, ...]:
    return tuple(stamped(file.path) for file in files)


def stamped(path: Path) -> StampedPath:
    """Return the path with its stamp, as the key of a cache."""
    try:
        return path, file_stamp(path)
    except OSError:
        return path, None  # the function that reads the file raises the error
