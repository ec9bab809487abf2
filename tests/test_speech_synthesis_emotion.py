import pytest
import torch

from indextts.errors import UserError
from indextts.models.gpt.weights import random_model
from indextts.speech.synthesis.emotion import (
    EMOTIONS,
    EmotionTable,
    heard_emotion,
    load_emotions,
    page_weights,
)
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


def test_of_each_emotion_the_speaker_nearest_in_angle_is_taken():
    rows = table().rows_near(torch.tensor([[50.0, -1.0]]))
    assert rows[:, 0].tolist() == [1, 2, 3, 4, 5, 6, 7, 8]
    rows = table().rows_near(torch.tensor([[-0.01, 0.0]]))
    assert rows[:, 0].tolist() == [-1, -2, -3, -4, -5, -6, -7, -8]


def test_what_the_numbers_leave_is_the_recordings():
    style, heard = torch.tensor([[1.0, 0.0]]), torch.full((1, WIDTH), 10.0)
    blend = table().blend(only("sad", 0.4), style, heard)
    torch.testing.assert_close(blend, torch.full((1, WIDTH), 0.4 * 3 + 0.6 * 10))
    torch.testing.assert_close(table().blend(NONE, style, heard), heard)


def test_alpha_scales_the_numbers_and_is_cut_after_four_digits():
    style, heard = torch.tensor([[1.0, 0.0]]), torch.full((1, WIDTH), 10.0)
    blend = table().blend(only("calm", 0.33333), style, heard, alpha=0.5)
    torch.testing.assert_close(blend, torch.full((1, WIDTH), 0.1666 * 8 + (1 - 0.1666) * 10))
    beyond = table().blend(only("calm", 0.5), style, heard, alpha=7.0)
    torch.testing.assert_close(beyond, table().blend(only("calm", 0.5), style, heard))


@pytest.mark.parametrize(
    ("weights", "what"),
    [
        ([0.1] * 7, "7 emotion weights were given, there must be 8: happy, angry"),
        ([0.2] * 8, "their sum at most 1"),
        (only("happy", -0.1), "each must be from 0 to 1"),
        (only("happy", float("nan")), "each must be from 0 to 1"),
    ],
)
def test_weights_that_are_no_blend_are_refused(weights, what):
    with pytest.raises(UserError, match=what):
        table().blend(weights, torch.ones(1, 2), torch.zeros(1, WIDTH))


def test_the_published_page_biases_the_numbers_and_limits_their_sum():
    assert page_weights(only("happy", 0.4)) == pytest.approx(only("happy", 0.4 * 0.9375))
    assert page_weights(NONE) == NONE
    limited = page_weights([1.0] * 8)
    assert sum(limited) == pytest.approx(0.8)
    assert limited[6] / limited[2] == pytest.approx(0.5625 / 1.0 * 0.6875 / 0.5625)


def test_the_published_tables_are_cut_into_emotions(folder):
    emotions = load_emotions(folder)
    assert emotions.group_sizes == tuple(EMO_NUM)
    style = emotions.styles[EMO_NUM[0] + EMO_NUM[1]]  # the first of the third emotion
    rows = emotions.rows_near(style[None])
    torch.testing.assert_close(rows[2], emotions.vectors[EMO_NUM[0] + EMO_NUM[1]], rtol=0, atol=0)
    assert rows.shape == (8, GPT["model_dim"])


@pytest.mark.parametrize(
    ("name", "content", "what"),
    [
        ("feat1.pt", torch.zeros(15, STYLE_DIM), rf"16 rows of {STYLE_DIM} numbers, found a table of \(15, "),
        ("feat2.pt", torch.zeros(16, 3), r"16 rows of 16 numbers, found a table of \(16, 3\)"),
        ("feat2.pt", torch.full((16, 16), torch.nan), "16 rows of 16 numbers"),
        ("feat1.pt", {"a": torch.zeros(1)}, "holds a dict, expected one tensor"),
        ("feat2.pt", None, "no such file"),
        ("config.yaml", "emo_num: [16]", "emo_num has 1 groups, but there are 8 emotions"),
    ],
)
def test_tables_that_do_not_fit_are_refused(tmp_path, name, content, what):
    folder = write_acoustic_files(tmp_path)
    if name == "config.yaml":
        text = (folder / name).read_text()
        (folder / name).write_text(text.replace("emo_num:", "unused:") + content + "\n")
    elif content is None:
        (folder / name).unlink()
    else:
        torch.save(content, folder / name)
    with pytest.raises(UserError, match=rf"{name}: .*{what}"):
        load_emotions(folder)


def test_a_second_recording_is_heard_as_far_as_alpha():
    gpt = random_model(TINY, seed=0).eval()
    generator = torch.Generator().manual_seed(0)
    speaker, emotion = (torch.randn(length, TINY.feature_dim, generator=generator) for length in (9, 13))
    own, other = gpt.emotion(speaker[None]), gpt.emotion(emotion[None])
    for alpha in (0.0, 0.6, 1.0):
        torch.testing.assert_close(heard_emotion(gpt, speaker, emotion, alpha), torch.lerp(own, other, alpha))
