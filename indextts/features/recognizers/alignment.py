"""Fit of a text to the log-probabilities of a CTC model, independent of spelling.

    tokens of one sound   ሀ ሐ ኀ ... share a column: their probabilities are added
    blank, word boundary  share a column: the text is compared without spaces

score = (log p(text | sound) - log p(best path | sound)) / number of letters

Axes: T positions, V tokens, L columns: 0 is the blank, then one for each letter.
"""

from collections.abc import Container, Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from indextts.text.ethiopic import text_key

LOWEST_SCORE = -20.0  # nats per letter, also of a text that is too long for the sound
MIN_PROBABILITY = 1e-30


def merged_columns(
    tokens: Sequence[str], ignored: Container[int | None], delimiter: str | None
) -> dict[str, list[int]]:
    """Return the tokens of each letter; "" has the blank, the word boundary and all without letters.

    Args:
        tokens: (V,).
        ignored: ids of special tokens.
        delimiter: the token between words.
    """
    columns: dict[str, list[int]] = {"": []}
    for number, token in enumerate(tokens):
        key = "" if number in ignored or token == delimiter else text_key(token)
        columns.setdefault(key, []).append(number)
    return columns


def letter_columns(columns: Mapping[str, Sequence[int]], text: str) -> list[int]:
    """Return the columns of the letters of a text, without letters that the model does not have."""
    number_of = {key: number for number, key in enumerate(columns)}
    return [number_of[letter] for letter in text_key(text) if letter in number_of]


def merged_scores(log_probabilities: Tensor, columns: Mapping[str, Sequence[int]]) -> Tensor:
    """Return the log-probabilities (T, L) of columns from those of tokens (T, V)."""
    probabilities = log_probabilities.exp()
    merged = torch.stack([probabilities[:, list(ids)].sum(-1) for ids in columns.values()], dim=-1)
    return merged.clamp(min=MIN_PROBABILITY).log()


def alignment_score(
    log_probabilities: Tensor, columns: Mapping[str, Sequence[int]], text: str
) -> float | None:
    """Return the score of a text in nats per letter; None for a clip or a text without letters of the model.

    Args:
        log_probabilities: (T, V).
        columns: from `merged_columns`.
        text: letters that the model does not have are left out.
    """
    targets = letter_columns(columns, text)
    if not targets or not len(log_probabilities):
        return None
    scores = merged_scores(log_probabilities, columns)  # (T, L)
    nats = F.ctc_loss(
        scores[:, None],
        torch.tensor([targets]),
        torch.tensor([len(scores)]),
        torch.tensor([len(targets)]),
        reduction="sum",
    )
    best = scores.max(dim=-1).values.sum()
    return max(LOWEST_SCORE, float(-nats - best) / len(targets))
