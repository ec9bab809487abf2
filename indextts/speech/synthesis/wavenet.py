"""The gated convolutions behind the transformer: the published `wavenet`.

Axes: B rows, D width, T mel frames, L layers.

The key of a layer's convolution has the double `.conv.conv.` of the published file.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from indextts.speech.synthesis.weight_norm import NormedConv1d


class WaveNet(nn.Module):
    """L layers, each a gate with a residual and a share of the result.

    Args:
        dilation_rate: the dilation of layer j is its j-th power.
    """

    def __init__(self, dim: int, num_layers: int, kernel_size: int, dilation_rate: int) -> None:
        super().__init__()
        self.in_layers = nn.ModuleList(
            PaddedConv(dim, 2 * dim, kernel_size, dilation_rate**layer) for layer in range(num_layers)
        )
        self.res_skip_layers = nn.ModuleList(
            PaddedConv(dim, 2 * dim if layer < num_layers - 1 else dim, 1) for layer in range(num_layers)
        )
        self.cond_layer = PaddedConv(dim, 2 * dim * num_layers, 1)

    def forward(self, x: Tensor, is_real: Tensor, time: Tensor) -> Tensor:
        """(B, D, T) to (B, D, T).

        Args:
            is_real: (B, T) or (1, T); the rest becomes zero, but is read as it is by the first layer.
            time: (B, D), the second time embedding.
        """
        mask = is_real[:, None, :]  # (B, 1, T)
        shifts = self.cond_layer(time[:, :, None]).chunk(len(self.in_layers), dim=1)  # L of (B, 2D, 1)
        total = torch.zeros_like(x)
        for in_layer, res_skip_layer, shift in zip(self.in_layers, self.res_skip_layers, shifts, strict=True):
            wave, gate = (in_layer(x) + shift).chunk(2, dim=1)  # (B, D, T) each
            y = res_skip_layer(wave.tanh() * gate.sigmoid())  # (B, 2D, T), of the last layer (B, D, T)
            if y.shape[1] == x.shape[1]:
                total = total + y
            else:
                residual, share = y.chunk(2, dim=1)
                x = (x + residual) * mask
                total = total + share
        return total * mask


class PaddedConv(nn.Module):
    """A convolution as long as its input: beyond the ends it reads the input mirrored."""

    def __init__(self, in_dim: int, out_dim: int, kernel_size: int, dilation: int = 1) -> None:
        super().__init__()
        self.conv = InnerConv(in_dim, out_dim, kernel_size, dilation)
        self.padding = (kernel_size - 1) * dilation

    def forward(self, x: Tensor) -> Tensor:
        """(B, in, T) to (B, out, T)."""
        convolved: Tensor = self.conv(mirrored(x, self.padding))
        return convolved


class InnerConv(nn.Module):
    """Nothing but the second `conv` in the names."""

    def __init__(self, in_dim: int, out_dim: int, kernel_size: int, dilation: int) -> None:
        super().__init__()
        self.conv = NormedConv1d(in_dim, out_dim, kernel_size, dilation=dilation)

    def forward(self, x: Tensor) -> Tensor:
        convolved: Tensor = self.conv(x)
        return convolved


def mirrored(x: Tensor, padding: int) -> Tensor:
    """(..., T) with `padding` samples more, half of them mirrored at each end (the odd one on the left).

    An input too short to be mirrored is made longer by zeros first, which are dropped after.
    """
    right = padding // 2
    left = padding - right
    missing = max(0, left - x.shape[-1] + 1)
    padded = F.pad(F.pad(x, (0, missing)), (left, right), mode="reflect")
    return padded[..., : padded.shape[-1] - missing]
