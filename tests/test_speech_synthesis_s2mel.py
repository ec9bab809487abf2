"""Tests of indextts/speech/synthesis/s2mel.py and dit.py."""

import copy

import numpy as np
import pytest
import torch

from indextts.speech.synthesis.config import FlowConfig, LengthRegulatorSection
from indextts.speech.synthesis.dit import DiT, mirrored
from indextts.speech.synthesis.s2mel import FlowMatching, LengthRegulator, SolverSettings, target_frames
from tests.acoustic_files import S2MEL
from tests.published_files import FEATURE_DIM, randomise


def test_target_frames_are_truncated_as_in_the_published_code():
    published = [int(np.float32(1.72) * np.float32(number)) for number in range(1, 1901)]
    assert [target_frames(number) for number in range(1, 1901)] == published


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


def test_guidance_amplifies_the_effect_of_the_condition(flow):
    flow = copy.deepcopy(flow).double()  # float64, as one and two rows round differently
    condition, prompt, style, noise = (tensor.double() for tensor in inputs(2, 6))
    plain, guided = (
        flow(condition, prompt, style, noise, SolverSettings(steps=1, guidance_rate=rate))
        for rate in (0.0, 0.7)
    )
    without = flow(0 * condition, 0 * prompt, 0 * style, noise, SolverSettings(steps=1, guidance_rate=0.0))
    torch.testing.assert_close(guided, plain + 0.7 * (plain - without), rtol=1e-6, atol=1e-6)


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


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_every_input_affects_every_band(depth):
    dit, given = network(depth), dit_inputs()
    out = dit(**given)
    assert out.shape == given["x"].shape
    for name in ("x", "prompt_x", "t", "style", "cond"):
        moved = dit(**(given | {name: given[name] + 0.5}))
        assert ((moved - out).abs().amax(dim=(0, 2)) > 1e-5).all(), name


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


def test_a_signal_is_mirrored_at_both_ends():
    assert mirrored(torch.tensor([[[1.0, 2, 3, 4]]]), 4).tolist() == [[[3, 2, 1, 2, 3, 4, 3, 2]]]
    assert mirrored(torch.tensor([[[1.0, 2, 3, 4]]]), 3).tolist() == [[[3, 2, 1, 2, 3, 4, 3]]]
    assert mirrored(torch.tensor([[[1.0, 2, 3]]]), 0).tolist() == [[[1, 2, 3]]]


def test_a_signal_too_short_to_be_mirrored_is_padded_with_zeros():
    # 1 2 0, mirrored: 0 2 1 2 0 2 1, less the zero that was appended, taken from the end
    assert mirrored(torch.tensor([[[1.0, 2]]]), 4).tolist() == [[[0, 2, 1, 2, 0, 2]]]
    assert mirrored(torch.tensor([[[1.0]]]), 4).shape == (1, 1, 5)
