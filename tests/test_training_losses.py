"""Tests of indextts/training/losses.py: masked and chunked cross-entropy, sums and means."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from demo.make_base_checkpoint import random_model
from indextts.models.gpt.model import GPTOutput
from indextts.training import losses
from indextts.training.losses import LossMeans, head_loss, padded_sums
from tests.tiny_gpt import TINY, tiny_batch


def small_output() -> GPTOutput:
    """Two rows; every score equal, except that code 1 wins at the first position of both rows."""
    mel_logits = torch.zeros(2, 3, 4)
    mel_logits[:, 0, 1] = 1.0
    return GPTOutput(
        text_logits=torch.zeros(2, 3, 8, requires_grad=True),
        mel_logits=mel_logits.requires_grad_(),
        text_targets=torch.tensor([[5, 6, 1], [2, 1, 1]]),
        mel_targets=torch.tensor([[1, 3, 3], [2, 3, 3]]),
        text_mask=torch.tensor([[True, True, True], [True, True, False]]),
        mel_mask=torch.tensor([[True, True, False], [True, False, False]]),
    )


def test_every_real_position_weighs_the_same():
    means = padded_sums(small_output(), 6).means()
    log_sum = math.log(3 + math.e)
    assert means == LossMeans(
        text_loss=pytest.approx(math.log(8)),
        mel_loss=pytest.approx((log_sum - 1 + math.log(4) + log_sum) / 3),
        mel_top1=pytest.approx(1 / 3),
        new_text_loss=pytest.approx(math.log(8)),
    )


def test_tokens_of_new_pieces_are_summed_separately():
    output = small_output()
    output.text_logits.data[0, 1, 6] = 2.0
    sums = padded_sums(output, 6)
    assert sums.new_text_tokens == 1
    assert sums.new_text_nats.item() == pytest.approx(math.log(7 + math.exp(2)) - 2)
    assert padded_sums(output, 5).new_text_tokens == 2


def test_masked_positions_have_no_loss_and_no_gradient():
    output = small_output()
    padded_sums(output, 8).text_nats.backward()
    assert not output.text_logits.grad[1, 2].any()


def test_losses_are_torchs_cross_entropy_of_the_counted_positions():
    output = random_model(TINY, seed=0).eval()(tiny_batch())
    means = padded_sums(output, 12).means()
    expected = F.cross_entropy(output.mel_logits[output.mel_mask], output.mel_targets[output.mel_mask])
    assert means.mel_loss == pytest.approx(expected.item(), rel=1e-6)


# --- chunks ---


def head_and_states(num_positions: int = 150) -> tuple[nn.Linear, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    head = nn.Linear(16, 33)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.normal_(0, 0.5, generator=generator)
    states = torch.randn(num_positions, 16, generator=generator).requires_grad_()
    return head, states, torch.randint(33, (num_positions,), generator=generator)


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(losses.CHUNK_BYTES, "cpu", 0)  # so MIN_ROWS count: 64, 64 and 22 of 150


@pytest.mark.usefixtures("small_chunks")
def test_chunks_have_the_loss_hits_and_gradients_of_all_logits():
    head, states, targets = head_and_states()
    total, of_positions, is_hit = head_loss(states, head, targets)
    logits = F.linear(states, head.weight, head.bias)
    nats = F.cross_entropy(logits, targets, reduction="none")
    torch.testing.assert_close(of_positions, nats)
    torch.testing.assert_close(total, nats.sum())
    assert torch.equal(is_hit, logits.argmax(1) == targets)
    inputs = (states, head.weight, head.bias)
    found = torch.autograd.grad(total / 7, inputs)
    for gradient, wanted in zip(found, torch.autograd.grad(nats.sum() / 7, inputs), strict=True):
        torch.testing.assert_close(gradient, wanted)


@pytest.mark.usefixtures("small_chunks")
def test_under_autocast_products_are_bfloat16_and_losses_float32():
    head, states, targets = head_and_states()
    with torch.autocast("cpu", torch.bfloat16):
        total, of_positions, _ = head_loss(states, head, targets)
        nats = F.cross_entropy(head(states).float(), targets, reduction="none")
    assert total.dtype == of_positions.dtype == torch.float32
    torch.testing.assert_close(of_positions, nats, rtol=0, atol=1e-5)
    found = torch.autograd.grad(total, (states, head.weight))
    wanted = torch.autograd.grad(nats.sum(), (states, head.weight))
    for gradient, expected in zip(found, wanted, strict=True):
        assert gradient.dtype == torch.float32
        assert (gradient - expected).norm() < 0.01 * expected.norm()


def test_logits_too_large_for_a_naive_exponential_have_a_finite_loss():
    head, states, targets = head_and_states()
    with torch.no_grad():
        head.weight *= 1000
    total, *_ = head_loss(states, head, targets)
    assert total.isfinite()
    assert all(gradient.isfinite().all() for gradient in torch.autograd.grad(total, (states, head.weight)))
