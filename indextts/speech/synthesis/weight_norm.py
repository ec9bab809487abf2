"""Convolutions and a linear layer with the weight g v / |v|, by the names of the published files.

They hold `weight_g` and `weight_v` as torch named them before its parametrizations; torch's own module of
that form is deprecated, and its successor saves other names.

Axes: B rows, T time.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from indextts.features.semantic_codec import normed_weight


class NormedConv1d(nn.Module):
    """A convolution over time whose ends read zeros."""

    def __init__(
        self,
        in_dim: int,
        out_dim: int,
        kernel_size: int,
        *,
        dilation: int = 1,
        padding: int = 0,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.dilation, self.padding = dilation, padding
        self.bias = nn.Parameter(torch.zeros(out_dim)) if bias else None
        self.weight_g = nn.Parameter(torch.ones(out_dim, 1, 1))
        self.weight_v = nn.Parameter(torch.randn(out_dim, in_dim, kernel_size))

    def forward(self, x: Tensor) -> Tensor:
        """(B, in, T) to (B, out, T')."""
        weight = normed_weight(self.weight_g, self.weight_v)
        return F.conv1d(x, weight, self.bias, padding=self.padding, dilation=self.dilation)


class NormedConvTranspose1d(nn.Module):
    """A convolution that makes time longer; its weight is (in, out, k): a length per input channel."""

    def __init__(self, in_dim: int, out_dim: int, kernel_size: int, stride: int, padding: int) -> None:
        super().__init__()
        self.stride, self.padding = stride, padding
        self.bias = nn.Parameter(torch.zeros(out_dim))
        self.weight_g = nn.Parameter(torch.ones(in_dim, 1, 1))
        self.weight_v = nn.Parameter(torch.randn(in_dim, out_dim, kernel_size))

    def forward(self, x: Tensor) -> Tensor:
        """(B, in, T) to (B, out, (T-1) stride + k - 2 padding)."""
        weight = normed_weight(self.weight_g, self.weight_v)
        return F.conv_transpose1d(x, weight, self.bias, stride=self.stride, padding=self.padding)


class NormedLinear(nn.Module):
    """A linear layer."""

    def __init__(self, in_dim: int, out_dim: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(out_dim))
        self.weight_g = nn.Parameter(torch.ones(out_dim, 1))
        self.weight_v = nn.Parameter(torch.randn(out_dim, in_dim))

    def forward(self, x: Tensor) -> Tensor:
        """(..., in) to (..., out)."""
        return F.linear(x, normed_weight(self.weight_g, self.weight_v), self.bias)
