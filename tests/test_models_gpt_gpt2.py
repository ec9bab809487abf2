"""Tests of indextts/models/gpt/gpt2.py."""

import pytest
import torch

from indextts.models.gpt.gpt2 import dropout, keep_mask, keep_scale


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_kept_values_are_scaled_and_the_gradient_uses_the_same_mask(dtype: torch.dtype):
    x = torch.ones(1001, dtype=dtype, requires_grad=True)
    dropped = dropout(x, 0.25, training=True)
    assert dropped.dtype == dtype
    assert set(dropped.tolist()) == {0.0, torch.tensor(4 / 3, dtype=dtype).item()}
    (gradient,) = torch.autograd.grad(dropped.sum(), x)
    assert torch.equal(gradient, dropped)


@pytest.mark.parametrize("probability", [0.1, 0.5, 0.9])
def test_the_probability_decides_how_many_values_are_dropped_at_any_position(probability: float):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        kept = keep_mask(torch.Size((4000, 100)), probability).float()
    # 5 standard deviations, over all and for each of the four values that share a random number
    spread = 5 * (probability * (1 - probability)) ** 0.5
    for values in (kept.flatten(), *kept.view(-1, 4).unbind(1)):
        assert abs(values.mean().item() - (1 - probability)) < spread / len(values) ** 0.5
    neighbours = torch.corrcoef(kept.view(-1, 4).T) - torch.eye(4)
    assert neighbours.abs().max() < 5 / (kept.numel() / 4) ** 0.5


def test_the_scale_belongs_to_the_rounded_probability():
    assert 1 / keep_scale(0.1) == pytest.approx(1 - 6554 / 65536, abs=1e-12)


def test_outside_training_or_at_probability_0_dropout_returns_its_input():
    x = torch.randn(3)
    assert dropout(x, 0.5, training=False) is x
    assert dropout(x, 0.0, training=True) is x
