"""Size of an epoch before loading it: the number of pairs and of their positions.

The trainer tokenizes all texts and has exact numbers. Here a file with many pairs is sampled, and the result
has `is_sampled` True.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from indextts.data.manifest import Pair, sample_pairs
from indextts.models.gpt.config import GPTConfig, load_config
from indextts.runs.schedule import EpochSize
from indextts.system.files import FileStamp, file_stamp
from indextts.text.tokenizer import TextMeasure, Tokenizer, measure

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
        texts: statistics of the tokenized texts that were read.
    """

    size: EpochSize
    spread: float
    is_sampled: bool
    num_left_out: int
    texts: TextMeasure

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
    return _measure(tuple(map(_stamp, manifests)), _stamp(tokenizer), _stamp(config))


def positions_of(pair: Pair, num_text_tokens: int, config: GPTConfig) -> int:
    """Return the length of a pair's sequence in positions, counted as the trainer does."""
    # latents, two speed rows, start and stop of the text, start of the codes
    return config.num_latents + 5 + num_text_tokens + pair.target_num_codes


@lru_cache(maxsize=8)  # called at each change of the form
def _measure(manifests: tuple[StampedPath, ...], tokenizer: StampedPath, config: StampedPath) -> PairsSize:
    sizes, encoder = load_config(config[0]), Tokenizer.load(tokenizer[0])
    total, read = 0, 0
    texts: list[str] = []
    lengths: list[int] = []
    for path, _ in manifests:
        count, pairs = sample_pairs(path, MAX_SAMPLED_PAIRS)
        total, read = total + count, read + len(pairs)
        texts += [pair.target_text for pair in pairs]
        for pair in pairs:
            num_text = len(encoder.encode(pair.target_text))
            fits = num_text <= sizes.max_text_tokens and pair.target_num_codes <= sizes.max_mel_tokens
            if fits and num_text:
                lengths.append(positions_of(pair, num_text, sizes))
    mean = sum(lengths) / max(1, len(lengths))
    spread = math.sqrt(sum((length - mean) ** 2 for length in lengths) / max(1, len(lengths)))
    seen = EpochSize(len(lengths), sum(lengths), max(lengths, default=0))
    return PairsSize(
        size=seen if read == total else seen.scaled(total * len(lengths) // read),
        spread=spread,
        is_sampled=read < total,
        num_left_out=read - len(lengths),
        texts=measure(encoder, texts),
    )


def _stamp(path: Path) -> StampedPath:
    try:
        return path, file_stamp(path)
    except OSError:
        return path, None  # the function that reads the file raises the error
