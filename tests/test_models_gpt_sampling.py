"""Tests of the sampling rules against `transformers`, which the published front end uses."""

import math

import pytest
import torch
from transformers import (
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from indextts.commands.sampling_options import Sampling
from indextts.models.gpt.sampling import apply_repetition_penalty, best_codes, draw, gumbel_noise, step_words


@pytest.fixture
def scores():
    return 3 * torch.randn(4, 50, generator=torch.Generator().manual_seed(0))


def test_the_repetition_penalty_matches_transformers(scores):
    used = torch.tensor([[1, 2, 2], [7, 1, 0], [49, 48, 1], [1, 1, 1]])
    is_used = torch.zeros(4, 50, dtype=torch.bool).scatter(1, used, True)
    wanted = RepetitionPenaltyLogitsProcessor(10.0)(used, scores.clone())
    torch.testing.assert_close(apply_repetition_penalty(scores, is_used, 10.0), wanted)


@pytest.mark.parametrize("top_k", [0, 1, 7, 1000])
@pytest.mark.parametrize("top_p", [0.05, 0.8, 1.0])
@pytest.mark.parametrize("min_kept", [1, 2])
def test_the_sampling_filters_match_transformers(scores, top_k, top_p, min_kept):
    wanted = TemperatureLogitsWarper(0.7)(None, scores)
    if top_k:
        wanted = TopKLogitsWarper(top_k, min_tokens_to_keep=min_kept)(None, wanted)
    if top_p < 1:
        wanted = TopPLogitsWarper(top_p, min_tokens_to_keep=min_kept)(None, wanted)
    sampling = Sampling(temperature=0.7, top_k=top_k, top_p=top_p)
    values, codes = best_codes(scores, sampling, min_kept)
    assert (values.diff(dim=1) <= 0)[values[:, 1:].isfinite()].all()  # best first
    found = torch.full_like(scores, -torch.inf).scatter(1, codes, values)
    torch.testing.assert_close(found, wanted)


def test_draws_follow_the_probabilities_without_repetition():
    probabilities = torch.tensor([0.5, 0.3, 0.15, 0.05, 0.0])
    seeds = torch.arange(4000)
    scores, keys = probabilities.log().expand(len(seeds), -1), torch.arange(5).expand(len(seeds), -1)
    drawn = draw(scores, keys, step_words(seeds, torch.tensor(7)), 2)
    assert (drawn[:, 0] != drawn[:, 1]).all()
    shares = torch.bincount(drawn[:, 0], minlength=5) / len(drawn)
    spread = (probabilities * (1 - probabilities) / len(drawn)).sqrt()
    assert ((shares - probabilities).abs() <= 4 * spread).all()
    # the second of a pair: sum over the first of p(first) * p(second) / (1 - p(first))
    p = probabilities.tolist()
    wanted = sum(p[first] * p[1] / (1 - p[first]) for first in (0, 2, 3))
    share = float((drawn[:, 1] == 1).float().mean())
    assert abs(share - wanted) < 4 * math.sqrt(wanted * (1 - wanted) / len(drawn))


@pytest.mark.parametrize("varied", ["seed", "step", "key"])
def test_the_noise_is_independent_along_seeds_steps_and_codes(varied):
    numbers = torch.arange(20_000)
    seeds, keys, step = torch.tensor([3]), numbers[:1, None], torch.tensor(5)
    if varied == "seed":
        noise = gumbel_noise(keys.expand(20_000, 1), step_words(numbers, step))
    elif varied == "step":
        noise = torch.cat([gumbel_noise(keys, step_words(seeds, number)) for number in numbers[:2000]])
    else:
        noise = gumbel_noise(numbers[None], step_words(seeds, step))
    uniform = (-(-noise.flatten().double()).exp()).exp()
    assert 0 < uniform.min() < uniform.max() < 1
    limit = 4 / math.sqrt(len(uniform))
    assert abs(float(uniform.mean()) - 0.5) < limit * math.sqrt(1 / 12)
    assert abs(float(torch.corrcoef(torch.stack([uniform[1:], uniform[:-1]]))[0, 1])) < limit
    shares = torch.bincount((uniform * 10).long(), minlength=10) / len(uniform)
    assert ((shares - 0.1).abs() < limit * 0.3).all()


def test_the_noise_does_not_depend_on_the_batch_or_the_order_of_candidates():
    seeds, keys = torch.tensor([3, 4, 2**63 - 1]), torch.tensor([[1, 5, 9]] * 3)
    together = gumbel_noise(keys, step_words(seeds, torch.tensor(2)))
    assert together.isfinite().all()
    for row in range(3):
        alone = gumbel_noise(keys[[row]].flip(1), step_words(seeds[[row]], torch.tensor(2)))
        assert torch.equal(alone.flip(1), together[[row]])
