"""Semantic codes and the GPT's latents to a mel spectrogram: all that s2mel.pth holds.

Axes: M codes, D width of the GPT, H width of a semantic embedding, P mel frames of the prompt, T of what is
said, C mel bands, K width of the condition, S width of the style.

    embeddings of the codes (1, M, H) + gpt_layer(latents (1, M, D)) -> content (1, M, H)
    prompt (1, P, K), content stretched (1, T, K) -> condition (1, P + T, K)
      -> flow matching, with the prompt's mel and the speaker's style -> mel (1, C, T)

One utterance at a time: in a padded batch norms and convolutions would see the padding.

Names and shapes of the parameters are those of the three parts under `net` in the published s2mel.pth.

Mel spectrograms out of noise, step by step along the direction that a network gives: the published `cfm`.

Axes: T mel frames, P of them the prompt's, C mel bands, K width of the condition, S width of the style.

    x = noise, 0 over the prompt;  for every step of time from 0 to 1:
        x = x + step * ((1 + rate) * direction - rate * direction without prompt, style and condition)
        x = 0 over the prompt

Without condition means zeros in its place, whose projection still adds its bias.

Semantic embeddings at 50 a second, stretched to mel frames: the published `length_regulator`.

Axes: B rows, N embeddings, H their width, T mel frames, C channels.

    (B, N, H) -> linear (B, C, N) -> nearest (B, C, T) -> 4 x [conv 3, norm, Mish] -> conv 1 -> (B, T, C)

The norm takes its statistics over all channels and the whole time of a row, so that the result depends on the
total length, and every row of a batch is stretched to the longest one: the published voice was made one row
at a time, and only so it comes out as published.

Names and shapes of the parameters are those of the published s2mel.pth.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from indextts.speech.synthesis.config import FlowConfig, LengthRegulatorSection, S2MelConfig
from indextts.speech.synthesis.dit import DiT


@dataclass(frozen=True)
class SolverSettings:
    """How noise becomes mel; the defaults are the published ones.

    Args:
        steps: more are slower and follow the way more closely.
        guidance_rate: how much is exaggerated what prompt, style and condition change; 0 halves the time.
        temperature: factor of the noise.
    """

    steps: int = 25
    guidance_rate: float = 0.7
    temperature: float = 1.0


class FlowMatching(nn.Module):
    """The network with its solver."""

    def __init__(self, config: FlowConfig) -> None:
        super().__init__()
        self.estimator = DiT(config)

    def forward(
        self, condition: Tensor, prompt: Tensor, style: Tensor, noise: Tensor, settings: SolverSettings
    ) -> Tensor:
        """The mel (1, C, T); zeros over the prompt.

        Args:
            condition: (1, T, K), for the prompt and what follows it.
            prompt: (1, C, P), its mel.
            style: (1, S).
            noise: (1, C, T), normal, before the temperature.
            settings: of the solver.
        """
        num_prompt, num_frames = prompt.shape[2], noise.shape[2]
        rows = 2 if settings.guidance_rate > 0 else 1
        lengths = torch.tensor([num_frames], device=noise.device)
        prompt_x = torch.zeros_like(noise)
        prompt_x[:, :, :num_prompt] = prompt
        prompt_x, style, condition = (_with_zeros(part, rows) for part in (prompt_x, style, condition))
        times = torch.linspace(0, 1, settings.steps + 1)  # on the host, where a loop can read them
        x = noise * settings.temperature
        x[:, :, :num_prompt] = 0
        time = times[0]
        for step in times.diff():
            now = time.to(noise.device).expand(rows)
            directions = self.estimator(x.expand(rows, -1, -1), prompt_x, lengths, now, style, condition)
            x = x + step * _guided(directions, settings.guidance_rate)
            x[:, :, :num_prompt] = 0
            time = time + step
        return x


def _with_zeros(part: Tensor, rows: int) -> Tensor:
    """The one row of `part`, and below it rows of zeros."""
    return torch.cat([part, part.new_zeros(rows - 1, *part.shape[1:])])


def _guided(directions: Tensor, rate: float) -> Tensor:
    """One row from the direction with everything and, where there is a rate, the one without."""
    if len(directions) == 1:
        return directions
    return (1 + rate) * directions[:1] - rate * directions[1:]


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


GPT_LAYER_DIMS = (256, 128)


class S2Mel(nn.Module):
    """The three parts."""

    def __init__(self, config: S2MelConfig, latent_dim: int) -> None:
        super().__init__()
        self.cfm = FlowMatching(config)
        self.length_regulator = LengthRegulator(config.length_regulator)
        wide, narrow = GPT_LAYER_DIMS
        # no activation in between: as published
        self.gpt_layer = nn.Sequential(
            nn.Linear(latent_dim, wide),
            nn.Linear(wide, narrow),
            nn.Linear(narrow, config.length_regulator.in_channels),
        )

    def content(self, embeddings: Tensor, latents: Tensor) -> Tensor:
        """What shall be said (1, M, H), from `embeddings` (1, M, H) and `latents` (1, M, D)."""
        content: Tensor = embeddings + self.gpt_layer(latents)
        return content

    def stretched(self, content: Tensor, num_frames: int) -> Tensor:
        """`content` (1, M, H) as a condition for mel frames: (1, num_frames, K)."""
        condition: Tensor = self.length_regulator(content, torch.tensor([num_frames], device=content.device))
        return condition

    def mel(
        self,
        prompt: Tensor,
        content: Tensor,
        prompt_mel: Tensor,
        style: Tensor,
        noise: Tensor,
        settings: SolverSettings,
    ) -> Tensor:
        """The mel of `content` in the voice of the prompt: (1, C, T), T = `target_frames` of M.

        Args:
            prompt: (1, P, K), the condition that the prompt's own content gives.
            content: (1, M, H), M at least 1.
            prompt_mel: (1, C, P).
            style: (1, S).
            noise: (1, C, P + T), normal.
            settings: of the solver.
        """
        condition = torch.cat([prompt, self.stretched(content, target_frames(content.shape[1]))], dim=1)
        mel: Tensor = self.cfm(condition, prompt_mel, style, noise, settings)
        return mel[:, :, prompt_mel.shape[2] :]


def target_frames(num_codes: int) -> int:
    """Mel frames that codes become: 1.72 for each, though 22050/256/50 would be 1.7227."""
    return 43 * num_codes // 25
