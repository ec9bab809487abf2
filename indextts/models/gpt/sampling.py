"""How the next code is chosen from its scores: penalty, temperature, top-k, top-p, in this order.

Axes: R rows, C codes. These are the rules of the published front end (those of `transformers`' generation).
"""

import torch
from torch import Tensor

from indextts.commands.sampling_options import Sampling

NEVER = -torch.inf


def penalise(scores: Tensor, is_used: Tensor, penalty: float) -> Tensor:
    """Scores (R, C) with those of used codes, `is_used` (R, C), divided if above 0, else multiplied."""
    punished = torch.where(scores < 0, scores * penalty, scores / penalty)
    return torch.where(is_used, punished, scores)


def narrow(scores: Tensor, sampling: Sampling, min_kept: int) -> Tensor:
    """Scores (R, C) after temperature, top-k and top-p; what is out is minus infinity.

    Args:
        scores: logits or log-probabilities.
        sampling: the settings.
        min_kept: codes that are never taken out.
    """
    scores = scores / sampling.temperature
    if sampling.top_k:
        num_kept = min(max(sampling.top_k, min_kept), scores.shape[-1])
        scores = scores.masked_fill(scores < scores.topk(num_kept).values[..., -1:], NEVER)
    if sampling.top_p < 1:
        ascending, order = scores.sort()
        is_out = ascending.softmax(-1).cumsum(-1) <= 1 - sampling.top_p
        is_out[..., -min_kept:] = False
        scores = scores.masked_fill(is_out.scatter(-1, order, is_out), NEVER)
    return scores


def draw(scores: Tensor, number: int, generator: torch.Generator) -> Tensor:
    """Draw `number` different indices from softmax(`scores`) of one row (C,), without replacement: (number,).

    Adding Gumbel noise and taking the largest is such a draw (Kool, van Hoof and Welling, "Stochastic Beams
    and Where to Find Them", 2019). The noise comes from the CPU, so that a seed means the same everywhere.
    """
    noise = -torch.empty(len(scores)).exponential_(generator=generator).log()
    return (scores.log_softmax(-1) + noise.to(scores.device)).topk(number).indices


def generator_of(sampling: Sampling, row: int) -> torch.Generator:
    """The random numbers of one prompt; they do not depend on the others of its batch."""
    return torch.Generator().manual_seed((sampling.seed * 1_000_003 + row) % 2**63)
