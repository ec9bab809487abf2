"""Tests of indextts/training/optim.py: frozen rows, weight decay, clipping, skipped steps."""

from dataclasses import replace

import pytest
import torch

from demo.make_base_checkpoint import random_model
from indextts.errors import UserError
from indextts.models.checkpoint import TEXT_TABLES
from indextts.models.gpt.model import UnifiedVoice
from indextts.training.loop import clip_and_step
from indextts.training.losses import padded_sums
from indextts.training.optim import (
    SkippedSteps,
    TextChoice,
    build_optimizer,
    load_optimizer,
    scale_rates,
    select_trained,
)
from tests.tiny_gpt import TINY, tiny_batch

BASE_SIZE = 8


def backward(model: UnifiedVoice) -> torch.Tensor:
    sums = padded_sums(model(tiny_batch()), BASE_SIZE)
    loss = sums.text_nats + sums.mel_nats
    loss.backward()
    return loss


def step(model: UnifiedVoice, trained, optimizer, learning_rate: float = 1e-2) -> float:
    loss = backward(model)
    return float(clip_and_step(trained, optimizer, learning_rate, max_norm=1.0, loss=loss).norm)


@pytest.fixture
def model() -> UnifiedVoice:
    return random_model(replace(TINY, dropout=0.0), seed=0)


def test_base_rows_stay_bit_identical_with_weight_decay_on_while_new_rows_learn(model: UnifiedVoice):
    before = {name: model.get_parameter(name).detach().clone() for name in TEXT_TABLES}
    trained = select_trained(model, BASE_SIZE)
    optimizer = build_optimizer(trained, weight_decay=0.5)
    for _ in range(20):
        step(model, trained, optimizer)
    for name in TEXT_TABLES:
        now = model.get_parameter(name).detach()
        assert torch.equal(now[:BASE_SIZE], before[name][:BASE_SIZE])
        assert not torch.equal(now[BASE_SIZE:], before[name][BASE_SIZE:])
    trained.check_views()


@pytest.mark.parametrize(("choice", "trained_base"), [("used", {3, 5}), ("all", set(range(BASE_SIZE)))])
def test_chosen_base_rows_learn_at_the_rate_of_the_body_and_the_others_stay_bit_identical(
    model: UnifiedVoice, choice: TextChoice, trained_base: set[int]
):
    before = {name: model.get_parameter(name).detach().clone() for name in TEXT_TABLES}
    trained = select_trained(model, BASE_SIZE, text_choice=choice, used_pieces=[3, 5])
    optimizer = build_optimizer(trained, weight_decay=0.5)
    for is_frozen in (True, False):
        scale_rates(optimizer, 2.0, is_frozen=is_frozen)
        step(model, trained, optimizer)
        moved = {name: (model.get_parameter(name) - before[name]).abs() for name in TEXT_TABLES}
        bias = moved["text_head.bias"]  # a first step of AdamW has the size of the rate
        assert bias[BASE_SIZE:].min() >= 0.0199
        for values in moved.values():
            rows = values.reshape(len(values), -1).amax(dim=1)
            learned = set() if is_frozen else trained_base
            assert {row for row in range(BASE_SIZE) if rows[row] > 0} <= learned
        if not is_frozen:
            assert all(0 < bias[row] < 0.0101 for row in trained_base)
    assert trained.num_frozen == (BASE_SIZE - len(trained_base)) * sum(
        model.get_parameter(name)[0].numel() for name in TEXT_TABLES
    )


@pytest.mark.failure(62)
def test_a_moved_table_is_detected(model: UnifiedVoice):
    trained = select_trained(model, BASE_SIZE)
    model.text_head.weight.data = model.text_head.weight.data.clone()
    with pytest.raises(AssertionError, match=r"text_head\.weight"):
        trained.check_views()


def test_only_matrices_decay(model: UnifiedVoice):
    optimizer = build_optimizer(select_trained(model, BASE_SIZE), weight_decay=0.1)
    names: dict[float, set[str]] = {0.1: set(), 0.0: set()}
    for group in optimizer.param_groups:
        names[group["weight_decay"]] |= set(group["param_names"])
    assert {"text_head.weight", "mel_head.weight", "gpt.h.0.attn.c_attn.weight"} <= names[0.1]
    assert {"text_embedding.weight", "mel_pos_embedding.emb.weight", "speed_emb.weight"} <= names[0.0]
    assert all(name.endswith("weight") and "ln_" not in name for name in names[0.1])


def test_new_rows_train_at_their_own_rate_and_a_frozen_body_does_not_change(model: UnifiedVoice):
    """AdamW's first step moves each value by the rate, whatever its gradient."""
    trained = select_trained(model, BASE_SIZE)
    optimizer = build_optimizer(trained, weight_decay=0.5)
    moved: list[dict[str, float]] = []
    for number in (1, 2, 3):
        before = {name: each.detach().clone() for name, each in trained.parameters.items()}
        scale_rates(optimizer, 10.0, is_frozen=number <= 2)
        step(model, trained, optimizer, learning_rate=1e-5)
        now = {name: each.detach() for name, each in trained.parameters.items()}
        moved.append({name: float((each - before[name]).abs().max()) for name, each in now.items()})
    body = trained.parameters.keys() - set(TEXT_TABLES)
    assert moved[0]["text_head.bias"] == pytest.approx(1e-4, rel=0.01)
    assert all(moves[name] > 0 for moves in moved for name in TEXT_TABLES)
    assert all(moves[name] == 0 for moves in moved[:2] for name in body)
    assert moved[2]["mel_head.bias"] == pytest.approx(1e-5, rel=0.5)


def test_the_norm_is_that_of_the_trained_rows_only(model: UnifiedVoice):
    trained = select_trained(model, BASE_SIZE)
    optimizer = build_optimizer(trained, weight_decay=0.0)
    loss = backward(model)
    trained.collect_gradients()
    expected = torch.stack([p.grad.norm() for p in trained.parameters.values()]).norm()
    done = clip_and_step(trained, optimizer, 1e-3, max_norm=1.0, loss=loss)
    torch.testing.assert_close(done.norm, expected)
    assert float(done.is_skipped) == 0


@pytest.mark.parametrize(
    ("max_norm", "tolerance"), [(0.01, 1e-6), (1e6, 0.0)], ids=["clipped", "not clipped"]
)
def test_clipping_in_the_kernel_equals_clipping_before_it(max_norm: float, tolerance: float):
    found = []
    for is_before in (False, True):
        model = random_model(replace(TINY, dropout=0.0), seed=0)
        trained = select_trained(model, BASE_SIZE)
        optimizer = build_optimizer(trained, weight_decay=0.1)
        loss = backward(model)
        limit = max_norm
        if is_before:
            trained.collect_gradients()
            torch.nn.utils.clip_grad_norm_(trained.parameters.values(), max_norm)
            limit = float("inf")
        clip_and_step(trained, optimizer, 1e-3, max_norm=limit, loss=loss)
        found.append([(each.detach(), optimizer.state[each]) for each in trained.parameters.values()])
    for (weights, moments), (wanted_weights, wanted_moments) in zip(*found, strict=True):
        torch.testing.assert_close(weights, wanted_weights, rtol=tolerance, atol=tolerance * 1e-3)
        for name, moment in moments.items():
            torch.testing.assert_close(moment, wanted_moments[name], rtol=tolerance, atol=0)


@pytest.mark.parametrize("bad", ["gradient", "loss"])
@pytest.mark.failure(48)
def test_a_step_that_is_not_finite_changes_nothing(model: UnifiedVoice, bad: str):
    trained = select_trained(model, BASE_SIZE)
    optimizer = build_optimizer(trained, weight_decay=0.1)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    loss = padded_sums(model(tiny_batch()), BASE_SIZE).mel_nats
    loss.backward()
    if bad == "gradient":
        model.mel_head.bias.grad[0] = float("nan")
    else:
        loss = loss * float("inf")
    model.text_embedding.weight.grad = torch.zeros_like(model.text_embedding.weight)
    model.text_head.weight.grad = torch.zeros_like(model.text_head.weight)
    model.text_head.bias.grad = torch.zeros_like(model.text_head.bias)
    assert float(clip_and_step(trained, optimizer, 1e-2, max_norm=1.0, loss=loss).is_skipped) == 1
    assert all(float(state["step"]) == 0 for state in optimizer.state.values())
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name]), name


def test_moments_are_restored_by_name_even_in_another_order(model: UnifiedVoice):
    trained = select_trained(model, BASE_SIZE)
    optimizer = build_optimizer(trained, weight_decay=0.1)
    step(model, trained, optimizer)
    moments = {name: optimizer.state[parameter] for name, parameter in trained.parameters.items()}

    fresh = build_optimizer(trained, weight_decay=0.2)
    load_optimizer(fresh, trained, dict(reversed(moments.items())))
    for name, parameter in trained.parameters.items():
        for key, value in optimizer.state[parameter].items():
            assert torch.equal(fresh.state[parameter][key], value), name
    assert fresh.param_groups[0]["weight_decay"] == 0.2
    step(model, trained, fresh)
    name = "gpt.h.0.attn.c_attn.weight"
    assert float(moments[name]["step"]) == 1  # what was copied is not shared


@pytest.mark.failure(48)
def test_ten_bad_steps_in_a_row_end_the_run_and_nine_do_not(caplog):
    skipped = SkippedSteps()
    flags = [1.0] * 9 + [0.0] + [1.0] * 9
    for number, flag in enumerate(flags, start=1):
        skipped.note(number, (f"u{number}",), torch.tensor(flag))
        skipped.check()
    assert skipped.total == 18
    assert "step 9:" in caplog.text
    assert "u9" in caplog.text
    skipped.note(20, ("u20",), torch.tensor(1.0))
    with pytest.raises(UserError, match=r"10 steps .* step 20\b") as caught:
        skipped.check()
    assert caught.value.exit_status == 6
