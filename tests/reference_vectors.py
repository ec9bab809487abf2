"""Folders of reference vectors: outputs of the published code for given inputs and weights.

    config.yaml            section gpt or semantic_codec as in the published file; loss_weights {text, mel}
    weights.safetensors    every weight by its published name, in any floating-point type
    io.npz                 INPUTS, and results for `conformance`

Widths that the published code fixes are taken from the weights, so that folders of any size can be read.
"""

import zipfile
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from indextts.commands.bases import base_of
from indextts.errors import UserError
from indextts.models.gpt.config import GPTConfig, config_for, load_config
from indextts.models.gpt.generate import Prompt
from indextts.models.gpt.model import GPTBatch, GPTOutput, UnifiedVoice
from indextts.models.gpt.weights import load_model
from indextts.training.losses import LossSums, padded_sums

Arrays = Mapping[str, np.ndarray[Any, Any]]

FILES = ("config.yaml", "weights.safetensors", "io.npz")
INPUTS = frozenset(
    {"feat", "feat_lens", "emo_feat", "emo_feat_lens", "text_ids", "text_lengths", "codes", "code_lengths"}
)
INPUTS_OF_STYLE = frozenset(
    {"style", "lang_ids", "drop_text_ids"}
)  # more inputs, of a base whose condition is the style
BESIDE_A_KIND = ("name", "note", "seed", "version", "constructor", "solver", "stop_mel_token")
CACHED = frozenset({"condition", "emo_vec"})  # results that the training arrays start from


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
    """`gpt`, or the sections that make the folder another kind.

    Raises:
        UserError: there is no readable config.yaml.
    """
    sections = read(folder / "config.yaml", lambda path: yaml.safe_load(path.read_bytes()))
    if not isinstance(sections, dict):
        raise UserError(f"{folder / 'config.yaml'}: holds no sections; give a folder of reference vectors")
    kinds = [str(name) for name in sections if name not in BESIDE_A_KIND]
    if "pattern" in kinds and "languages" in kinds:
        return "tokenizer"
    return next((kind for kind in ("gpt", "s2mel") if kind in kinds), ", ".join(kinds))


def read_vectors(folder: Path) -> Vectors:
    """The complete content of the folder.

    Raises:
        UserError: a file is missing or corrupt, or an input is not in it.
    """
    weights = read(folder / "weights.safetensors", load_file)
    has_style = base_of(weights).condition == "style"
    needed = INPUTS | CACHED if not has_style else INPUTS | {"style", "lang_ids", "emo_vec"}
    arrays = read_arrays(folder / "io.npz", needed)
    content = yaml.safe_load((folder / "config.yaml").read_bytes())
    loss_weights = content.get("loss_weights", {})
    return Vectors(
        config=replace(
            widths_from_weights(load_config(folder / "config.yaml"), weights, folder),
            feature_dim=arrays["feat"].shape[-1],
        ),
        weights={name: tensor.float() for name, tensor in weights.items()},
        arrays=arrays,
        text_weight=loss_weights.get("text", 0.2),
        mel_weight=loss_weights.get("mel", 0.8),
        max_new_tokens=content.get("gen_max_new_tokens"),
    )


def read_arrays(path: Path, needed: Set[str]) -> Arrays:
    """The arrays of an io.npz.

    Raises:
        UserError: the file is missing or corrupt, or an array of `needed` is not in it.
    """
    arrays: Arrays = read(path, lambda path: dict(np.load(path)))
    missing = [name for name in sorted(needed) if name not in arrays]
    if missing:
        raise UserError(f"{path}: no array {', '.join(missing)}; give a complete folder")
    return arrays


def read(path: Path, reader: Callable[[Path], Any]) -> Any:
    try:
        return reader(path)
    except OSError as error:
        raise UserError(
            f"{path}: cannot be read ({error.strerror or error}); a folder needs {', '.join(FILES)}"
        ) from None
    except (ValueError, EOFError, yaml.YAMLError, SafetensorError, zipfile.BadZipFile) as error:
        raise UserError(f"{path}: is corrupt ({' '.join(str(error).split())}); copy it again") from None


def widths_from_weights(config: GPTConfig, weights: Mapping[str, Tensor], folder: Path) -> GPTConfig:
    """The configuration with the widths that the published code fixes taken from the weights."""
    module, config = config.emo_condition_module, config_for(config, weights)
    try:
        depthwise = weights["emo_conditioning_encoder.encoders.0.conv_module.depthwise_conv.weight"]
        layers = {name.split(".")[2] for name in weights if name.startswith("emo_perceiver_encoder.layers.")}
        of_base = (
            {
                "style_dim": weights["spk_emb_proj.weight"].shape[1],
                "num_language_rows": weights["lang_embedding.weight"].shape[0],
            }
            if config.of_base.condition == "style"
            else {"num_latents": weights["perceiver_encoder.latents"].shape[0]}
        )
        return replace(
            config,
            emo_perceiver_dim=weights["emo_perceiver_encoder.norm.gamma"].shape[0],
            perceiver_head_dim=weights["emo_perceiver_encoder.layers.0.0.to_q.weight"].shape[0]
            // module.attention_heads,
            perceiver_depth=len(layers),
            conv_kernel_size=depthwise.shape[2],
            pe_length=weights["emo_conditioning_encoder.embed.pos_enc.pe"].shape[1],
            **of_base,
        )
    except KeyError as error:
        raise UserError(
            f"{folder / 'weights.safetensors'}: no weight {error}; give a complete folder"
        ) from None
