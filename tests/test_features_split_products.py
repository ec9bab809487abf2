"""Tests of indextts/features/split_products.py: products of float16 halves are as exact as float32."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from indextts.features.split_products import SplitLinear, SplitPointwise, split, split_linear_layers


def rows(size: float) -> Tensor:
    """Return rows of very different magnitudes: (300, 256)."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(300, 256, generator=generator) * size * torch.logspace(-3, 3, 300)[:, None]


def worst(found: Tensor, exact: Tensor) -> float:
    """Return the largest relative error of a row."""
    return float(((found - exact).norm(dim=-1) / exact.norm(dim=-1)).max())


@pytest.mark.parametrize("size", [1e-6, 1.0, 1e6])
def test_a_split_layer_is_as_exact_as_float32_and_a_float16_layer_is_not(size: float):
    torch.manual_seed(0)
    layer, x = nn.Linear(256, 128, bias=False).requires_grad_(False), rows(size)
    exact = F.linear(x.double(), layer.weight.double())
    assert worst(SplitLinear(layer.weight, None)(x), exact) < 1.5 * worst(layer(x), exact)
    high, _, scale = split(x)
    assert worst(F.linear(high.float() * scale, layer.weight), exact) > 1e-4


def test_linear_layers_and_convolutions_of_width_1_are_replaced_and_the_rest_stays():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv1d(12, 16, 1), nn.Conv1d(16, 16, 3, groups=16, padding=1), nn.Conv1d(16, 12, 1, bias=False)
    )
    head = nn.Sequential(nn.Linear(12, 8), nn.LayerNorm(8))
    x = torch.randn(2, 12, 20)
    expected = head(model(x).transpose(1, 2))
    assert split_linear_layers(model) == 2
    assert split_linear_layers(head) == 1
    assert [type(layer) for layer in model] == [SplitPointwise, nn.Conv1d, SplitPointwise]
    torch.testing.assert_close(head(model(x).transpose(1, 2)), expected, rtol=1e-5, atol=1e-5)
