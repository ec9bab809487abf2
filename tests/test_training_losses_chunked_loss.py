"""Tests of indextts/training/losses.py: the loss and gradients of whole scores, in pieces."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from indextts.training import losses as chunked_loss
from indextts.training.losses import head_loss


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
    monkeypatch.setitem(chunked_loss.CHUNK_BYTES, "cpu", 0)  # so MIN_ROWS count: 64, 64 and 22 of 150


@pytest.mark.usefixtures("small_chunks")
def test_loss_hits_and_gradients_are_those_of_whole_scores():
    head, states, targets = head_and_states()
    loss = head_loss(states, head, targets)
    scores = F.linear(states, head.weight, head.bias)
    nats = F.cross_entropy(scores, targets, reduction="none")
    torch.testing.assert_close(loss.position_nats, nats)
    torch.testing.assert_close(loss.nats, nats.sum())
    assert torch.equal(loss.is_hit, scores.argmax(1) == targets)
    inputs = (states, head.weight, head.bias)
    found = torch.autograd.grad(loss.nats / 7, inputs)
    for gradient, wanted in zip(found, torch.autograd.grad(nats.sum() / 7, inputs), strict=True):
        torch.testing.assert_close(gradient, wanted)


@pytest.mark.usefixtures("small_chunks")
def test_under_autocast_products_are_bfloat16_and_losses_float32():
    head, states, targets = head_and_states()
    with torch.autocast("cpu", torch.bfloat16):
        loss = head_loss(states, head, targets)
        nats = F.cross_entropy(head(states).float(), targets, reduction="none")
    assert loss.nats.dtype == loss.position_nats.dtype == torch.float32
    torch.testing.assert_close(loss.position_nats, nats, rtol=0, atol=1e-5)
    found = torch.autograd.grad(loss.nats, (states, head.weight))
    wanted = torch.autograd.grad(nats.sum(), (states, head.weight))
    for gradient, expected in zip(found, wanted, strict=True):
        assert gradient.dtype == torch.float32
        assert (gradient - expected).norm() < 0.01 * expected.norm()


def test_without_gradients_none_are_made():
    head, states, targets = head_and_states()
    with torch.no_grad():
        assert not head_loss(states, head, targets).nats.requires_grad


def test_scores_too_large_for_a_naive_exponential_give_numbers():
    head, states, targets = head_and_states()
    with torch.no_grad():
        head.weight *= 1000
    loss = head_loss(states, head, targets)
    assert loss.nats.isfinite()
    assert all(
        gradient.isfinite().all() for gradient in torch.autograd.grad(loss.nats, (states, head.weight))
    )


def test_no_position_is_no_loss():
    head, states, targets = head_and_states(0)
    assert head_loss(states, head, targets).nats == 0
