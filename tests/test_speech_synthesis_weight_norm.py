import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

from indextts.speech.synthesis.weight_norm import NormedConv1d, NormedConvTranspose1d, NormedLinear


@pytest.mark.parametrize(
    ("ours", "plain", "x"),
    [
        (NormedConv1d(3, 4, 5, dilation=2, padding=4), nn.Conv1d(3, 4, 5, dilation=2, padding=4), (2, 3, 9)),
        (NormedConv1d(3, 4, 1, bias=False), nn.Conv1d(3, 4, 1, bias=False), (2, 3, 9)),
        (NormedConvTranspose1d(4, 2, 8, 4, 2), nn.ConvTranspose1d(4, 2, 8, 4, 2), (2, 4, 9)),
        (NormedLinear(3, 4), nn.Linear(3, 4), (2, 9, 3)),
    ],
)
def test_the_weight_matches_torchs_weight_norm(ours, plain, x):
    generator = torch.Generator().manual_seed(0)
    weights = {name: torch.randn(t.shape, generator=generator) for name, t in ours.state_dict().items()}
    ours.load_state_dict(weights)
    theirs = weight_norm(plain)
    theirs.load_state_dict(weights)  # torch knows the old names
    inputs = torch.randn(x, generator=generator)
    torch.testing.assert_close(ours(inputs), theirs(inputs))
