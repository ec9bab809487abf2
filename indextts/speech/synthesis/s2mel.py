"""From semantic codes and the GPT's latents to a mel spectrogram: the three networks in s2mel.pth.

Axes: M codes, D width of the GPT, H width of a semantic embedding, P mel frames of the prompt, T generated
mel frames, C mel bands, K width of the condition, S width of the style.

    embeddings of the codes (1, M, H) + gpt_layer(latents (1, M, D)) -> content (1, M, H)
    prompt (1, P, K), content stretched by the length regulator (1, T, K) -> condition (1, P + T, K)
      -> flow matching, with the prompt's mel and the speaker's style -> mel (1, C, T)

Length regulator (`length_regulator`), from 50 embeddings per second to mel frames:

    (B, M, H) -> linear (B, K, M) -> nearest (B, K, T) -> 4 x [conv 3, norm, Mish] -> conv 1 -> (B, T, K)

Its norm takes statistics over all channels and positions of a row, so the result depends on the total length.
In a batch every row is stretched to the longest row. Therefore, as published, utterances are processed one at
a time.

Flow matching (`cfm`), by Euler steps with classifier-free guidance:

    x = noise, 0 over the prompt;  for every step of time from 0 to 1:
        x = x + step * ((1 + rate) * velocity - rate * velocity without prompt, style and condition)
        x = 0 over the prompt

The velocity without condition has zeros in place of the condition; its projection still adds the bias.

Names and shapes of the parameters are those of the three parts under `net` in the published s2mel.pth.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from indextts.speech.synthesis.config import FlowConfig, LengthRegulatorSection, S2MelConfig
from indextts.speech.synthesis.dit import DiT


@dataclass(frozen=True)
class SolverSettings:
    """Settings of the flow-matching solver; the defaults are the published ones.

    Args:
        steps: Euler steps; more are slower and more accurate.
        guidance_rate: strength of classifier-free guidance; 0 disables it and halves the time.
        temperature: factor of the noise.
    """

    steps: int = 25
    guidance_rate: float = 0.7
    temperature: float = 1.0


class FlowMatching(nn.Module):
    """The estimator and its solver."""

    def __init__(self, config: FlowConfig) -> None:
        super().__init__()
        self.estimator = DiT(config)

    def forward(
        self, condition: Tensor, prompt: Tensor, style: Tensor, noise: Tensor, settings: SolverSettings
    ) -> Tensor:
        """Return the mel (1, C, P + T), with zeros over the prompt.

        Args:
            condition: (1, P + T, K).
            prompt: (1, C, P), the mel of the prompt.
            style: (1, S).
            noise: (1, C, P + T), normal, before the temperature.
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
            velocities = self.estimator(x.expand(rows, -1, -1), prompt_x, lengths, now, style, condition)
            x = x + step * _guided(velocities, settings.guidance_rate)
            x[:, :, :num_prompt] = 0
            time = time + step
        return x


def _with_zeros(part: Tensor, rows: int) -> Tensor:
    """Append rows of zeros to the single row of `part`."""
    return torch.cat([part, part.new_zeros(rows - 1, *part.shape[1:])])


def _guided(velocities: Tensor, rate: float) -> Tensor:
    """Combine the velocities with and without condition; a single row is returned unchanged."""
    if len(velocities) == 1:
        return velocities
    return (1 + rate) * velocities[:1] - rate * velocities[1:]


class LengthRegulator(nn.Module):
    """The length regulator; see the module docstring."""

    def __init__(self, config: LengthRegulatorSection) -> None:
        super().__init__()
        dim = config.channels
        layers: list[nn.Module] = []
        for _ in config.sampling_ratios:
            layers += [nn.Conv1d(dim, dim, 3, padding=1), nn.GroupNorm(1, dim), nn.Mish()]
        self.model = nn.Sequential(*layers, nn.Conv1d(dim, dim, 1))
        self.content_in_proj = nn.Linear(config.in_channels, dim)
        # In the published file, for discrete input, which the published model does not use.
        self.embedding = nn.Embedding(config.content_codebook_size, dim)
        self.mask_token = nn.Parameter(torch.zeros(1, dim))

    def forward(self, embeddings: Tensor, num_frames: Tensor) -> Tensor:
        """Return frames (B, T, K) for embeddings (B, M, H), T = max(num_frames), at least 1.

        Args:
            num_frames: (B,); later frames of a row are zero.
        """
        length = int(num_frames.max())
        x = self.stretch(embeddings, length)  # (B, K, T)
        x = self.model(x).transpose(1, 2)  # (B, T, K)
        is_real = torch.arange(length, device=x.device) < num_frames[:, None]  # (B, T)
        frames: Tensor = x * is_real[:, :, None]
        return frames

    def stretch(self, embeddings: Tensor, length: int) -> Tensor:
        """Project embeddings (B, M, H) and resample them to `length` by nearest neighbour: (B, K, length)."""
        x = self.content_in_proj(embeddings).transpose(1, 2)  # (B, K, M)
        # integer arithmetic would differ: the published weights were trained with float32 rounding in
        # `nearest`
        return F.interpolate(x, size=length, mode="nearest")


GPT_LAYER_DIMS = (256, 128)


class S2Mel(nn.Module):
    """The three networks in s2mel.pth."""

    def __init__(self, config: S2MelConfig, latent_dim: int) -> None:
        super().__init__()
        self.cfm = FlowMatching(config)
        self.length_regulator = LengthRegulator(config.length_regulator)
        wide, narrow = GPT_LAYER_DIMS
        # as published, without activations in between
        self.gpt_layer = nn.Sequential(
            nn.Linear(latent_dim, wide),
            nn.Linear(wide, narrow),
            nn.Linear(narrow, config.length_regulator.in_channels),
        )

    def content(self, embeddings: Tensor, latents: Tensor) -> Tensor:
        """Return the content (1, M, H) from `embeddings` (1, M, H) and `latents` (1, M, D)."""
        content: Tensor = embeddings + self.gpt_layer(latents)
        return content

    def stretched(self, content: Tensor, num_frames: int) -> Tensor:
        """Return `content` (1, M, H) as a condition for mel frames: (1, num_frames, K)."""
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
        """Return the mel of `content` in the voice of the prompt: (1, C, T), T = `target_frames` of M.

        Args:
            prompt: (1, P, K), the condition from the prompt's own content.
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
    """Return the number of mel frames for codes: 1.72 each as published, although 22050/256/50 is 1.7227."""
    return 43 * num_codes // 25
