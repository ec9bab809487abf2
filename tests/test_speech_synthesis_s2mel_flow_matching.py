import copy

import pytest
import torch

from indextts.speech.synthesis.config import FlowConfig
from indextts.speech.synthesis.s2mel import FlowMatching, SolverSettings
from tests.acoustic_files import S2MEL
from tests.published_files import randomise

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


def test_without_guidance_the_empty_row_is_not_computed(flow):
    rows = []
    hook = flow.estimator.register_forward_hook(lambda _, given, __: rows.append(len(given[0])))
    flow(*inputs(2, 6), SolverSettings(steps=2, guidance_rate=0.0))
    flow(*inputs(2, 6), SolverSettings(steps=3))
    hook.remove()
    assert rows == [1, 1, 2, 2, 2]


def test_guidance_amplifies_the_effect_of_the_condition(flow):
    flow = copy.deepcopy(flow).double()  # float64, as one and two rows round differently
    condition, prompt, style, noise = (tensor.double() for tensor in inputs(2, 6))
    plain, guided = (
        flow(condition, prompt, style, noise, SolverSettings(steps=1, guidance_rate=rate))
        for rate in (0.0, 0.7)
    )
    without = flow(0 * condition, 0 * prompt, 0 * style, noise, SolverSettings(steps=1, guidance_rate=0.0))
    torch.testing.assert_close(guided, plain + 0.7 * (plain - without), rtol=1e-6, atol=1e-6)


def test_temperature_zero_is_without_noise(flow):
    condition, prompt, style, noise = inputs(2, 6)
    cold = SolverSettings(steps=2, temperature=0.0)
    torch.testing.assert_close(
        flow(condition, prompt, style, noise, cold), flow(condition, prompt, style, -noise, cold)
    )
