"""Cross-entropy behind a linear head, in chunks: the scores of all positions never exist at once.

Axes: P positions, D model width, C classes.

The gradients are made in the forward pass, while a chunk's scores are there; nothing of the size of the
scores is kept, and the product with the head's weight is not computed twice. Softmax and loss are float32
whatever the arithmetic of the products.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

# float32 scores of one chunk: big enough for fast products, small enough to stay in a CPU's cache
CHUNK_BYTES = {"cpu": 32 << 20, "cuda": 512 << 20}
MIN_ROWS = 64


@dataclass(frozen=True)
class HeadLoss:
    """Loss of one head.

    Attributes:
        nats: sum of the cross-entropy over all positions, float32, with a gradient.
        position_nats: (P,), float32, without one.
        is_hit: (P,), True where the target had the highest score.
    """

    nats: Tensor
    position_nats: Tensor
    is_hit: Tensor


def head_loss(states: Tensor, head: nn.Linear, targets: Tensor) -> HeadLoss:
    """The loss of `head` on `states` (P, D) with `targets` (P,); products are in the type of autocast."""
    kind = states.device.type
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else states.dtype
    rows = max(MIN_ROWS, CHUNK_BYTES.get(kind, CHUNK_BYTES["cpu"]) // (4 * head.out_features))
    with torch.autocast(kind, enabled=False):
        nats, position_nats, is_hit = _HeadLoss.apply(  # type: ignore[no-untyped-call]
            states, head.weight, head.bias, targets, rows, dtype, torch.is_grad_enabled()
        )
    return HeadLoss(nats, position_nats, is_hit)


class _HeadLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        states: Tensor,
        weight: Tensor,
        bias: Tensor,
        targets: Tensor,
        num_rows: int,
        dtype: torch.dtype,
        needs_gradient: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:
        weight_now, bias_now = weight.to(dtype), bias.to(dtype)
        position_nats = torch.empty(len(states), device=states.device)
        is_hit = torch.empty(len(states), dtype=torch.bool, device=states.device)
        if needs_gradient:
            d_states, d_weight, d_bias = (
                torch.empty_like(states),
                torch.zeros_like(weight),
                torch.zeros_like(bias),
            )
        for start in range(0, len(states), num_rows):
            part = slice(start, start + num_rows)
            chunk, target = states[part].to(dtype), targets[part]
            scores = torch.addmm(bias_now, chunk, weight_now.t()).float()  # (rows, C)
            highest, best = scores.max(dim=1)
            is_hit[part] = best == target
            position_nats[part] = highest - scores.gather(1, target[:, None])[:, 0]
            scores.sub_(highest[:, None]).exp_()
            total = scores.sum(dim=1)
            position_nats[part] += total.log()
            if not needs_gradient:
                continue
            scores.div_(total[:, None])
            scores.scatter_add_(1, target[:, None], torch.full_like(total, -1.0)[:, None])
            d_bias += scores.sum(dim=0)
            d_scores = scores.to(dtype)
            d_states[part] = torch.mm(d_scores, weight_now)
            if dtype == d_weight.dtype:
                d_weight.addmm_(d_scores.t(), chunk)
            else:
                d_weight += torch.mm(d_scores.t(), chunk)
        if needs_gradient:
            ctx.gradients = (d_states, d_weight, d_bias)
        ctx.mark_non_differentiable(position_nats, is_hit)
        return position_nats.sum(), position_nats, is_hit

    @staticmethod
    def backward(
        ctx: Any, gradient: Tensor, _position_nats: Tensor, _is_hit: Tensor
    ) -> tuple[Tensor | None, ...]:
        # made for one backward pass: scaled in place and given away
        d_states, d_weight, d_bias = ctx.gradients
        del ctx.gradients
        return d_states.mul_(gradient), d_weight.mul_(gradient), d_bias.mul_(gradient), None, None, None, None
