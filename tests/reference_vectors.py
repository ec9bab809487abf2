"""Folders of reference vectors: outputs of the published code for given inputs and weights.

    config.yaml            section gpt or semantic_codec as in the published file; loss_weights {text, mel}
    weights.safetensors    every weight by its published name, in any floating-point type
    io.npz                 INPUTS, and results for `conformance`

Widths that the published code fixes are taken from the weights, so that folders of any size can be read.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from safetensors.torch import load_file
from torch import Tensor

from indextts.models.gpt.config import GPTConfig, config_for, load_config
from indextts.models.gpt.generate import Prompt
from indextts.models.gpt.model import GPTBatch, GPTOutput, UnifiedVoice
from indextts.models.gpt.weights import load_model
from indextts.training.losses import LossSums, padded_sums

Arrays = Mapping[str, np.ndarray[Any, Any]]

INPUTS = frozenset(
    {"feat", "feat_lens", "emo_feat", "emo_feat_lens", "text_ids", "text_lengths", "codes", "code_lengths"}
)
# more inputs, of a base whose condition is the style
INPUTS_OF_STYLE = frozenset({"style", "lang_ids", "drop_text_ids"})
DEPTHWISE = "emo_conditioning_encoder.encoders.0.conv_module.depthwise_conv.weight"
BESIDE_A_KIND = ("name", "note", "seed", "version", "constructor", "solver", "stop_mel_token")


@dataclass(frozen=True)
class Vectors:
    """One folder: a model with its weights, and the arrays."""

    config: GPTConfig
    weights: dict[str, Tensor]
    arrays: Arrays
    text_weight: float
    mel_weight: float
    max_new_tokens: int | None

    def model(self, config: GPTConfig) -> UnifiedVoice:
        return load_model(config, self.weights, "weights.safetensors").eval()

    def tensor(self, name: str) -> Tensor:
        values = torch.from_numpy(self.arrays[name])
        return values.float() if values.is_floating_point() else values

    @property
    def style(self) -> Tensor | None:
        """The style vectors (B, Z) of a base whose speaker condition they are."""
        return self.tensor("style") if "style" in self.arrays else None

    def batch(self) -> GPTBatch:
        names = ("emo_vec", "text_ids", "text_lengths", "codes", "code_lengths")
        values = {name: self.tensor(name) for name in names}
        if self.style is None:
            return GPTBatch(condition=self.tensor("condition"), **values)
        return GPTBatch(condition=self.style[:, None], **values, languages=self.tensor("lang_ids"))

    def prompt(self, row: int, text_ids: Tensor) -> Prompt:
        """A text with the voice and the language of one clip, alone and without padding."""
        batch = self.batch()
        condition = (
            self.tensor(f"gen_condition_{row}")[0] if batch.languages is None else batch.condition[row]
        )
        language = None if batch.languages is None else int(batch.languages[row])
        return Prompt(condition, batch.emo_vec[row], text_ids, language=language)

    def loss(self, output: GPTOutput) -> tuple[Tensor, LossSums]:
        """The training loss, differentiable, and the sums it is made of."""
        sums = padded_sums(output, self.config.num_text_rows)
        text_loss = sums.text_nats / sums.text_tokens
        mel_loss = sums.mel_nats / sums.mel_tokens
        return self.text_weight * text_loss + self.mel_weight * mel_loss, sums


def folder_kind(folder: Path) -> str:
    """`gpt`, or the sections that make the folder another kind."""
    sections = yaml.safe_load((folder / "config.yaml").read_bytes())
    kinds = [str(name) for name in sections if name not in BESIDE_A_KIND]
    if "pattern" in kinds and "languages" in kinds:
        return "tokenizer"
    return next((kind for kind in ("gpt", "s2mel") if kind in kinds), ", ".join(kinds))


def read_vectors(folder: Path) -> Vectors:
    """The complete content of the folder."""
    weights = load_file(folder / "weights.safetensors")
    arrays = read_arrays(folder)
    content = yaml.safe_load((folder / "config.yaml").read_bytes())
    loss_weights = content.get("loss_weights", {})
    return Vectors(
        config=replace(
            widths_from_weights(load_config(folder / "config.yaml"), weights),
            feature_dim=arrays["feat"].shape[-1],
        ),
        weights={name: tensor.float() for name, tensor in weights.items()},
        arrays=arrays,
        text_weight=loss_weights.get("text", 0.2),
        mel_weight=loss_weights.get("mel", 0.8),
        max_new_tokens=content.get("gen_max_new_tokens"),
    )


def read_arrays(folder: Path) -> Arrays:
    """The arrays of its io.npz."""
    return dict(np.load(folder / "io.npz"))


def widths_from_weights(config: GPTConfig, weights: Mapping[str, Tensor]) -> GPTConfig:
    """The configuration with the widths that the published code fixes taken from the weights."""
    module, config = config.emo_condition_module, config_for(config, weights)
    layers = {name.split(".")[2] for name in weights if name.startswith("emo_perceiver_encoder.layers.")}
    of_base = {"num_latents": "perceiver_encoder.latents"}
    if config.of_base.condition == "style":
        of_base = {"num_language_rows": "lang_embedding.weight"}
        config = replace(config, style_dim=weights["spk_emb_proj.weight"].shape[1])
    queries = weights["emo_perceiver_encoder.layers.0.0.to_q.weight"]
    return replace(
        config,
        emo_perceiver_dim=weights["emo_perceiver_encoder.norm.gamma"].shape[0],
        perceiver_head_dim=queries.shape[0] // module.attention_heads,
        perceiver_depth=len(layers),
        conv_kernel_size=weights[DEPTHWISE].shape[2],
        pe_length=weights["emo_conditioning_encoder.embed.pos_enc.pe"].shape[1],
        **{name: len(weights[of]) for name, of in of_base.items()},
    )
