"""BigVGAN v2: sound from a mel spectrogram.

Axes: B rows, C mel bands, T mel frames, R samples per frame (the product of the upsampling rates), N samples
within a stage.

    (B, C, T) -> conv -> for every stage: upsampling, then the mean of residual blocks with different kernels
      -> activation, conv, clamp -> (B, 1, R T) in [-1, 1]

Rows of a padded batch get the samples that they get alone: before every convolution, positions after the end
of a row are zeroed, like the padding of the convolution; before every filter of an activation, they repeat
the last value, like the padding of the filter.

The activation, x + sin(a x)^2 / b with a and b per channel, creates high frequencies. To avoid aliasing it is
computed at twice the rate, followed by a low-pass filter.

Names and shapes of the parameters are those of the published bigvgan_generator.pt, without its weight
normalisation (`without_weight_norm`). Use float32 only: a and b are stored as logarithms, which half
precision rounds too much.
"""

import math
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from indextts.errors import UserError
from indextts.features.mel_spectrogram import MEL_HOP, NUM_MELS
from indextts.features.semantic_codec import without_weight_norm
from indextts.features.weights import fill_weights
from indextts.models.checkpoint import read_file
from indextts.speech.synthesis.config import BIGVGAN_ADVICE, BigVGANConfig, load_bigvgan_config

FILTER_TAPS = 12
CUTOFF = 0.25  # of the doubled rate
HALF_WIDTH = 0.3  # of the transition, as a share of the doubled rate
SNAKE_EPS = 1e-9


class BigVGAN(nn.Module):
    """The generator."""

    def __init__(self, config: BigVGANConfig) -> None:
        super().__init__()
        self.config = config
        channels = config.upsample_initial_channel
        self.conv_pre = nn.Conv1d(config.num_mels, channels, 7, padding=3)
        self.ups = nn.ModuleList()
        self.resblocks = nn.ModuleList()
        for rate, kernel in zip(config.upsample_rates, config.upsample_kernel_sizes, strict=True):
            up = nn.ConvTranspose1d(channels, channels // 2, kernel, rate, (kernel - rate) // 2)
            self.ups.append(nn.Sequential(up))
            channels //= 2
            for size, dilations in zip(
                config.resblock_kernel_sizes, config.resblock_dilation_sizes, strict=True
            ):
                self.resblocks.append(ResidualBlock(channels, size, dilations))
        self.activation_post = Activation(channels)
        self.conv_post = nn.Conv1d(channels, 1, 7, padding=3, bias=False)

    def forward(self, mel: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Map a mel spectrogram (B, C, T) to samples (B, 1, R T) in [-1, 1].

        Args:
            lengths: (B,), real frames of each row; None if all are real.
        """
        x = self.conv_pre(_zeroed(mel, lengths))
        num_blocks = len(self.config.resblock_kernel_sizes)
        for stage, (up, rate) in enumerate(zip(self.ups, self.config.upsample_rates, strict=True)):
            x = up(_zeroed(x, lengths))
            lengths = None if lengths is None else rate * lengths
            total = torch.zeros_like(x)
            for block in self.resblocks[stage * num_blocks : (stage + 1) * num_blocks]:
                total += block(x, lengths)
            x = total / num_blocks
        samples: Tensor = self.conv_post(_zeroed(self.activation_post(x, lengths), lengths))
        return samples.clamp(-1.0, 1.0)


def _zeroed(x: Tensor, lengths: Tensor | None) -> Tensor:
    """Return `x` (B, channels, N) with zeros after the length of each row."""
    if lengths is None:
        return x
    return x * (torch.arange(x.shape[2], device=x.device) < lengths[:, None])[:, None]


def _held(x: Tensor, lengths: Tensor | None) -> Tensor:
    """Return `x` (B, channels, N) with the last real value of each row after its length."""
    if lengths is None:
        return x
    last = x.gather(2, (lengths - 1)[:, None, None].expand(-1, x.shape[1], 1))
    is_real = torch.arange(x.shape[2], device=x.device) < lengths[:, None]  # (B, N)
    return torch.where(is_real[:, None], x, last)


class ResidualBlock(nn.Module):
    """Pairs of convolutions, the first of each dilated, with an activation before each convolution."""

    def __init__(self, channels: int, kernel_size: int, dilations: tuple[int, ...]) -> None:
        super().__init__()
        self.convs1 = nn.ModuleList(_convolution(channels, kernel_size, dilation) for dilation in dilations)
        self.convs2 = nn.ModuleList(_convolution(channels, kernel_size, 1) for _ in dilations)
        self.activations = nn.ModuleList(Activation(channels) for _ in range(2 * len(dilations)))

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Apply to `x` (B, channels, N) with real `lengths` (B,); the shape stays."""
        for number, (first, second) in enumerate(zip(self.convs1, self.convs2, strict=True)):
            y = first(_zeroed(self.activations[2 * number](x, lengths), lengths))
            x = x + second(_zeroed(self.activations[2 * number + 1](y, lengths), lengths))
        return x


class Activation(nn.Module):
    """`SnakeBeta` at twice the rate."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.act = SnakeBeta(channels)
        self.upsample = Upsampling()
        self.downsample = Downsampling()

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Apply to `x` (B, channels, N) with real `lengths` (B,); the shape stays."""
        doubled = self.act(self.upsample(_held(x, lengths)))  # (B, channels, 2 N)
        y: Tensor = self.downsample(_held(doubled, None if lengths is None else 2 * lengths))
        return y


class SnakeBeta(nn.Module):
    """x + sin(a x)^2 / b; the parameters are the logarithms of a and b."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.zeros(channels))
        self.beta = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        """Apply to `x` (B, channels, N); the shape stays."""
        a, b = self.alpha.exp()[:, None], self.beta.exp()[:, None]  # (channels, 1)
        return x + (x * a).sin().square() / (b + SNAKE_EPS)


class Upsampling(nn.Module):
    """Upsampling by 2 with a low-pass filter."""

    filter: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("filter", low_pass_filter())

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, channels, N) to (B, channels, 2 N)."""
        beyond = FILTER_TAPS // 2 - 1
        padded = F.pad(x, (beyond, beyond), mode="replicate")
        channels = x.shape[1]
        one_each = self.filter.expand(channels, -1, -1)
        doubled = 2 * F.conv_transpose1d(padded, one_each, stride=2, groups=channels)
        surplus = 2 * beyond + FILTER_TAPS // 2 - 1
        return doubled[:, :, surplus:-surplus]


class Downsampling(nn.Module):
    """Downsampling by 2 with a low-pass filter."""

    def __init__(self) -> None:
        super().__init__()
        self.lowpass = LowPass()

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, channels, 2 N) to (B, channels, N)."""
        y: Tensor = self.lowpass(x)
        return y


class LowPass(nn.Module):
    """The filter of `Downsampling`; a module of its own because of the published parameter names."""

    filter: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("filter", low_pass_filter())

    def forward(self, x: Tensor) -> Tensor:
        padded = F.pad(x, (FILTER_TAPS // 2 - 1, FILTER_TAPS // 2), mode="replicate")
        channels = x.shape[1]
        return F.conv1d(padded, self.filter.expand(channels, -1, -1), stride=2, groups=channels)


def low_pass_filter() -> Tensor:
    """Return a windowed sinc whose taps sum to 1: (1, 1, FILTER_TAPS)."""
    # Kaiser's formulas for the window of a filter with this number of taps and this transition width
    attenuation_db = 2.285 * (FILTER_TAPS // 2 - 1) * math.pi * 4 * HALF_WIDTH + 7.95
    window = torch.kaiser_window(FILTER_TAPS, periodic=False, beta=0.1102 * (attenuation_db - 8.7))
    time = torch.arange(FILTER_TAPS) - (FILTER_TAPS - 1) / 2
    taps = window * torch.sinc(2 * CUTOFF * time)
    return (taps / taps.sum())[None, None]


def _convolution(channels: int, kernel_size: int, dilation: int) -> nn.Conv1d:
    padding = (kernel_size - 1) * dilation // 2
    return nn.Conv1d(channels, channels, kernel_size, dilation=dilation, padding=padding)


def load_bigvgan(config: Path, path: Path, device: torch.device) -> BigVGAN:
    """Return BigVGAN with the weights under `generator` in a file.

    Raises:
        UserError: a file cannot be read, or has the sizes or the weights of another vocoder.
    """
    with torch.device("meta"):
        model = BigVGAN(load_bigvgan_config(config))
    num_mels, num_samples = model.config.num_mels, math.prod(model.config.upsample_rates)
    if (num_mels, num_samples) != (NUM_MELS, MEL_HOP):
        raise UserError(
            f"{config}: makes {num_samples} samples from a frame of {num_mels} mel bands, but IndexTTS-2 "
            f"needs {MEL_HOP} from {NUM_MELS}; {BIGVGAN_ADVICE}"
        )
    weights = read_file(path).get("generator")
    if not isinstance(weights, dict):
        raise UserError(f"{path}: has no weights under 'generator'; {BIGVGAN_ADVICE}")
    tensors = {name: value for name, value in weights.items() if isinstance(value, Tensor)}
    fill_weights(model, without_weight_norm(tensors), str(path), BIGVGAN_ADVICE, device)
    return model
