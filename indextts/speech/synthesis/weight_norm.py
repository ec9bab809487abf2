"""Convolutions and a linear layer with weight normalisation, g v / |v|, under the published parameter names.

The published files use torch's old names `weight_g` and `weight_v`. torch's own implementation with these
names is deprecated, and its successor saves other names.

Axes: B rows, T time.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from indextts.features.semantic_codec import normed_weight


class NormedConv1d(nn.Module):
    """A convolution over time with zero padding."""

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
        """Map (B, in, T) to (B, out, T')."""
        weight = normed_weight(self.weight_g, self.weight_v)
        return F.conv1d(x, weight, self.bias, padding=self.padding, dilation=self.dilation)


class NormedConvTranspose1d(nn.Module):
    """A transposed convolution over time; its weight is (in, out, k), with one norm per input channel."""

    def __init__(self, in_dim: int, out_dim: int, kernel_size: int, stride: int, padding: int) -> None:
        super().__init__()
        self.stride, self.padding = stride, padding
        self.bias = nn.Parameter(torch.zeros(out_dim))
        self.weight_g = nn.Parameter(torch.ones(in_dim, 1, 1))
        self.weight_v = nn.Parameter(torch.randn(in_dim, out_dim, kernel_size))

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, in, T) to (B, out, (T-1) stride + k - 2 padding)."""
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
        """Map (..., in) to (..., out)."""
        return F.linear(x, normed_weight(self.weight_g, self.weight_v), self.bias)
