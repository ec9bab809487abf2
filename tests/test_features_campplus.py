import pytest
import torch

from indextts.features.campplus import CAMPPlus, CAMPPlusConfig, segment_means
from tests.published_files import randomise


def test_each_segment_becomes_its_mean_and_the_last_may_be_shorter():
    x = torch.cat([torch.full((1, 2, 100), 3.0), torch.arange(50.0).expand(1, 2, 50)], dim=2)
    means = segment_means(x)
    assert means.shape == (1, 2, 150)
    assert means[:, :, :100].eq(3).all()
    assert means[:, :, 100:].eq(24.5).all()


@pytest.fixture(scope="module")
def network() -> CAMPPlus:
    config = CAMPPlusConfig(embedding_size=6, growth_rate=4, bn_size=2, init_channels=8)
    return randomise(CAMPPlus(config), seed=0).eval().requires_grad_(False)


@pytest.mark.parametrize("num_frames", [3, 4, 199, 200, 201, 437])
def test_any_number_of_frames_gives_one_vector(network, num_frames):
    frames = torch.randn(2, num_frames, 80, generator=torch.Generator().manual_seed(0))
    vectors = network(frames)
    assert vectors.shape == (2, 6)
    assert vectors.isfinite().all()
    torch.testing.assert_close(network(frames[1:]), vectors[1:], rtol=1e-4, atol=1e-5)
