import pytest
import torch

from indextts.speech.synthesis.config import FlowConfig
from indextts.speech.synthesis.dit import DiT, mirrored
from tests.acoustic_files import S2MEL
from tests.published_files import randomise

LENGTH = 14


def network(depth: int) -> DiT:
    config = FlowConfig.model_validate(S2MEL | {"DiT": S2MEL["DiT"] | {"depth": depth}})
    return randomise(DiT(config), seed=0).eval().requires_grad_(False)


def inputs(rows: int = 2) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {
        "x": torch.randn(rows, 80, LENGTH, generator=generator),
        "prompt_x": torch.randn(rows, 80, LENGTH, generator=generator),
        "x_lens": torch.tensor([LENGTH] * rows),
        "t": torch.rand(rows, generator=generator),
        "style": torch.randn(rows, 12, generator=generator),
        "cond": torch.randn(rows, LENGTH, 16, generator=generator),
    }


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_every_input_affects_every_band(depth):
    dit, given = network(depth), inputs()
    out = dit(**given)
    assert out.shape == given["x"].shape
    for name in ("x", "prompt_x", "t", "style", "cond"):
        moved = dit(**(given | {name: given[name] + 0.5}))
        assert ((moved - out).abs().amax(dim=(0, 2)) > 1e-5).all(), name


def test_attention_does_not_read_past_the_length():
    dit, given = network(3), inputs(1)
    h = torch.randn(1, LENGTH, 32, generator=torch.Generator().manual_seed(1))
    is_real = torch.arange(LENGTH)[None] < 9
    other = h.clone()
    other[:, 9:] += 1
    time = dit.t_embedder(given["t"])
    torch.testing.assert_close(
        dit.transformer(other, time, is_real)[:, :9], dit.transformer(h, time, is_real)[:, :9]
    )


def test_a_signal_is_mirrored_at_both_ends():
    assert mirrored(torch.tensor([[[1.0, 2, 3, 4]]]), 4).tolist() == [[[3, 2, 1, 2, 3, 4, 3, 2]]]
    assert mirrored(torch.tensor([[[1.0, 2, 3, 4]]]), 3).tolist() == [[[3, 2, 1, 2, 3, 4, 3]]]
    assert mirrored(torch.tensor([[[1.0, 2, 3]]]), 0).tolist() == [[[1, 2, 3]]]


def test_a_signal_too_short_to_be_mirrored_is_padded_with_zeros():
    # 1 2 0, mirrored: 0 2 1 2 0 2 1, less the zero that was appended, taken from the end
    assert mirrored(torch.tensor([[[1.0, 2]]]), 4).tolist() == [[[0, 2, 1, 2, 0, 2]]]
    assert mirrored(torch.tensor([[[1.0]]]), 4).shape == (1, 1, 5)
