import pytest
import torch

from indextts.commands.terminal import parse
from indextts.commands.train import Train
from indextts.training.batches import (
    EmotionSource,
    PairDataset,
    Unreadable,
    collate_for,
    collate_padded,
    perturbed,
)
from indextts.training.batches import Sample as TrainingSample
from indextts.training.loading import collate_readable
from indextts.training.run import load_inputs
from tests.tiny_gpt import TINY
from tests.tiny_run import make_tiny_run


@pytest.mark.parametrize("is_packed", [True, False])
def test_an_unreadable_sample_is_named_and_not_replaced(is_packed: bool):
    collate = collate_for(TINY, is_packed=is_packed)
    sample = TrainingSample("a", torch.arange(3), torch.arange(5), torch.zeros(2, 4), torch.zeros(4))
    unreadable = Unreadable("b", "the disk")
    mixed = collate_readable([unreadable, sample], collate)
    assert mixed.batch.num_samples == 1
    assert mixed.ids == ("b", "a")
    assert mixed.unreadable == (unreadable,)
    assert collate_readable([unreadable], collate).batch is None


def test_parts_of_a_padded_batch_keep_its_text_padding():
    """The codes of a row see the padding of its text; nothing sees that of the codes."""
    samples = [
        TrainingSample(str(n), torch.arange(n), torch.arange(2 * n), torch.zeros(2, 4), torch.full((4,), n))
        for n in (5, 2, 3)
    ]
    batch = collate_padded(samples)
    first, second = batch.split(2 * batch.num_positions // 3)
    assert first.text_ids.shape == (2, 5)
    assert first.text_lengths.tolist() == [5, 2]
    assert second.text_ids.tolist() == [[0, 1, 2, 0, 0]]
    assert second.text_lengths.tolist() == [3]
    assert second.codes.tolist() == [[0, 1, 2, 3, 4, 5]]
    assert second.emo_vec.tolist() == [[3, 3, 3, 3]]
    assert [(part.num_samples, part.num_text, part.num_mel) for part in (first, second)] == [
        (2, 6 + 3, 11 + 5),
        (1, 4, 7),
    ]


def test_a_batch_gets_noise_on_its_voices_and_loses_emotion_vectors_at_the_given_probability():
    samples = [
        TrainingSample(str(n), torch.arange(2), torch.arange(3), torch.full((2, 4), float(n)), torch.ones(4))
        for n in range(1000)
    ]
    batch = collate_padded(samples)
    assert perturbed(batch, 0.0, 0.0) is batch
    torch.manual_seed(0)
    changed = perturbed(batch, style_noise=0.01, emotion_dropout=0.3)
    noise = changed.condition - batch.condition
    assert noise.std().item() == pytest.approx(0.01, rel=0.05)
    dropped = changed.emo_vec.eq(0).all(dim=1)
    assert torch.equal(changed.emo_vec[~dropped], batch.emo_vec[~dropped])
    assert 0.26 < dropped.float().mean().item() < 0.34


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> PairDataset:
    run = make_tiny_run(tmp_path_factory.mktemp("batches") / "tiny")
    return load_inputs(parse(Train, run.flags())).train_set


@pytest.mark.parametrize(("target_share", "clip"), [(0.0, "prompt"), (1.0, "target")])
def test_the_emotion_vector_is_that_of_the_chosen_clip_and_the_voice_that_of_the_prompt(
    dataset: PairDataset, target_share: float, clip: str
):
    chosen = dataset.with_emotion(EmotionSource(target_share, seed=0))
    for index in range(len(chosen)):
        pair, sample = chosen.pairs[index], chosen[index]
        store = chosen.stores[pair.features]
        keys = {"prompt": pair.prompt_key, "target": pair.target_key}
        assert sample.emo_vec.tolist() == store.emo_vec(keys[clip]).tolist()
        assert (
            sample.emo_vec.tolist()
            != store.emo_vec(keys["prompt" if clip == "target" else "target"]).tolist()
        )
        assert sample.condition.tolist() == store.condition(pair.prompt_key).tolist()
        assert sample.codes.tolist() == store.codes(pair.target_key).tolist()


def test_mixed_emotion_is_a_function_of_the_pair_with_its_share_of_targets(dataset: PairDataset):
    mixed = dataset.with_emotion(EmotionSource(0.3, seed=0))
    ids = [f"u{number}__u{number + 1}" for number in range(4000)]
    of_target = {id for id in ids if mixed.emotion.is_target(id)}
    assert 0.27 < len(of_target) / len(ids) < 0.33
    assert of_target != {id for id in ids if EmotionSource(0.3, seed=1).is_target(id)}
    for index in (3, 0, 3):  # in any order, again and again
        pair, sample = mixed.pairs[index], mixed[index]
        key = pair.target_key if mixed.emotion.is_target(pair.id) else pair.prompt_key
        assert sample.emo_vec.tolist() == mixed.stores[pair.features].emo_vec(key).tolist()
