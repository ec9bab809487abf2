"""First 17 layers of w2v-BERT 2.0: log-mel frames to normalised speech features.

Axes: B clips, T feature vectors (50 per second), W width of two concatenated log-mel frames, H width of a
feature vector.

    pairs of frames (T, W = 160), from log_mel.py
      17 of the 24 layers of w2v-BERT 2.0, then (x - mean) / sqrt(var) with the published statistics

The published extractor pads an odd number of frames with half a pair, which its mask then hides. For
training, T is the sum of that mask: the hidden pair would get a code that represents no sound. The published
inference uses the features of the hidden pair of a reference, so `forward` can return them.

Padding does not change the real positions of a row: the model masks it in attention and reads it as zeros in
its convolutions, which are causal and have no bias.

Importing this module imports `transformers`, which takes seconds.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from transformers import Wav2Vec2BertConfig, Wav2Vec2BertModel

from indextts.errors import UserError
from indextts.features import log_mel
from indextts.features.backend import to_device
from indextts.features.weights import fill_weights
from indextts.models.checkpoint import read_file, read_weights
from indextts.system.yaml_files import read_section

NUM_LAYERS = 17
HUB_NAME = "facebook/w2v-bert-2.0"
FILES = ("config.json", "preprocessor_config.json", "model.safetensors")
ADVICE = f"use the folder of {HUB_NAME} with {', '.join(FILES)} as published"
# Tensors of the published file that do not affect the output of layer 17.
UNUSED = re.compile(r"encoder\.layers\.(1[7-9]|[2-9]\d)\.|masked_spec_embed$|adapter\.|intermediate_ffn\.")
SETTINGS = (  # keys of config.json that change the features, not only the shapes
    "num_hidden_layers",
    "num_attention_heads",
    "hidden_act",
    "layer_norm_eps",
    "position_embeddings_type",
    "left_max_position_embeddings",
    "right_max_position_embeddings",
)
STATS_ADVICE = "use wav2vec2bert_stats.pt as published with IndexTTS-2"


class SpeechEncoder(nn.Module):
    """Layers and normalisation statistics.

    Args:
        mean, std: (H,), of the output of layer 17.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, model: Wav2Vec2BertModel, mean: Tensor, std: Tensor) -> None:
        super().__init__()
        self.model = model
        self.register_buffer("mean", mean)
        self.register_buffer("std", std)

    @property
    def feature_dim(self) -> int:
        return len(self.mean)

    def forward(self, clips: Sequence[Tensor], num_seen: Sequence[int] | None = None) -> list[Tensor]:
        """Return the normalised features of each clip (T, W), T at least 1: (T, H) each.

        Args:
            num_seen: the number of pairs of each clip that the model sees, at most T; None for all. The
                others have features, and no influence on those of the clip.
        """
        lengths = torch.tensor([len(clip) for clip in clips])
        seen = lengths if num_seen is None else torch.tensor(num_seen)
        padded = pad_sequence(list(clips), batch_first=True)  # (B, T, W)
        is_real = (torch.arange(padded.shape[1]) < seen[:, None]).long()  # (B, T)
        inputs, mask = (to_device(tensor, self.mean.device) for tensor in (padded, is_real))
        states = self.model(input_features=inputs, attention_mask=mask).last_hidden_state
        features = (states - self.mean) / self.std  # (B, T, H)
        return [row[:length] for row, length in zip(features, lengths.tolist(), strict=True)]

    def identity(self) -> str:
        """Return the hex sha256 of everything that the features depend on."""
        settings = {name: getattr(self.model.config, name) for name in SETTINGS}
        digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
        for name, tensor in sorted(self.state_dict().items()):
            digest.update(f"{name} {tuple(tensor.shape)}".encode())
            digest.update(tensor.cpu().contiguous().numpy())
        return digest.hexdigest()


def load_speech_encoder(folder: Path, stats: Path) -> SpeechEncoder:
    """Return the encoder with the weights in `folder`, float32, on the CPU.

    Raises:
        UserError: a file is missing, cannot be read, or does not belong to this encoder.
    """
    config = _load_config(folder)
    _check_extractor(folder)
    with torch.device("meta"):
        model = Wav2Vec2BertModel(config)
    path = folder / "model.safetensors"
    try:
        weights = {name: tensor for name, tensor in read_weights(path).items() if not UNUSED.match(name)}
    except UserError as error:
        raise UserError(f"{error}; {ADVICE}") from None
    fill_weights(model, weights, str(path), ADVICE, torch.device("cpu"))
    mean, std = _load_stats(stats, config.hidden_size)
    encoder = SpeechEncoder(model, mean, std)
    return encoder.requires_grad_(False).eval()


def _load_config(folder: Path) -> Wav2Vec2BertConfig:
    """Return the published configuration, reduced to the layers that are used."""
    path = folder / "config.json"
    wanted = {
        "model_type": Wav2Vec2BertConfig.model_type,
        "position_embeddings_type": "relative_key",
        "feature_projection_input_dim": log_mel.WIDTH,
    }
    content = _read_settings(path, wanted)
    try:
        config = Wav2Vec2BertConfig.from_dict(content)
    except (TypeError, ValueError, StrictDataclassError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{path}: the file is corrupt ({reason}); {ADVICE}") from None
    if config.num_hidden_layers < NUM_LAYERS:
        raise UserError(
            f"{path}: num_hidden_layers is {config.num_hidden_layers}, the codec reads the output of layer "
            f"{NUM_LAYERS}; {ADVICE}"
        )
    config.num_hidden_layers = NUM_LAYERS
    config.add_adapter = False
    # Both only mask random parts during training; without them the model has no weight for masked parts.
    config.mask_time_prob = config.mask_feature_prob = 0.0
    return config


def _check_extractor(folder: Path) -> None:
    """Raise a UserError if the settings of the feature extractor differ from those of log_mel.py."""
    wanted = {
        "sampling_rate": log_mel.SAMPLE_RATE_HZ,
        "stride": log_mel.FRAMES_PER_VECTOR,
        "num_mel_bins": log_mel.NUM_BANDS,
    }
    _read_settings(folder / "preprocessor_config.json", wanted)


def _load_stats(path: Path, dim: int) -> tuple[Tensor, Tensor]:
    """Return mean and standard deviation, (H,) each."""
    content = read_file(path)
    for name in ("mean", "var"):
        tensor = content.get(name)
        shape = tuple(tensor.shape) if isinstance(tensor, Tensor) else None
        if shape != (dim,):
            raise UserError(
                f"{path}: {name} must be a tensor of shape ({dim},), found {shape}; {STATS_ADVICE}"
            )
    mean, var = content["mean"].float(), content["var"].float()
    if not (mean.isfinite().all() and var.isfinite().all() and (var > 0).all()):
        raise UserError(f"{path}: mean or var has invalid values; {STATS_ADVICE}")
    return mean.clone(), var.sqrt()


def _read_settings(path: Path, wanted: Mapping[str, object]) -> dict[str, Any]:
    """Return the object in a JSON file, whose values must be those that are wanted where it has them."""
    content = read_section(dict, path, ADVICE)
    wrong = [
        f"{name} is {content[name]!r}, it must be {value!r}"
        for name, value in wanted.items()
        if content.get(name, value) != value
    ]
    if wrong:
        raise UserError(f"{path}: {'; '.join(wrong)}; {ADVICE}")
    return content
