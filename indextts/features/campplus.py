"""CAM++ speaker vectors: the style of a voice from the log-mel frames of a recording, and their similarity.

Axes: B rows, N log-mel frames (100 per second), M mel bands, T = ceil(N/2) positions after the first
convolution over time, C channels, S width of the vector.

    (B, N, M) -> head: 2-D convolutions, M/8 rows of bands left -> (B, 32 M/8, N)
      -> tdnn (B, C, T) -> 3 blocks of densely connected layers, each followed by a transit layer that halves
         the channels
      -> mean and standard deviation over T -> dense (B, S)

Each layer multiplies its output by a mask, computed from the mean over all positions and the means over
segments of 100 positions.

Parameter names and shapes are those of the published campplus_cn_common.bin.
"""

from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from indextts.features.mel_spectrogram import KALDI_HOP, KALDI_RATE_HZ, KALDI_WINDOW, kaldi_frames
from indextts.features.weights import fill_weights
from indextts.models.checkpoint import read_file

HEAD_CHANNELS = 32
SEGMENT = 100
BLOCKS = ((12, 1), (24, 2), (16, 2))  # layers of a block, and the dilation of their convolutions
KERNEL_SIZE = 3
SAMPLE_RATE_HZ = KALDI_RATE_HZ
MIN_SAMPLES = KALDI_WINDOW + 99 * KALDI_HOP  # 100 frames, about a second


@dataclass(frozen=True)
class CAMPPlusConfig:
    """Sizes; the defaults are those of the published file."""

    feat_dim: int = 80
    embedding_size: int = 192
    growth_rate: int = 32
    bn_size: int = 4
    init_channels: int = 128


class CAMPPlus(nn.Module):
    """CAM++ network."""

    def __init__(self, config: CAMPPlusConfig) -> None:
        super().__init__()
        self.head = Head()
        growth, bottleneck = config.growth_rate, config.bn_size * config.growth_rate
        channels = config.init_channels
        parts: OrderedDict[str, nn.Module] = OrderedDict()
        parts["tdnn"] = FirstConvolution(HEAD_CHANNELS * config.feat_dim // 8, channels)
        for number, (num_layers, dilation) in enumerate(BLOCKS, start=1):
            parts[f"block{number}"] = DenseBlock(channels, num_layers, growth, bottleneck, dilation)
            channels += num_layers * growth
            parts[f"transit{number}"] = Transit(channels, channels // 2)
            channels //= 2
        parts["out_nonlinear"] = _norm(channels)
        parts["stats"] = Statistics()
        parts["dense"] = LastLinear(2 * channels, config.embedding_size)
        self.xvector = nn.Sequential(parts)

    def forward(self, frames: Tensor) -> Tensor:
        """Map frames (B, N, M), N at least 3, each band with mean 0 over the frames, to (B, S)."""
        vector: Tensor = self.xvector(self.head(frames.transpose(1, 2)))
        return vector


class Head(nn.Module):
    """2-D convolutions over bands and frames that halve the number of bands three times."""

    def __init__(self) -> None:
        super().__init__()
        dim = HEAD_CHANNELS
        self.conv1 = nn.Conv2d(1, dim, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(dim)
        self.layer1 = nn.Sequential(ResidualBlock(dim, 2), ResidualBlock(dim, 1))
        self.layer2 = nn.Sequential(ResidualBlock(dim, 2), ResidualBlock(dim, 1))
        self.conv2 = nn.Conv2d(dim, dim, 3, stride=(2, 1), padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(dim)

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, M, N) to (B, 32 M/8, N); the band varies fastest."""
        image = F.relu(self.bn1(self.conv1(x[:, None])))  # (B, 32, M, N)
        image = self.layer2(self.layer1(image))  # (B, 32, M/4, N)
        return F.relu(self.bn2(self.conv2(image))).flatten(1, 2)


class ResidualBlock(nn.Module):
    """Two convolutions and a shortcut; with a stride over the bands the shortcut is a convolution."""

    def __init__(self, dim: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(dim, dim, 3, stride=(stride, 1), padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(dim)
        self.conv2 = nn.Conv2d(dim, dim, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(dim)
        self.shortcut = nn.Sequential()
        if stride > 1:
            around = nn.Conv2d(dim, dim, 1, stride=(stride, 1), bias=False)
            self.shortcut = nn.Sequential(around, nn.BatchNorm2d(dim))

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + self.shortcut(x))


class FirstConvolution(nn.Module):
    """Convolution over time that halves the number of positions."""

    def __init__(self, in_dim: int, out_dim: int) -> None:
        super().__init__()
        self.linear = nn.Conv1d(in_dim, out_dim, 5, stride=2, padding=2, bias=False)
        self.nonlinear = _norm(out_dim)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.nonlinear(self.linear(x))
        return out


class DenseBlock(nn.Module):
    """Layers that each read the outputs of all layers before them, numbered from 1."""

    def __init__(self, channels: int, num_layers: int, growth: int, bottleneck: int, dilation: int) -> None:
        super().__init__()
        for number in range(num_layers):
            layer = DenseLayer(channels + number * growth, growth, bottleneck, dilation)
            self.add_module(f"tdnnd{number + 1}", layer)

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, C, T) to (B, C + layers * growth, T)."""
        for layer in self.children():
            x = torch.cat([x, layer(x)], dim=1)
        return x


class DenseLayer(nn.Module):
    """One layer of a dense block."""

    def __init__(self, channels: int, growth: int, bottleneck: int, dilation: int) -> None:
        super().__init__()
        self.nonlinear1 = _norm(channels)
        self.linear1 = nn.Conv1d(channels, bottleneck, 1, bias=False)
        self.nonlinear2 = _norm(bottleneck)
        self.cam_layer = MaskedConvolution(bottleneck, growth, dilation)

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, C, T) to (B, growth, T)."""
        out: Tensor = self.cam_layer(self.nonlinear2(self.linear1(self.nonlinear1(x))))
        return out


class MaskedConvolution(nn.Module):
    """Convolution with context-aware masking: a mask from the surrounding positions scales its output."""

    def __init__(self, in_dim: int, out_dim: int, dilation: int) -> None:
        super().__init__()
        self.linear_local = nn.Conv1d(
            in_dim, out_dim, KERNEL_SIZE, padding=dilation, dilation=dilation, bias=False
        )
        self.linear1 = nn.Conv1d(in_dim, in_dim // 2, 1)
        self.linear2 = nn.Conv1d(in_dim // 2, out_dim, 1)
        self.sigmoid = nn.Sigmoid()

    def forward(self, x: Tensor) -> Tensor:
        context = x.mean(dim=2, keepdim=True) + segment_means(x)  # (B, in, T)
        mask = self.sigmoid(self.linear2(F.relu(self.linear1(context))))
        masked: Tensor = self.linear_local(x) * mask
        return masked


def segment_means(x: Tensor) -> Tensor:
    """Replace each segment of SEGMENT positions of `x` (B, C, T) with its mean; the last may be shorter."""
    means = F.avg_pool1d(x, SEGMENT, SEGMENT, ceil_mode=True)  # (B, C, ceil(T/SEGMENT))
    return means.repeat_interleave(SEGMENT, dim=2)[:, :, : x.shape[2]]


class Transit(nn.Module):
    """Layer between two blocks that reduces the number of channels."""

    def __init__(self, in_dim: int, out_dim: int) -> None:
        super().__init__()
        self.nonlinear = _norm(in_dim)
        self.linear = nn.Conv1d(in_dim, out_dim, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.linear(self.nonlinear(x))
        return out


class Statistics(nn.Module):
    """Mean and standard deviation over time."""

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, C, T) to (B, 2 C); T is at least 2, since one position has no standard deviation."""
        return torch.cat([x.mean(dim=2), x.std(dim=2)], dim=1)


class LastLinear(nn.Module):
    """Projection to the width of the vector, normalised without affine parameters."""

    def __init__(self, in_dim: int, out_dim: int) -> None:
        super().__init__()
        self.linear = nn.Conv1d(in_dim, out_dim, 1, bias=False)
        norm = nn.BatchNorm1d(out_dim, affine=False)
        self.nonlinear = nn.Sequential(OrderedDict(batchnorm=norm))

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, in) to (B, out)."""
        out: Tensor = self.nonlinear(self.linear(x[:, :, None])[:, :, 0])
        return out


def _norm(channels: int) -> nn.Sequential:
    return nn.Sequential(OrderedDict(batchnorm=nn.BatchNorm1d(channels), relu=nn.ReLU()))


def load_campplus(path: Path, embedding_size: int, device: torch.device) -> CAMPPlus:
    """Return CAM++ with the weights in a campplus_cn_common.bin.

    Raises:
        UserError: the file cannot be read, or a tensor is missing, unexpected or of the wrong shape.
    """
    with torch.device("meta"):
        model = CAMPPlus(CAMPPlusConfig(embedding_size=embedding_size))
    tensors = {name: value for name, value in read_file(path).items() if isinstance(value, Tensor)}
    advice = "use campplus_cn_common.bin of funasr/campplus"
    fill_weights(model, tensors, str(path), advice, device)
    return model


@torch.no_grad()
def style_vector(campplus: CAMPPlus, samples: NDArray[np.float32]) -> Tensor | None:
    """Return the vector of a voice; None for less than a second of audio.

    Args:
        samples: (number of samples,) at SAMPLE_RATE_HZ in [-1, 1].
    """
    if len(samples) < MIN_SAMPLES:
        return None
    device = next(campplus.parameters()).device
    frames = kaldi_frames(torch.from_numpy(samples).to(device))  # (N, M)
    style: Tensor = campplus((frames - frames.mean(dim=0))[None])[0]
    return style


def speaker_similarity(a: Tensor | None, b: Tensor | None) -> float | None:
    """Return the cosine similarity of two style vectors; None if either is None."""
    if a is None or b is None:
        return None
    return float((a / a.norm()) @ (b / b.norm()))  # F.cosine_similarity clamps small norms
