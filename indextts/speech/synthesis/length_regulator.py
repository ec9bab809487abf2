"""Semantic embeddings at 50 a second, stretched to mel frames: the published `length_regulator`.

Axes: B rows, N embeddings, H their width, T mel frames, C channels.

    (B, N, H) -> linear (B, C, N) -> nearest (B, C, T) -> 4 x [conv 3, norm, Mish] -> conv 1 -> (B, T, C)

The norm takes its statistics over all channels and the whole time of a row, so that the result depends on the
total length, and every row of a batch is stretched to the longest one: the published voice was made one row
at a time, and only so it comes out as published.

Names and shapes of the parameters are those of the published s2mel.pth.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from indextts.speech.synthesis.config import LengthRegulatorSection


class LengthRegulator(nn.Module):
    """The regulator."""

    def __init__(self, config: LengthRegulatorSection) -> None:
        super().__init__()
        dim = config.channels
        layers: list[nn.Module] = []
        for _ in config.sampling_ratios:
            layers += [nn.Conv1d(dim, dim, 3, padding=1), nn.GroupNorm(1, dim), nn.Mish()]
        self.model = nn.Sequential(*layers, nn.Conv1d(dim, dim, 1))
        self.content_in_proj = nn.Linear(config.in_channels, dim)
        # In the published file, but for discrete input, which this model never had.
        self.embedding = nn.Embedding(config.content_codebook_size, dim)
        self.mask_token = nn.Parameter(torch.zeros(1, dim))

    def forward(self, embeddings: Tensor, num_frames: Tensor) -> Tensor:
        """Frames (B, T, C) of embeddings (B, N, H), T = max(num_frames) at least 1.

        Args:
            num_frames: (B,); a row is zero from here on.
        """
        length = int(num_frames.max())
        x = self.stretch(embeddings, length)  # (B, C, T)
        x = self.model(x).transpose(1, 2)  # (B, T, C)
        is_real = torch.arange(length, device=x.device) < num_frames[:, None]  # (B, T)
        frames: Tensor = x * is_real[:, :, None]
        return frames

    def stretch(self, embeddings: Tensor, length: int) -> Tensor:
        """Projected embeddings (B, N, H), repeated or left out to fit `length`: (B, C, length)."""
        x = self.content_in_proj(embeddings).transpose(1, 2)  # (B, C, N)
        # not by integers: where `nearest` rounds in float32, the published weights learned its choice
        return F.interpolate(x, size=length, mode="nearest")
