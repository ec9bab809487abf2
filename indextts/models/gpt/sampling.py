"""Sampling of the next code, and beam search, by the rules of the published front end.

Axes: R rows, C semantic codes, K beams, M codes of a sequence.

The order is repetition penalty, temperature, top-k, top-p, as in `transformers`.

Beam search adds the processed log-probabilities of each step to the score of the beam. Of the 2K best (or
sampled) continuations, a stop token among the first K finishes a hypothesis, and the first K without a stop
continue. The search ends when K hypotheses are finished and the best running beam, under the current length
penalty, is no better than the worst of them.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from indextts.commands.sampling_options import Sampling
from indextts.models.gpt.decoder import Decoder, Prefix

NEG_INF = -torch.inf


def apply_repetition_penalty(scores: Tensor, is_used: Tensor, penalty: float) -> Tensor:
    """Divide positive and multiply negative scores (R, C) of used codes, `is_used` (R, C), by the penalty."""
    penalised = torch.where(scores < 0, scores * penalty, scores / penalty)
    return torch.where(is_used, penalised, scores)


def filter_scores(scores: Tensor, sampling: Sampling, min_kept: int) -> Tensor:
    """Apply temperature, top-k and top-p to scores (R, C); removed codes become minus infinity.

    Args:
        scores: logits or log-probabilities.
        sampling: the settings.
        min_kept: the number of best codes that are never removed.
    """
    scores = scores / sampling.temperature
    if sampling.top_k:
        num_kept = min(max(sampling.top_k, min_kept), scores.shape[-1])
        scores = scores.masked_fill(scores < scores.topk(num_kept).values[..., -1:], NEG_INF)
    if sampling.top_p < 1:
        ascending, order = scores.sort()
        is_excluded = ascending.softmax(-1).cumsum(-1) <= 1 - sampling.top_p
        is_excluded[..., -min_kept:] = False
        scores = scores.masked_fill(is_excluded.scatter(-1, order, is_excluded), NEG_INF)
    return scores


def draw(scores: Tensor, number: int, generator: torch.Generator) -> Tensor:
    """Draw `number` indices from softmax(`scores`) of one row (C,), without replacement: (number,).

    Uses the Gumbel top-k trick (Kool, van Hoof and Welling, "Stochastic Beams and Where to Find Them", 2019).
    The noise is drawn on the CPU, so that a seed gives the same noise on every device.
    """
    noise = -torch.empty(len(scores)).exponential_(generator=generator).log()
    return (scores.log_softmax(-1) + noise.to(scores.device)).topk(number).indices


def prompt_generator(sampling: Sampling, row: int) -> torch.Generator:
    """Return the random generator of one prompt; it does not depend on the rest of the batch."""
    return torch.Generator().manual_seed((sampling.seed * 1_000_003 + row) % 2**63)


UNUSED_BEAM = -1e9  # initial score of all beams but the first: they would be copies of it


@dataclass(frozen=True)
class Hypothesis:
    """A finished sequence of beam search.

    Args:
        codes: (M,), without stop.
        score: sum of processed log-probabilities over length to the power of the length penalty.
        has_stopped: whether the model generated a stop token before the limit.
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
) -> Hypothesis:
    """Return the best hypothesis for one prompt.

    Args:
        decoder: not yet started.
        prefix: of one row.
        is_used: (K, C), codes that the repetition penalty counts as used.
        limit: the largest number of codes.
        sampling: settings.
        generator: for sampling.
        on_step: called with the number of codes so far.
    """
    num_beams, stop = sampling.num_beams, decoder.model.config.stop_mel_token
    scores = decoder.start(prefix.repeat(num_beams))  # (K, C)
    num_codes = scores.shape[1]
    device = scores.device
    codes = torch.empty(num_beams, 0, dtype=torch.long, device=device)
    sums = torch.full((num_beams,), UNUSED_BEAM, device=device)
    sums[0] = 0.0
    finished: list[Hypothesis] = []
    for length in range(1, limit + 1):
        scores = apply_repetition_penalty(scores.log_softmax(-1), is_used, sampling.repetition_penalty)
        if sampling.do_sample:
            scores = filter_scores(scores, sampling, min_kept=2)
        totals = (scores + sums[:, None]).flatten()  # (K * C,)
        candidates = _candidates(totals, num_beams, sampling, generator)
        running = []
        for order, place in enumerate(candidates.tolist()):
            beam, code = divmod(place, num_codes)
            if totals[place] == NEG_INF:
                continue
            if code != stop:
                running.append(place)
            elif order < num_beams:
                score = float(totals[place]) / length**sampling.length_penalty
                finished.append(Hypothesis(codes[beam], score, has_stopped=True))
        finished = sorted(finished, key=lambda hypothesis: -hypothesis.score)[:num_beams]
        running = running[:num_beams]
        if not running:
            break
        running += running[:1] * (num_beams - len(running))  # padding with copies, scored UNUSED_BEAM
        places = torch.tensor(running, device=device)
        beams, chosen = places // num_codes, places % num_codes
        sums = totals[places]
        sums[len(set(running)) :] = UNUSED_BEAM
        codes = torch.cat([codes[beams], chosen[:, None]], dim=1)
        is_used = is_used[beams].scatter(1, chosen[:, None], True)
        on_step(length)
        best_running = float(sums[0]) / length**sampling.length_penalty
        if len(finished) == num_beams and finished[-1].score >= best_running:
            break
        if length == limit:
            finished += [
                Hypothesis(row, float(total) / length**sampling.length_penalty, has_stopped=False)
                for row, total in zip(codes, sums, strict=True)
            ]
            break
        decoder.select_rows(beams)
        scores = decoder.step(chosen)
    return max(finished, key=lambda hypothesis: hypothesis.score)


def _candidates(totals: Tensor, num_beams: int, sampling: Sampling, generator: torch.Generator) -> Tensor:
    """Return the flat indices of the 2K candidate continuations, best first: (2K,)."""
    number = 2 * num_beams
    if not sampling.do_sample:
        return totals.topk(number).indices
    drawn = draw(totals, number, generator)
    return drawn[totals[drawn].argsort(descending=True)]
