"""Differences of the published models in an export: the tokenizer file, and the order of the text rows.

base    tokenizer file                             order of the text rows
2.0     bpe.model, with the options in it          that of the checkpoint
2.5     a rank file without gaps; the options are  pieces, appended pieces, special tokens, the spare row
        in spoken_text/ only, since the official
        program reads nothing but ranks
"""

from collections.abc import Mapping, Sequence

from torch import Tensor

from indextts.text.byte_level import ByteLevelTokenizer
from indextts.text.official_marks import with_ethiopic_marks
from indextts.text.tokenizer import Tokenizer

TEXT_ROWS = ("text_embedding.weight", "text_head.weight", "text_head.bias")


def official_order(tokenizer: Tokenizer) -> tuple[int, ...]:
    """Return the token that each token of the official program is; empty if none moves."""
    return tokenizer.official_order if isinstance(tokenizer, ByteLevelTokenizer) else ()


def in_official_order(weights: Mapping[str, Tensor], order: Sequence[int]) -> Mapping[str, Tensor]:
    """Return the weights by published name, with the text rows in the order of `official_order`."""
    if not order:
        return weights
    rows = [*order, len(order)]  # the last row belongs to no token
    return {**weights, **{name: weights[name][rows] for name in TEXT_ROWS}}


def official_file(tokenizer: Tokenizer) -> bytes:
    """Return the tokenizer file for the official program.

    Raises:
        OSError: the temporary folder cannot be written.
    """
    if isinstance(tokenizer, ByteLevelTokenizer):
        return tokenizer.official_ranks
    return with_ethiopic_marks(tokenizer.model_bytes)
