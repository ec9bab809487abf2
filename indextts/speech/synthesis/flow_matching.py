"""Mel spectrograms out of noise, step by step along the direction that a network gives: the published `cfm`.

Axes: T mel frames, P of them the prompt's, C mel bands, K width of the condition, S width of the style.

    x = noise, 0 over the prompt;  for every step of time from 0 to 1:
        x = x + step * ((1 + rate) * direction - rate * direction without prompt, style and condition)
        x = 0 over the prompt

Without condition means zeros in its place, whose projection still adds its bias.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from indextts.speech.synthesis.config import FlowConfig
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
