import json
from dataclasses import fields, replace

import pytest
import torch

from benchmarks.workload import PUBLISHED
from demo.make_base_checkpoint import initialise, random_model
from indextts.models.gpt.gpt2 import dropout, keep_mask
from indextts.models.gpt.weights import empty_model
from tests.tiny_gpt import TINY, tiny_batch


def test_every_name_shape_and_type_is_the_published_one(shared):
    published = json.loads((shared / "vectors/published_keys/gpt.json").read_text())
    tensors = empty_model(PUBLISHED).state_dict()
    assert [
        (name, [list(tensor.shape), str(tensor.dtype).removeprefix("torch.")])
        for name, tensor in tensors.items()
    ] == list(published.items())


def test_every_name_and_shape_of_2_5_is_the_published_one(shared):
    published = json.loads((shared / "vectors/published_keys25/gpt.json").read_text())
    assert len(published) == 456
    tensors = empty_model(replace(PUBLISHED, base="2.5", number_text_tokens=60509)).state_dict()
    found = {name: [list(t.shape), str(t.dtype).removeprefix("torch.")] for name, t in tensors.items()}
    assert found == published


def test_the_content_of_padding_changes_nothing():
    model = random_model(TINY, seed=0).eval()
    batch = tiny_batch()
    other = replace(batch, text_ids=batch.text_ids.clone(), codes=batch.codes.clone())
    other.text_ids[1, 2:] = 4
    other.codes[0, 3:] = 2
    output, other_output = model(batch), model(other)
    for field in fields(output):
        expected = getattr(output, field.name)
        torch.testing.assert_close(getattr(other_output, field.name), expected, rtol=0, atol=0)


def test_no_position_depends_on_a_later_position():
    model = random_model(TINY, seed=0).eval()
    batch = tiny_batch()
    changed = replace(batch, codes=batch.codes.clone())
    changed.codes[1, 3] = 2
    output, changed_output = model(batch), model(changed)
    torch.testing.assert_close(changed_output.text_logits, output.text_logits, rtol=0, atol=0)
    is_same = (changed_output.mel_logits == output.mel_logits).all(dim=2)
    assert is_same.tolist() == [[True] * 7, [True] * 4 + [False] * 3]


def test_a_clip_without_real_frames_gives_numbers_and_gradients():
    model = random_model(TINY, seed=0)
    features = torch.randn(1, 9, TINY.feature_dim, generator=torch.Generator().manual_seed(0))
    condition = model.conditioning(features, torch.tensor([1]))
    condition.sum().backward()
    assert condition.isfinite().all()
    gradients = [p.grad for p in model.conditioning_encoder.parameters() if p.grad is not None]
    assert gradients
    assert all(gradient.isfinite().all() for gradient in gradients)


def test_the_same_seed_gives_the_same_model_and_leaves_the_global_random_state_alone():
    state = torch.get_rng_state()
    first, again, other = random_model(TINY, 1), random_model(TINY, 1), random_model(TINY, 2)
    initialise(other, seed=1)
    assert torch.equal(torch.get_rng_state(), state)
    for name, tensor in first.state_dict().items():
        assert tensor.isfinite().all(), name
        assert torch.equal(again.state_dict()[name], tensor), name
        assert torch.equal(other.state_dict()[name], tensor), name
    assert not torch.equal(random_model(TINY, 2).text_embedding.weight, first.text_embedding.weight)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_kept_values_are_scaled_and_the_gradient_uses_the_same_mask(dtype: torch.dtype):
    x = torch.ones(1001, dtype=dtype, requires_grad=True)
    dropped = dropout(x, 0.25, training=True)
    assert dropped.dtype == dtype
    assert set(dropped.tolist()) == {0.0, torch.tensor(4 / 3, dtype=dtype).item()}
    (gradient,) = torch.autograd.grad(dropped.sum(), x)
    assert torch.equal(gradient, dropped)


@pytest.mark.parametrize("probability", [0.1, 0.5, 0.9])
def test_the_probability_decides_how_many_values_are_dropped_at_any_position(probability: float):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        kept = keep_mask(torch.Size((4000, 100)), probability).float()
    # 5 standard deviations, over all and for each of the four values that share a random number
    spread = 5 * (probability * (1 - probability)) ** 0.5
    for values in (kept.flatten(), *kept.view(-1, 4).unbind(1)):
        assert abs(values.mean().item() - (1 - probability)) < spread / len(values) ** 0.5
    neighbours = torch.corrcoef(kept.view(-1, 4).T) - torch.eye(4)
    assert neighbours.abs().max() < 5 / (kept.numel() / 4) ** 0.5
