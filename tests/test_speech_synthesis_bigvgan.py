import pytest
import torch

from indextts.speech.synthesis.bigvgan import BigVGAN, Downsampling, Upsampling
from indextts.speech.synthesis.config import BigVGANConfig
from tests.acoustic_files import BIGVGAN
from tests.published_files import randomise


@pytest.mark.parametrize("num_frames", [1, 13])
def test_a_frame_becomes_256_samples_between_minus_one_and_one(num_frames):
    vocoder = randomise(BigVGAN(BigVGANConfig.model_validate(BIGVGAN)), seed=0)
    mel = 100 * torch.randn(2, 80, num_frames, generator=torch.Generator().manual_seed(0))
    samples = vocoder(mel)
    assert samples.shape == (2, 1, 256 * num_frames)
    assert samples.abs().max() == 1.0  # so loud a mel is clipped


def test_a_slow_wave_survives_upsampling_and_downsampling():
    time = torch.arange(400) / 400
    wave = torch.sin(2 * torch.pi * 10 * time).expand(1, 3, -1)
    doubled = Upsampling()(wave)
    assert doubled.shape == (1, 3, 800)
    torch.testing.assert_close(Downsampling()(doubled)[..., 20:-20], wave[..., 20:-20], rtol=0, atol=0.01)
