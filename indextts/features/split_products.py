"""Linear layers whose float32 products are computed by the float16 units of a GPU.

Axes: N rows, I input width, O output width.

A value is split into two float16 numbers, which hold 22 of the 24 bits of float32 together:

    x = scale * (high + low / 2048)      scale: a power of two per row, so that |high| is at most 1

A product becomes three: high * high + (high * low + low * high) / 2048, each summed in float32. What is left
out, low * low, is below the rounding of float32. A GPU without TensorFloat-32, such as a T4, does eight times
as many float16 as float32 products.
"""

import torch
from torch import Tensor, nn

LOW_SCALE = 2.0**11  # float16 has 11 bits


def split_linear_layers(model: nn.Module) -> int:
    """Replace the linear layers and the convolutions of width 1 in `model`; return their number."""
    num_replaced = 0
    for parent in list(model.modules()):
        for name, layer in parent.named_children():
            if isinstance(layer, nn.Linear):
                setattr(parent, name, SplitLinear(layer.weight, layer.bias))
            elif isinstance(layer, nn.Conv1d) and layer.kernel_size == (1,) and layer.groups == 1:
                setattr(parent, name, SplitPointwise(layer.weight[:, :, 0], layer.bias))
            else:
                continue
            num_replaced += 1
    return num_replaced


class SplitLinear(nn.Module):
    """A linear layer with a split weight, which takes as much memory as in float32.

    Attributes:
        high, low: (I, O), float16.
        scale, bias: (O,), float32; without a bias it is None.
    """

    high: Tensor
    low: Tensor
    scale: Tensor
    bias: Tensor | None

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        high, low, scale = split(weight.detach().float())
        self.register_buffer("high", high.t().contiguous())
        self.register_buffer("low", low.t().contiguous())
        self.register_buffer("scale", scale[:, 0])
        self.register_buffer("bias", None if bias is None else bias.detach())

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., I) to (..., O)."""
        high, low, scale = split(x.flatten(0, -2))
        small = product(high, self.low) + product(low, self.high)
        y = product(high, self.high) + small / LOW_SCALE  # (N, O)
        y = y * scale * self.scale
        if self.bias is not None:
            y = y + self.bias
        return y.view(*x.shape[:-1], -1)


class SplitPointwise(SplitLinear):
    """A convolution of width 1: a linear layer over the channels."""

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, I, T) to (B, O, T)."""
        return super().forward(x.transpose(1, 2)).transpose(1, 2)


def split(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the float16 parts of `x` (N, I), and the scale of each row (N, 1), float32."""
    exponent = torch.frexp(x.abs().amax(dim=-1, keepdim=True)).exponent  # (N, 1)
    scaled = torch.ldexp(x, -exponent)  # exact
    high = scaled.half()
    low = ((scaled - high.float()) * LOW_SCALE).half()
    return high, low, torch.ldexp(torch.ones_like(scaled[:, :1]), exponent)


def product(a: Tensor, b: Tensor) -> Tensor:
    """Return the product of float16 matrices, summed in float32."""
    if a.device.type == "cuda":
        return torch.mm(a, b, out_dtype=torch.float32)
    return a.float() @ b.float()  # the products of float16 numbers are exact in float32
