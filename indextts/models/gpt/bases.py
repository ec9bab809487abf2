"""The parts of the GPT that differ between the published models; `UnifiedVoice` has the common ones.

Axes: B rows, T feature frames, K latents, D model width, Z width of the style vector, N text tokens.
"""

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from indextts.models.gpt.config import GPTConfig
from indextts.models.gpt.encoders import ConformerEncoder, PerceiverResampler
from indextts.models.gpt.model import UnifiedVoice

# The style vector of CAM++ is not normalised, and the two zero rows have no parameters.
NUM_ZERO_ROWS = 2


class LatentVoice(UnifiedVoice):
    """The GPT of IndexTTS-2.0.

    The speaker condition is the latents (K, D) of a speech encoder; two speed rows follow them.
    """

    def add_speaker(self, config: GPTConfig) -> None:
        module = config.condition_module
        self.conditioning_encoder = ConformerEncoder(
            module, config.feature_dim, config.conv_kernel_size, config.pe_length
        )
        self.perceiver_encoder = PerceiverResampler(
            module, config.model_dim, config.num_latents, config.perceiver_head_dim, config.perceiver_depth
        )

    def add_rows(self, config: GPTConfig) -> None:
        self.speed_emb = nn.Embedding(2, config.model_dim)

    def initialise_rows(self, generator: Generator) -> None:
        self.speed_emb.weight.zero_()

    def conditioning(
        self,
        features: Tensor,
        lengths: Tensor | None = None,
        isolate_padding: bool = False,
        style: Tensor | None = None,
    ) -> Tensor:
        states = self.conditioning_encoder(features, lengths, isolate_padding)
        latents: Tensor = self.perceiver_encoder(*states)
        return latents

    def prefix(self, condition: Tensor, emo_vec: Tensor) -> Tensor:
        speed = self.speed_emb.weight.flip(0).expand(len(condition), -1, -1)  # (B, 2, D): row 1, then row 0
        return torch.cat([condition + emo_vec[:, None], speed], dim=1)

    def embed_text(self, inputs: Tensor, positions: Tensor, languages: Tensor | None = None) -> Tensor:
        embedded: Tensor = self.text_embedding(inputs) + self.text_pos_embedding(positions)
        return embedded


class StyleVoice(UnifiedVoice):
    """The GPT of IndexTTS-2.5.

    The speaker condition is the style vector (1, Z) of CAM++; two rows of zeros follow it. Every text
    position, start and stop included, has the row of its language added.
    """

    def add_speaker(self, config: GPTConfig) -> None:
        self.spk_emb_proj = nn.Linear(config.style_dim, config.model_dim)

    def add_rows(self, config: GPTConfig) -> None:
        self.lang_embedding = nn.Embedding(config.num_language_rows, config.model_dim)

    def initialise_rows(self, generator: Generator) -> None:
        self.lang_embedding.weight.normal_(0, 1, generator=generator)

    def conditioning(
        self,
        features: Tensor,
        lengths: Tensor | None = None,
        isolate_padding: bool = False,
        style: Tensor | None = None,
    ) -> Tensor:
        assert style is not None
        return style[:, None]

    def prefix(self, condition: Tensor, emo_vec: Tensor) -> Tensor:
        speaker = self.spk_emb_proj(condition) + emo_vec[:, None]  # (B, 1, D)
        return F.pad(speaker, (0, 0, 0, NUM_ZERO_ROWS))

    def embed_text(self, inputs: Tensor, positions: Tensor, languages: Tensor | None = None) -> Tensor:
        assert languages is not None
        embedded: Tensor = self.text_embedding(inputs) + self.text_pos_embedding(positions)
        language: Tensor = self.lang_embedding(languages)
        return embedded + language


def model_class(config: GPTConfig) -> type[UnifiedVoice]:
    """Return the class of the model that a config describes."""
    return StyleVoice if config.of_base.reads_style else LatentVoice
