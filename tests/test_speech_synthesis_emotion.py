import shutil

import pytest
import torch

from demo.make_base_checkpoint import random_model
from indextts.errors import UserError
from indextts.speech.synthesis.emotion import EMOTIONS, EmotionTable, load_emotions, mix_emotion
from tests.acoustic_files import EMO_NUM, STYLE_DIM, write_acoustic_files
from tests.published_files import GPT
from tests.tiny_gpt import TINY

WIDTH = 4
NONE = [0.0] * 8


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_acoustic_files(tmp_path_factory.mktemp("checkpoints"))


def table() -> EmotionTable:
    """Two rows per emotion: those of emotion i are i + 1 and -(i + 1), of speakers in opposite directions."""
    values = torch.tensor([sign * (emotion + 1.0) for emotion in range(8) for sign in (1, -1)])
    styles = torch.tensor([[1.0, 0.1], [-1.0, 0.1]]).repeat(8, 1)
    return EmotionTable(styles, values[:, None].expand(-1, WIDTH), (2,) * 8)


def only(emotion: str, weight: float) -> list[float]:
    return [weight if name == emotion else 0.0 for name in EMOTIONS]


def test_each_emotion_uses_the_speaker_nearest_in_angle():
    rows = table().nearest_rows(torch.tensor([[50.0, -1.0]]))
    assert rows[:, 0].tolist() == [1, 2, 3, 4, 5, 6, 7, 8]
    rows = table().nearest_rows(torch.tensor([[-0.01, 0.0]]))
    assert rows[:, 0].tolist() == [-1, -2, -3, -4, -5, -6, -7, -8]


def test_alpha_scales_the_weights_to_four_decimals():
    style, emo_vec = torch.tensor([[1.0, 0.0]]), torch.full((1, WIDTH), 10.0)
    blend = table().blend(only("calm", 0.33333), style, emo_vec, alpha=0.5)
    torch.testing.assert_close(blend, torch.full((1, WIDTH), 0.1666 * 8 + (1 - 0.1666) * 10))
    beyond = table().blend(only("calm", 0.5), style, emo_vec, alpha=7.0)
    torch.testing.assert_close(beyond, table().blend(only("calm", 0.5), style, emo_vec))


@pytest.mark.parametrize(
    ("weights", "what"),
    [([0.2] * 8, r"0\.2, 0\.2, .*happy, angry"), (only("happy", -0.1), r"-0\.1, 0, .*happy, angry")],
)
def test_invalid_weights_are_refused(weights, what):
    with pytest.raises(UserError, match=what):
        table().blend(weights, torch.ones(1, 2), torch.zeros(1, WIDTH))


def test_the_published_tables_are_split_into_emotions(folder):
    emotions = load_emotions(folder)
    assert emotions.group_sizes == tuple(EMO_NUM)
    style = emotions.styles[EMO_NUM[0] + EMO_NUM[1]]  # the first of the third emotion
    rows = emotions.nearest_rows(style[None])
    torch.testing.assert_close(rows[2], emotions.vectors[EMO_NUM[0] + EMO_NUM[1]], rtol=0, atol=0)
    assert rows.shape == (8, GPT["model_dim"])


@pytest.mark.parametrize(
    ("name", "content", "what"),
    [
        ("feat1.pt", torch.zeros(15, STYLE_DIM), rf"\(16, {STYLE_DIM}\).*\(15, "),
        ("feat2.pt", torch.full((16, 16), torch.nan), r"\(16, 16\)"),
        ("feat1.pt", {"a": torch.zeros(1)}, "dict"),
    ],
)
def test_tables_that_do_not_fit_are_refused(folder, tmp_path, name, content, what):
    for file in ("config.yaml", "feat1.pt", "feat2.pt"):
        shutil.copy(folder / file, tmp_path)
    torch.save(content, tmp_path / name)
    with pytest.raises(UserError, match=rf"{name}: .*{what}"):
        load_emotions(tmp_path)


def test_alpha_interpolates_to_the_emotion_of_a_second_recording():
    gpt = random_model(TINY, seed=0).eval()
    generator = torch.Generator().manual_seed(0)
    speaker, emotion = (torch.randn(length, TINY.feature_dim, generator=generator) for length in (9, 13))
    own, other = gpt.emotion(speaker[None]), gpt.emotion(emotion[None])
    for alpha in (0.0, 0.6, 1.0):
        torch.testing.assert_close(mix_emotion(gpt, speaker, emotion, alpha), torch.lerp(own, other, alpha))
