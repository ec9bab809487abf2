"""The semantic codecs of the published models; `semantic_codec` has the common parts.

Axes: B clips, T feature vectors (50 per second), M codes, H width of a feature.

    base    codes per second    T features become M codes    M codes become features
    2.0     50                  T                            M
    2.5     25                  ceil(T / 2)                  2M, one more than T for an odd T
"""

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from indextts.errors import UserError
from indextts.features.semantic_codec import SemanticCodec, SemanticCodecConfig, real_positions
from indextts.features.weights import fill_weights
from indextts.models.checkpoint import read_weights

FILE_ADVICE = (
    "use the published config.yaml and semantic_codec/model.safetensors of amphion/MaskGCT (IndexTTS-2.0) or "
    "codec.pth of IndexTeam/IndexTTS-2.5"
)


class HalvingCodec(SemanticCodec):
    """The codec of IndexTTS-2.5: one convolution halves the rate, another restores it."""

    def __init__(self, config: SemanticCodecConfig) -> None:
        super().__init__(config)
        self.down = nn.Conv1d(config.hidden_size, config.hidden_size, 3, stride=2, padding=1)
        self.up = nn.Conv1d(config.hidden_size, config.hidden_size, 3, padding=1)

    def num_codes(self, num_features: Tensor) -> Tensor:
        return (num_features + 1) // 2

    def encode(self, features: Tensor, lengths: Tensor | None = None) -> Tensor:
        halved = F.gelu(self.down(_real(features, lengths).mT).mT)  # (B, M, H)
        return super().encode(halved, None if lengths is None else self.num_codes(lengths))

    def decode(self, embeddings: Tensor, lengths: Tensor | None = None) -> Tensor:
        decoded = _real(super().decode(embeddings, lengths), lengths)  # (B, M, H)
        features: Tensor = self.up(decoded.repeat_interleave(2, dim=1).mT).mT  # (B, 2M, H)
        return features


def _real(x: Tensor, lengths: Tensor | None) -> Tensor:
    """Return `x` (B, T, H) with zeros at and after the `lengths` (B,)."""
    return x.masked_fill(~real_positions(x, lengths)[:, :, None], 0.0)


def load_codec(config: SemanticCodecConfig, path: Path) -> SemanticCodec:
    """Return the codec that has the weights of a file, float32, on the CPU.

    Args:
        path: a .safetensors file, or a .pth with the weights under the key `model`; the state of an optimizer
            in a .pth is not read.

    Raises:
        UserError: the file cannot be read, or a tensor is missing, unexpected or has the wrong shape.
    """
    if not path.exists():
        raise UserError(f"{path}: the file does not exist; {FILE_ADVICE}")
    weights = read_weights(path)
    with torch.device("meta"):
        codec = HalvingCodec(config) if "down.weight" in weights else SemanticCodec(config)
    fill_weights(codec, weights, str(path), FILE_ADVICE, torch.device("cpu"))
    return codec
