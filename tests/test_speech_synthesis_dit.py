import pytest
import torch

from indextts.speech.synthesis.config import FlowConfig
from indextts.speech.synthesis.dit import DiT, WaveNet, mirrored, rotary_table, rotate
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


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_every_input_affects_every_band(depth):
    dit, given = network(depth), inputs()
    out = dit(**given)
    assert out.shape == given["x"].shape
    for name in ("x", "prompt_x", "t", "style", "cond"):
        moved = dit(**(given | {name: given[name] + 0.5}))
        assert ((moved - out).abs().amax(dim=(0, 2)) > 1e-5).all(), name


def test_rows_without_padding_give_the_same_output_as_alone():
    dit = network(3).double()  # float64, as other batch sizes round differently
    given = {name: t.double() if t.is_floating_point() else t for name, t in inputs().items()}
    alone = dit(**{name: tensor[1:] for name, tensor in given.items()})
    torch.testing.assert_close(dit(**given)[1:], alone, rtol=1e-5, atol=1e-6)
    one_length = given | {"x_lens": given["x_lens"][:1]}
    torch.testing.assert_close(dit(**one_length), dit(**given), rtol=0, atol=0)


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


def test_products_of_rotated_vectors_depend_only_on_the_distance():
    generator = torch.Generator().manual_seed(0)
    q, k = torch.randn(8, generator=generator), torch.randn(8, generator=generator)
    table = rotary_table(20, 8, torch.device("cpu"))
    turned_q, turned_k = rotate(q.expand(20, -1), table), rotate(k.expand(20, -1), table)
    products = turned_q @ turned_k.T  # (20, 20)
    for distance in (-3, 0, 7):
        diagonal = products.diagonal(distance)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(products[0, 0], q @ k)


def test_a_signal_is_mirrored_at_both_ends():
    assert mirrored(torch.tensor([[[1.0, 2, 3, 4]]]), 4).tolist() == [[[3, 2, 1, 2, 3, 4, 3, 2]]]
    assert mirrored(torch.tensor([[[1.0, 2, 3, 4]]]), 3).tolist() == [[[3, 2, 1, 2, 3, 4, 3]]]
    assert mirrored(torch.tensor([[[1.0, 2, 3]]]), 0).tolist() == [[[1, 2, 3]]]


def test_a_signal_too_short_to_be_mirrored_is_padded_with_zeros():
    # 1 2 0, mirrored: 0 2 1 2 0 2 1, less the zero that was appended, taken from the end
    assert mirrored(torch.tensor([[[1.0, 2]]]), 4).tolist() == [[[0, 2, 1, 2, 0, 2]]]
    assert mirrored(torch.tensor([[[1.0]]]), 4).shape == (1, 1, 5)


def test_padded_positions_are_zero():
    network = randomise(WaveNet(8, num_layers=3, kernel_size=5, dilation_rate=2), seed=0)
    generator = torch.Generator().manual_seed(0)
    x, time = torch.randn(2, 8, 20, generator=generator), torch.randn(2, 8, generator=generator)
    is_real = torch.arange(20) < torch.tensor([[20], [13]])
    out = network(x, is_real, time)
    assert out.shape == (2, 8, 20)
    assert out[1, :, 13:].eq(0).all()
    assert out[0].ne(0).all()
