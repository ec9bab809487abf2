import numpy as np
import torch

from indextts.speech.synthesis.config import S2MelConfig
from indextts.speech.synthesis.s2mel import MelTarget, S2Mel, SolverSettings, target_frames
from tests.acoustic_files import S2MEL
from tests.published_files import FEATURE_DIM, randomise


def test_target_frames_are_truncated_as_in_the_published_code():
    published = [int(np.float32(1.72) * np.float32(number)) for number in range(1, 1901)]
    assert [target_frames(number) for number in range(1, 1901)] == published


def test_the_prompt_is_cut_off_the_mel():
    model = randomise(S2Mel(S2MelConfig.model_validate(S2MEL), 24), seed=0).eval().requires_grad_(False)
    generator = torch.Generator().manual_seed(0)
    content = model.content(torch.ones(1, 25, FEATURE_DIM), torch.ones(1, 25, 24))
    prompt = model.stretched(torch.randn(1, 6, FEATURE_DIM, generator=generator), 11)
    assert content.shape == (1, 25, FEATURE_DIM)
    assert prompt.shape == (1, 11, 16)
    target = MelTarget(
        prompt,
        content,
        torch.randn(1, 80, 11, generator=generator),
        torch.randn(1, 12, generator=generator),
        torch.randn(1, 80, 54, generator=generator),
    )
    [mel] = model.mels([target], SolverSettings(steps=2))
    assert mel.shape == (1, 80, 43)
    assert mel.ne(0).all()
