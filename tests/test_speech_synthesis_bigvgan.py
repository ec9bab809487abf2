import pytest
import torch

from indextts.speech.synthesis.bigvgan import Activation, BigVGAN, Downsampling, Upsampling, low_pass_filter
from indextts.speech.synthesis.config import BigVGANConfig
from tests.acoustic_files import BIGVGAN
from tests.published_files import randomise


def test_the_filter_is_the_published_one():
    taps = [0.0020289647, 0.0093894657, -0.0255434588, -0.0576573834, 0.1285725832, 0.4432097971]
    assert low_pass_filter()[0, 0].tolist() == pytest.approx([*taps, *taps[::-1]], abs=1e-8)


@pytest.mark.parametrize("num_frames", [1, 2, 13])
def test_a_frame_becomes_256_samples_between_minus_one_and_one(num_frames):
    vocoder = randomise(BigVGAN(BigVGANConfig.model_validate(BIGVGAN)), seed=0)
    mel = 100 * torch.randn(2, 80, num_frames, generator=torch.Generator().manual_seed(0))
    samples = vocoder(mel)
    assert samples.shape == (2, 1, 256 * num_frames)
    assert samples.abs().max() == 1.0  # so loud a mel is clipped


def test_batching_does_not_change_the_samples():
    # float64: the sine of large values amplifies the rounding of other batch sizes
    vocoder = randomise(BigVGAN(BigVGANConfig.model_validate(BIGVGAN)), seed=0).double()
    mel = torch.randn(2, 80, 13, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    torch.testing.assert_close(vocoder(mel[1:]), vocoder(mel)[1:], rtol=0, atol=1e-6)


def test_a_slow_wave_survives_upsampling_and_downsampling():
    time = torch.arange(400) / 400
    wave = torch.sin(2 * torch.pi * 10 * time).expand(1, 3, -1)
    doubled = Upsampling()(wave)
    assert doubled.shape == (1, 3, 800)
    torch.testing.assert_close(Downsampling()(doubled)[..., 20:-20], wave[..., 20:-20], rtol=0, atol=0.01)


def test_the_activation_adds_the_square_of_the_sine():
    activation = Activation(2)
    constant = torch.full((1, 2, 60), 0.7)
    expected = 0.7 + torch.sin(torch.tensor(0.7)) ** 2  # both parameters are logarithms of 1
    torch.testing.assert_close(activation(constant), expected.expand(1, 2, 60), rtol=0, atol=1e-5)
