import pytest
import torch

from indextts.speech.synthesis.config import LengthRegulatorSection
from indextts.speech.synthesis.s2mel import LengthRegulator
from tests.acoustic_files import S2MEL
from tests.published_files import FEATURE_DIM, randomise


@pytest.fixture(scope="module")
def regulator() -> LengthRegulator:
    section = LengthRegulatorSection.model_validate(S2MEL["length_regulator"])
    return randomise(LengthRegulator(section), seed=0).requires_grad_(False)


def embeddings(rows: int, length: int) -> torch.Tensor:
    return torch.randn(rows, length, FEATURE_DIM, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(("length", "num_frames"), [(1, 1), (1, 9), (20, 34), (20, 3)])
def test_embeddings_become_the_requested_number_of_frames(regulator, length, num_frames):
    frames = regulator(embeddings(1, length), torch.tensor([num_frames]))
    assert frames.shape == (1, num_frames, 16)
    assert frames.ne(0).all()


def test_a_shorter_row_is_zero_after_its_end(regulator):
    frames = regulator(embeddings(2, 10), torch.tensor([17, 12]))
    assert frames[1, 12:].eq(0).all()
    assert frames[1, :12].ne(0).all()
    assert frames[0].ne(0).all()


def test_stretching_repeats_each_embedding_in_order(regulator):
    stretched = regulator.stretch(embeddings(1, 4), 8)  # (1, C, 8)
    projected = regulator.content_in_proj(embeddings(1, 4)).transpose(1, 2)
    torch.testing.assert_close(stretched, projected.repeat_interleave(2, dim=2), rtol=0, atol=0)
