"""What an epoch holds, before anything is loaded: pairs and their positions, counted or from a sample.

The trainer makes the ids of all texts and knows exactly. Here a file of many pairs is sampled, and what comes
out says so.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from indextts.data.manifest import Pair, sample_pairs
from indextts.models.gpt.config import GPTConfig, load_config
from indextts.runs.schedule import EpochSize
from indextts.text.tokenizer import TextMeasure, Tokenizer, measure

MOST_PAIRS = 2_000  # are read of a file; their mean is off by 1 % at most where lengths vary as speech does

FileStamp = tuple[Path, int, int]  # a path with what changes when the file does


@dataclass(frozen=True)
class PairsSize:
    """An epoch, and how its positions vary.

    Args:
        size: where the pairs were sampled, scaled to all of them; `longest` is the longest that was seen.
        spread: standard deviation of a sample's positions.
        is_sampled: only some of the pairs were read.
        num_left_out: of the pairs that were read, those too long for the model's position tables.
        texts: what the tokenizer makes of the texts that were read.
    """

    size: EpochSize
    spread: float
    is_sampled: bool
    num_left_out: int
    texts: TextMeasure

    @property
    def mean(self) -> float:
        """Positions of a sample."""
        return self.size.num_positions / max(1, self.size.num_samples)

    def most_positions(self, batch_size: int, batch_tokens: int) -> int:
        """Return the positions of a large micro-batch, such as one in a thousand is."""
        if batch_tokens:
            return batch_tokens
        usual = batch_size * self.mean + 3 * math.sqrt(batch_size) * self.spread
        return round(min(usual, batch_size * self.size.longest))


def measure_pairs(manifests: Sequence[Path], tokenizer: Path, config: Path) -> PairsSize:
    """Return what an epoch of these pairs files holds for a tokenizer.

    Raises:
        UserError: a file cannot be read, is no pairs file, or none of its pairs fits the model.
    """
    return _measure(tuple(map(_stamp, manifests)), _stamp(tokenizer), _stamp(config))


def positions_of(pair: Pair, num_text_tokens: int, config: GPTConfig) -> int:
    """Return the positions of the model's sequence that a pair takes, as the trainer counts them."""
    # latents, two speed rows, start and stop of the text, start of the codes
    return config.num_latents + 5 + num_text_tokens + pair.target_num_codes


@lru_cache(maxsize=8)  # asked at each change of the form
def _measure(manifests: tuple[FileStamp, ...], tokenizer: FileStamp, config: FileStamp) -> PairsSize:
    sizes, encoder = load_config(config[0]), Tokenizer.load(tokenizer[0])
    total, read = 0, 0
    texts: list[str] = []
    lengths: list[int] = []
    for path, _, _ in manifests:
        count, pairs = sample_pairs(path, MOST_PAIRS)
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


def _stamp(path: Path) -> FileStamp:
    try:
        status = path.stat()
    except OSError:
        return path, 0, 0  # whoever reads it says what is wrong
    return path, status.st_mtime_ns, status.st_size
