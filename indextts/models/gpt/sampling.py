"""Scores of the next code: repetition penalty, filters and noise, by the rules of the published front end.

Axes: R rows of scores (any leading axes), C semantic codes, W codes that may be chosen, B prompts.

The order is repetition penalty, temperature, top-k, top-p, as in `transformers`. Only the codes that remain
are kept, best first, so that all further work is on a few codes instead of thousands.
"""

import torch
from torch import Tensor

from indextts.commands.sampling_options import Sampling

NEG_INF = -torch.inf


def apply_repetition_penalty(scores: Tensor, is_used: Tensor, penalty: float) -> Tensor:
    """Divide positive and multiply negative scores (R, C) of used codes, `is_used` (R, C), by the penalty."""
    if penalty == 1:
        return scores
    penalised = torch.where(scores < 0, scores * penalty, scores / penalty)
    return torch.where(is_used, penalised, scores)


def best_codes(scores: Tensor, sampling: Sampling, min_kept: int) -> tuple[Tensor, Tensor]:
    """Return the scores that temperature, top-k and top-p leave, best first, and their codes: (R, W) each.

    Args:
        scores: (R, C), logits or log-probabilities.
        sampling: the settings; without sampling only top-k counts, with k = `min_kept`.
        min_kept: the number of best codes that are never removed.

    Returns:
        Scores, minus infinity where top-p removes a code, and codes. W is that of top-k, or C.
    """
    num_codes = scores.shape[-1]
    if not sampling.do_sample:
        best = scores.topk(min(min_kept, num_codes))
        return best.values, best.indices
    width = min(max(sampling.top_k, min_kept), num_codes) if sampling.top_k else num_codes
    values, codes = (scores / sampling.temperature).topk(width)
    if sampling.top_p < 1:
        share_from_here = values.softmax(-1).flip(-1).cumsum(-1).flip(-1)  # of this and all worse codes
        is_excluded = share_from_here <= 1 - sampling.top_p
        if min_kept > 1:  # the sum from the best one on is more than 1 - top_p
            is_excluded[..., :min_kept] = False
        values = values.masked_fill(is_excluded, NEG_INF)
    return values, codes


def draw(scores: Tensor, keys: Tensor, words: Tensor, number: int) -> Tensor:
    """Draw `number` indices from softmax(`scores`) of each row, without replacement: (B, number).

    Uses the Gumbel top-k trick (Kool, van Hoof and Welling, "Stochastic Beams and Where to Find Them", 2019).

    Args:
        scores: (B, W).
        keys: (B, W), a number for each candidate, different within a row.
        words: (B, 1), from `step_words`.
    """
    shifted = scores - scores.amax(-1, keepdim=True)  # small numbers, to which noise is added exactly
    return (shifted + gumbel_noise(keys, words)).topk(number).indices


def step_words(seeds: Tensor, steps: Tensor) -> Tensor:
    """Return the random word of each of `seeds` (B,) at each of `steps` (T,): (B, T), int64."""
    return _mixed(_mixed(seeds)[:, None] + steps)


def gumbel_noise(keys: Tensor, words: Tensor) -> Tensor:
    """Return standard Gumbel noise for each of `keys` (B, W): (B, W), float32.

    The noise is a function of key, seed and step alone: the rest of the batch, the device and the order of
    the computation do not change it.

    Args:
        words: (B, 1), from `step_words`.
    """
    # 53 random bits in float64, the middle of each interval: never 0 or 1
    uniform = (_shifted(_mixed(words + keys), 11).double() + 0.5) * 2.0**-53
    return -(-uniform.log()).log().float()


def _mixed(words: Tensor) -> Tensor:
    """Permute 64-bit integers pseudo-randomly, by the finaliser of SplitMix64 (Steele et al., 2014).

    Products wrap around; the constants are the published ones, read as signed numbers.
    """
    words = words - 0x61C8864680B583EB
    words = (words ^ _shifted(words, 30)) * -0x40A7B892E31B1A47
    words = (words ^ _shifted(words, 27)) * -0x6B2FB644ECCEEE15
    return words ^ _shifted(words, 31)


def _shifted(words: Tensor, bits: int) -> Tensor:
    """Shift to the right and fill with zeros."""
    return (words >> bits) & ((1 << (64 - bits)) - 1)
