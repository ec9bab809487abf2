"""The networks of the built-in speech backend: from log-mel frames to codes, and from codes to parameters.

Axes: B clips, M codes (25 per second), N = 4 M frames (100 per second), D width, Z size of a centroid, V
values that describe a voice, P parameters of a frame.

    encoder   frames (B, N, bands) -> one vector per code (B, M, Z); the nearest centroid is the code
    decoder   centroids (B, M, Z) and the voice (B, V) -> parameters of the frames (B, N, P)

Both are stacks of ConvNeXt blocks (Liu et al. 2022, "A ConvNet for the 2020s") over time.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

FRAMES_PER_CODE = 4
NUM_BANDS = 128  # of a log-mel frame
ENVELOPE_BANDS = 64
NOISE_BANDS = 3
NUM_PARAMETERS = ENVELOPE_BANDS + NOISE_BANDS + 2  # the last two: whether it is voiced, and the pitch
WIDTH = 256
CENTROID_SIZE = 32
NUM_CODES = 2048
VOICE_SIZE = 2 * NUM_BANDS
VOICE_WIDTH = 64
KERNEL = 7  # positions in time
ENCODER_BLOCKS, DECODER_BLOCKS, FRAME_BLOCKS = 4, 3, 2
CONTEXT_CODES = ENCODER_BLOCKS * (KERNEL // 2)  # before and after a code that its vector depends on


class Block(nn.Module):
    """A convolution over time in each channel, and two layers at each position, beside a shortcut."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.convolution = nn.Conv1d(width, width, KERNEL, padding=KERNEL // 2, groups=width)
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)
        self.scale = nn.Parameter(torch.full((width,), 0.3))  # a training starts near the identity

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, T, D) to (B, T, D)."""
        mixed = self.convolution(x.transpose(1, 2)).transpose(1, 2)
        added: Tensor = self.scale * self.down(F.gelu(self.up(self.norm(mixed))))
        return x + added


class Encoder(nn.Module):
    """Maps normalised log-mel frames to the vectors of codes."""

    def __init__(self) -> None:
        super().__init__()
        self.input = nn.Linear(FRAMES_PER_CODE * NUM_BANDS, WIDTH)
        self.blocks = nn.Sequential(*(Block(WIDTH) for _ in range(ENCODER_BLOCKS)))
        self.norm = nn.LayerNorm(WIDTH)
        self.output = nn.Linear(WIDTH, CENTROID_SIZE)

    def forward(self, frames: Tensor) -> Tensor:
        """Map (B, 4 M, bands) to (B, M, Z)."""
        stacked = frames.reshape(len(frames), -1, FRAMES_PER_CODE * NUM_BANDS)
        vectors: Tensor = self.output(self.norm(self.blocks(self.input(stacked))))
        return vectors


class Decoder(nn.Module):
    """Maps centroids and a voice to the normalised parameters of frames."""

    def __init__(self) -> None:
        super().__init__()
        self.input = nn.Linear(CENTROID_SIZE, WIDTH)
        self.voice = nn.Sequential(
            nn.Linear(VOICE_SIZE, VOICE_WIDTH), nn.GELU(), nn.Linear(VOICE_WIDTH, 2 * WIDTH)
        )
        self.blocks = nn.Sequential(*(Block(WIDTH) for _ in range(DECODER_BLOCKS)))
        self.spread = nn.Linear(WIDTH, 2 * WIDTH)  # two positions of 20 ms for each code
        self.frame_blocks = nn.Sequential(*(Block(WIDTH) for _ in range(FRAME_BLOCKS)))
        self.norm = nn.LayerNorm(WIDTH)
        self.output = nn.Linear(WIDTH, 2 * NUM_PARAMETERS)

    def forward(self, centroids: Tensor, voice: Tensor) -> Tensor:
        """Map (B, M, Z) and (B, V) to (B, 4 M, P)."""
        size = len(centroids)
        scale, shift = self.voice(voice)[:, None].chunk(2, dim=-1)
        x = self.blocks(self.input(centroids) * (1 + scale) + shift)
        x = self.frame_blocks(self.spread(x).reshape(size, -1, WIDTH))
        parameters: Tensor = self.output(self.norm(x))
        return parameters.reshape(size, -1, NUM_PARAMETERS)
