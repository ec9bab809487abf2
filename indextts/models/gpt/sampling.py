"""How the next code is chosen from its scores: penalty, temperature, top-k, top-p, in this order.

Axes: R rows, C codes. These are the rules of the published front end (those of `transformers`' generation).

Beam search over codes, with or without draws, by the rules of the published front end.

Axes: K beams, C semantic codes, M codes of a sequence.

The scores of a step are log-probabilities after penalty, temperature, top-k and top-p, added to what the beam
has so far. Of the 2K best (or drawn) continuations, a stop among the first K ends a sequence, the K first
others go on. The search ends when K sequences have ended and the worst of them is as good as the best that
goes on could be by the length penalty of now.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from indextts.commands.sampling_options import Sampling
from indextts.models.gpt.decoder import Decoder, Prefix

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


UNUSED_BEAM = -1e9  # at the start all beams are alike: only the first counts


@dataclass(frozen=True)
class Ended:
    """An ended sequence.

    Args:
        codes: (M,), without stop.
        score: sum of processed log-probabilities over length to the power of the length penalty.
    """

    codes: Tensor
    score: float
    has_stopped: bool


@torch.inference_mode()
def search_beams(
    decoder: Decoder,
    prefix: Prefix,
    is_used: Tensor,
    limit: int,
    sampling: Sampling,
    generator: torch.Generator,
    on_step: Callable[[int], None],
) -> Ended:
    """The best sequence for one prompt.

    Args:
        decoder: not yet started.
        prefix: of one row.
        is_used: (K, C), codes that the repetition penalty holds for used.
        limit: most codes.
        sampling: settings.
        generator: of the draws.
        on_step: called with the number of codes so far.
    """
    num_beams, stop = sampling.num_beams, decoder.model.config.stop_mel_token
    scores = decoder.start(prefix.repeat(num_beams))  # (K, C)
    num_codes = scores.shape[1]
    device = scores.device
    codes = torch.empty(num_beams, 0, dtype=torch.long, device=device)
    sums = torch.full((num_beams,), UNUSED_BEAM, device=device)
    sums[0] = 0.0
    ended: list[Ended] = []
    for length in range(1, limit + 1):
        scores = penalise(scores.log_softmax(-1), is_used, sampling.repetition_penalty)
        if sampling.do_sample:
            scores = narrow(scores, sampling, min_kept=2)
        totals = (scores + sums[:, None]).flatten()  # (K * C,)
        candidates = _candidates(totals, num_beams, sampling, generator)
        going = []
        for rank, place in enumerate(candidates.tolist()):
            beam, code = divmod(place, num_codes)
            if totals[place] == NEVER:
                continue
            if code != stop:
                going.append(place)
            elif rank < num_beams:
                score = float(totals[place]) / length**sampling.length_penalty
                ended.append(Ended(codes[beam], score, has_stopped=True))
        ended = sorted(ended, key=lambda sequence: -sequence.score)[:num_beams]
        going = going[:num_beams]
        if not going:
            break
        going += going[:1] * (num_beams - len(going))  # filled up; the copies do not count
        places = torch.tensor(going, device=device)
        beams, chosen = places // num_codes, places % num_codes
        sums = totals[places]
        sums[len(set(going)) :] = UNUSED_BEAM
        codes = torch.cat([codes[beams], chosen[:, None]], dim=1)
        is_used = is_used[beams].scatter(1, chosen[:, None], True)
        on_step(length)
        best_going = float(sums[0]) / length**sampling.length_penalty
        if len(ended) == num_beams and ended[-1].score >= best_going:
            break
        if length == limit:
            ended += [
                Ended(row, float(total) / length**sampling.length_penalty, has_stopped=False)
                for row, total in zip(codes, sums, strict=True)
            ]
            break
        decoder.keep(beams)
        scores = decoder.step(chosen)
    return max(ended, key=lambda sequence: sequence.score)


def _candidates(totals: Tensor, num_beams: int, sampling: Sampling, generator: torch.Generator) -> Tensor:
    """Places of the 2K continuations looked at, best first: (2K,)."""
    number = 2 * num_beams
    if not sampling.do_sample:
        return totals.topk(number).indices
    drawn = draw(totals, number, generator)
    return drawn[totals[drawn].argsort(descending=True)]
