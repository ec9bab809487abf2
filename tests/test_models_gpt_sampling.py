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
from indextts.errors import UserError
from indextts.models.gpt.sampling import apply_repetition_penalty, draw, filter_scores, prompt_generator


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
    torch.testing.assert_close(filter_scores(scores, sampling, min_kept), wanted)


def test_draws_follow_the_probabilities_without_repetition():
    probabilities = torch.tensor([0.5, 0.3, 0.15, 0.05, 0.0])
    generator = torch.Generator().manual_seed(0)
    drawn = torch.stack([draw(probabilities.log(), 2, generator) for _ in range(4000)])
    assert (drawn[:, 0] != drawn[:, 1]).all()
    shares = torch.bincount(drawn[:, 0], minlength=5) / len(drawn)
    spread = (probabilities * (1 - probabilities) / len(drawn)).sqrt()
    assert ((shares - probabilities).abs() <= 4 * spread).all()
    # the second of a pair: sum over the first of p(first) * p(second) / (1 - p(first))
    p = probabilities.tolist()
    wanted = sum(p[first] * p[1] / (1 - p[first]) for first in (0, 2, 3))
    share = float((drawn[:, 1] == 1).float().mean())
    assert abs(share - wanted) < 4 * math.sqrt(wanted * (1 - wanted) / len(drawn))


def test_a_seed_gives_every_prompt_its_own_random_numbers():
    first, again, other = (prompt_generator(Sampling(seed=5), row) for row in (0, 0, 1))
    values = [torch.rand(8, generator=generator) for generator in (first, again, other)]
    assert torch.equal(values[0], values[1])
    assert not torch.equal(values[0], values[2])
    assert prompt_generator(Sampling(seed=2**63 - 1), 3)  # no overflow


@pytest.mark.parametrize("wrong", [{"temperature": 0}, {"top_p": 0}, {"num_beams": 0}, {"seed": -1}])
def test_settings_out_of_bounds_are_refused(wrong):
    with pytest.raises((UserError, ValueError)):
        Sampling(**wrong)
