import torch

from indextts.speech.synthesis.dit import WaveNet, mirrored
from tests.published_files import randomise


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
