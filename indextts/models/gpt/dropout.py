"""Dropout whose random numbers do not cost more than the layer around them.

On a CPU torch draws a Bernoulli mask at some 4 ns a value, several times the price of the softmax that the
mask is for. Here one 64-bit draw decides four values: each is dropped if its 16 bits are below p * 65536.
So the probability is rounded to the next 1/65536 (0.1 becomes 0.100006), and the scale is that of the
rounded one: the mean stays exact. Elsewhere torch's own dropout is as fast as memory and is used as it is.

Both draw from torch's default generator: `torch.manual_seed` makes them repeat.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

LEVELS = 65536  # of the 16 bits that decide a value


def dropout(x: Tensor, probability: float, training: bool) -> Tensor:
    """`x` (...) with values dropped with `probability`, the others scaled up; `x` itself if not training."""
    if not training or probability == 0.0:
        return x
    if x.device.type != "cpu":
        return F.dropout(x, probability)
    result: Tensor = _Dropout.apply(x, probability)  # type: ignore[no-untyped-call]
    return result


def draw_kept(shape: torch.Size, probability: float) -> Tensor:
    """1 where a value is kept, 0 where it is dropped: uint8 of `shape`, on the CPU.

    uint8, since a comparison into it and a product with it are vectorised; with bool they are not.
    """
    size = shape.numel()
    words = torch.empty(-(-size // 4), dtype=torch.int64).random_(-(2**63), None)
    bits = words.view(torch.int16)[:size]
    return torch.ge(bits, _threshold(probability), out=torch.empty(size, dtype=torch.uint8)).view(shape)


def kept_scale(probability: float) -> float:
    """What the kept values are multiplied with, so that the mean stays."""
    return LEVELS / (LEVELS // 2 - _threshold(probability))


def _threshold(probability: float) -> int:
    """Signed 16-bit numbers below it are dropped."""
    return round(probability * LEVELS) - LEVELS // 2


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, probability: float) -> Tensor:
        kept = draw_kept(x.shape, probability)
        ctx.save_for_backward(kept)
        ctx.scale = kept_scale(probability)
        return (x * kept).mul_(ctx.scale)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (kept,) = ctx.saved_tensors
        return (gradient * kept).mul_(ctx.scale), None
