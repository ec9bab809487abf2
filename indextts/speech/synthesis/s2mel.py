"""Semantic codes and the GPT's latents to a mel spectrogram: all that s2mel.pth holds.

Axes: M codes, D width of the GPT, H width of a semantic embedding, P mel frames of the prompt, T of what is
said, C mel bands, K width of the condition, S width of the style.

    embeddings of the codes (1, M, H) + gpt_layer(latents (1, M, D)) -> content (1, M, H)
    prompt (1, P, K), content stretched (1, T, K) -> condition (1, P + T, K)
      -> flow matching, with the prompt's mel and the speaker's style -> mel (1, C, T)

One utterance at a time: in a padded batch norms and convolutions would see the padding.

Names and shapes of the parameters are those of the three parts under `net` in the published s2mel.pth.
"""

import torch
from torch import Tensor, nn

from indextts.speech.synthesis.config import S2MelConfig
from indextts.speech.synthesis.flow_matching import FlowMatching, SolverSettings
from indextts.speech.synthesis.length_regulator import LengthRegulator

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
