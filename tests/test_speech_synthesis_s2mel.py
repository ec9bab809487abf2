import numpy as np
import pytest
import torch

from indextts.speech.synthesis.config import FlowConfig
from indextts.speech.synthesis.dit import DiT
from indextts.speech.synthesis.s2mel import FlowMatching, SolverSettings, target_frames
from tests.acoustic_files import S2MEL
from tests.published_files import randomise


def test_target_frames_are_truncated_as_in_the_published_code():
    published = [int(np.float32(1.72) * np.float32(number)) for number in range(1, 1901)]
    assert [target_frames(number) for number in range(1, 1901)] == published


BANDS, WIDTH, STYLE = 80, 16, 12


@pytest.fixture(scope="module")
def flow() -> FlowMatching:
    return randomise(FlowMatching(FlowConfig.model_validate(S2MEL)), seed=0).eval().requires_grad_(False)


def inputs(num_prompt: int, num_frames: int) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(1)
    condition = torch.randn(1, num_frames, WIDTH, generator=generator)
    prompt = torch.randn(1, BANDS, num_prompt, generator=generator)
    style = torch.randn(1, STYLE, generator=generator)
    return condition, prompt, style, torch.randn(1, BANDS, num_frames, generator=generator)


def test_the_prompt_stays_zero_and_the_inputs_unchanged(flow):
    given = inputs(5, 12)
    copies = [tensor.clone() for tensor in given]
    mel = flow(*given, SolverSettings(steps=2))
    assert mel.shape == (1, BANDS, 12)
    assert mel[:, :, :5].eq(0).all()
    assert mel[:, :, 5:].ne(0).all()
    for tensor, before in zip(given, copies, strict=True):
        torch.testing.assert_close(tensor, before, rtol=0, atol=0)


LENGTH = 14


def network(depth: int) -> DiT:
    config = FlowConfig.model_validate(S2MEL | {"DiT": S2MEL["DiT"] | {"depth": depth}})
    return randomise(DiT(config), seed=0).eval().requires_grad_(False)


def dit_inputs(rows: int = 2) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {
        "x": torch.randn(rows, 80, LENGTH, generator=generator),
        "prompt_x": torch.randn(rows, 80, LENGTH, generator=generator),
        "x_lens": torch.tensor([LENGTH] * rows),
        "t": torch.rand(rows, generator=generator),
        "style": torch.randn(rows, 12, generator=generator),
        "cond": torch.randn(rows, LENGTH, 16, generator=generator),
    }


def test_attention_does_not_read_past_the_length():
    dit, given = network(3), dit_inputs(1)
    h = torch.randn(1, LENGTH, 32, generator=torch.Generator().manual_seed(1))
    is_real = torch.arange(LENGTH)[None] < 9
    other = h.clone()
    other[:, 9:] += 1
    time = dit.t_embedder(given["t"])
    torch.testing.assert_close(
        dit.transformer(other, time, is_real)[:, :9], dit.transformer(h, time, is_real)[:, :9]
    )
