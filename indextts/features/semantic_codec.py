"""Semantic codec of the published weights (MaskGCT's RepCodec): speech features to codes and back.

Axes: B clips, T feature vectors, M codes, H width of a feature, W width inside, Z width of a codebook row,
K rows of the codebook.

    features (B, T, H) -> encoder (B, M, H) -> in_project (B, M, Z) -> nearest codebook row: codes (B, M)
    codes (B, M) -> codebook rows (B, M, Z) -> out_project: embeddings (B, M, H) -> decoder (B, T, H)

M = T, 50 per second; in `HalvingCodec`, of IndexTTS-2.5, M codes of ceil(T / 2), 25 per second, become 2M
features, one more than T for an odd T. The section `semantic_codec` of the published config.yaml has the
sizes; parameter names and shapes are those of the published files. Encoder and quantizer compute the codes;
the decoder turns embeddings back into features.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
import torch.nn.functional as F
from pydantic import Field, Strict
from torch import Tensor, nn

from indextts.errors import UserError
from indextts.features.weights import fill_weights
from indextts.models.checkpoint import read_weights
from indextts.system.yaml_files import read_section

KERNEL_SIZE = 7
NORM_EPS = 1e-6
CONFIG_ADVICE = "use the config.yaml that was published with IndexTTS-2"
FILE_ADVICE = (
    "use the published config.yaml and semantic_codec/model.safetensors of amphion/MaskGCT (IndexTTS-2.0) or "
    "codec.pth of IndexTeam/IndexTTS-2.5"
)

Count = Annotated[int, Strict(), Field(ge=1)]


@dataclass(frozen=True)
class SemanticCodecConfig:
    """Sizes of the codec, named as in config.yaml: K, H, Z, W, then two of the convolution blocks."""

    codebook_size: Count
    hidden_size: Count
    codebook_dim: Count
    vocos_dim: Count
    vocos_intermediate_dim: Count
    vocos_num_layers: Count


class SemanticCodec(nn.Module):
    """Encoder, decoder and quantizer; `load_codec` returns a codec with weights."""

    def __init__(self, config: SemanticCodecConfig) -> None:
        super().__init__()
        self.config = config
        # Sequential: the published names number the backbone and the linear layer 0 and 1.
        self.encoder = nn.Sequential(Backbone(config), nn.Linear(config.vocos_dim, config.hidden_size))
        self.decoder = nn.Sequential(Backbone(config), nn.Linear(config.vocos_dim, config.hidden_size))
        self.quantizer = ResidualQuantizer(config)

    def num_codes(self, num_features: Tensor) -> Tensor:
        """Return the number of codes of clips with `num_features` (B,) feature vectors: (B,)."""
        return num_features

    def quantize(self, features: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Return the codes of features, int64: (B, M); padding does not change the real positions.

        Args:
            features: (B, T, H); positions at or after a row's length are ignored.
            lengths: (B,), real feature vectors per row; None if all are real.
        """
        codes: Tensor = self.quantizer(self.encode(features, lengths))
        return codes

    def encode(self, features: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Return the quantizer's input: (B, M, H); arguments as for `quantize`."""
        return _apply_half(self.encoder, features, lengths)

    def embed(self, codes: Tensor) -> Tensor:
        """Return the embeddings of codes (..., M): (..., M, H)."""
        return self.quantizer.embed(codes)

    def decode(self, embeddings: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Return the features of embeddings (B, M, H): (B, T, H); `lengths` (B,) counts codes."""
        return _apply_half(self.decoder, embeddings, lengths)


class HalvingCodec(SemanticCodec):
    """The codec of IndexTTS-2.5: one convolution halves the rate, another restores it."""

    def __init__(self, config: SemanticCodecConfig) -> None:
        super().__init__(config)
        self.down = nn.Conv1d(config.hidden_size, config.hidden_size, 3, stride=2, padding=1)
        self.up = nn.Conv1d(config.hidden_size, config.hidden_size, 3, padding=1)

    def num_codes(self, num_features: Tensor) -> Tensor:
        return (num_features + 1) // 2

    def encode(self, features: Tensor, lengths: Tensor | None = None) -> Tensor:
        halved = F.gelu(_convolve(self.down, features, real_positions(features, lengths)))  # (B, M, H)
        return super().encode(halved, None if lengths is None else self.num_codes(lengths))

    def decode(self, embeddings: Tensor, lengths: Tensor | None = None) -> Tensor:
        decoded = super().decode(embeddings, lengths)  # (B, M, H)
        keep = real_positions(decoded, lengths)
        return _convolve(self.up, decoded.repeat_interleave(2, dim=1), keep.repeat_interleave(2, dim=1))


class Backbone(nn.Module):
    """Convolutions over time with W channels."""

    def __init__(self, config: SemanticCodecConfig) -> None:
        super().__init__()
        dim = config.vocos_dim
        self.embed = nn.Conv1d(config.hidden_size, dim, KERNEL_SIZE, padding=KERNEL_SIZE // 2)
        self.norm = nn.LayerNorm(dim, eps=NORM_EPS)
        self.convnext = nn.ModuleList(
            ConvNeXtBlock(dim, config.vocos_intermediate_dim) for _ in range(config.vocos_num_layers)
        )
        self.final_layer_norm = nn.LayerNorm(dim, eps=NORM_EPS)

    def forward(self, x: Tensor, keep: Tensor) -> Tensor:
        """Map (B, T, H) to (B, T, W); every convolution reads zeros where `keep` (B, T) is False."""
        x = self.norm(_convolve(self.embed, x, keep))  # (B, T, W)
        for block in self.convnext:
            x = block(x, keep)
        normed: Tensor = self.final_layer_norm(x)
        return normed


class ConvNeXtBlock(nn.Module):
    """Depthwise convolution, two linear layers and a scale per channel, with a residual connection."""

    def __init__(self, dim: int, hidden_dim: int) -> None:
        super().__init__()
        self.dwconv = nn.Conv1d(dim, dim, KERNEL_SIZE, padding=KERNEL_SIZE // 2, groups=dim)
        self.norm = nn.LayerNorm(dim, eps=NORM_EPS)
        self.pwconv1 = nn.Linear(dim, hidden_dim)
        self.pwconv2 = nn.Linear(hidden_dim, dim)
        self.gamma = nn.Parameter(torch.ones(dim))

    def forward(self, x: Tensor, keep: Tensor) -> Tensor:
        """Apply the block to `x` (B, T, W) with `keep` (B, T)."""
        y = self.norm(_convolve(self.dwconv, x, keep))  # (B, T, W)
        changed: Tensor = x + self.gamma * self.pwconv2(F.gelu(self.pwconv1(y)))
        return changed


class ResidualQuantizer(nn.Module):
    """List of quantizers, each for the residual of the one before; the published codec has one."""

    def __init__(self, config: SemanticCodecConfig) -> None:
        super().__init__()
        self.quantizers = nn.ModuleList([VectorQuantizer(config)])

    def forward(self, x: Tensor) -> Tensor:
        """Return the codes of the encoder's output (B, T, H): (B, T)."""
        codes: Tensor = self._only()(x)
        return codes

    def embed(self, codes: Tensor) -> Tensor:
        """Map codes (..., T) to (..., T, H): projected codebook rows, not normalised."""
        quantizer = self._only()
        embeddings: Tensor = quantizer.out_project(quantizer.codebook(codes))
        return embeddings

    def _only(self) -> "VectorQuantizer":
        (quantizer,) = self.quantizers
        assert isinstance(quantizer, VectorQuantizer)
        return quantizer


class VectorQuantizer(nn.Module):
    """Codebook of low-dimensional rows with a projection on each side."""

    def __init__(self, config: SemanticCodecConfig) -> None:
        super().__init__()
        self.in_project = NormedProjection(config.hidden_size, config.codebook_dim)
        self.out_project = NormedProjection(config.codebook_dim, config.hidden_size)
        self.codebook = nn.Embedding(config.codebook_size, config.codebook_dim)

    def forward(self, x: Tensor) -> Tensor:
        """Return the rows with the smallest angle to the projected (B, T, H), the first of ties: (B, T)."""
        directions = F.normalize(self.in_project(x), dim=-1)  # (B, T, Z)
        rows = F.normalize(self.codebook.weight, dim=-1)  # (K, Z)
        return (directions @ rows.T).argmax(dim=-1)


class NormedProjection(nn.Module):
    """Linear layer with the weight g v / |v|, with names and shapes of a convolution of width 1.

    The published file names g and v as torch did before its parametrizations.
    """

    def __init__(self, in_dim: int, out_dim: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(out_dim))
        self.weight_g = nn.Parameter(torch.ones(out_dim, 1, 1))
        self.weight_v = nn.Parameter(torch.randn(out_dim, in_dim, 1))

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., in) to (..., out)."""
        weight = normed_weight(self.weight_g, self.weight_v)  # (out, in, 1)
        return F.linear(x, weight[:, :, 0], self.bias)


def normed_weight(g: Tensor, v: Tensor) -> Tensor:
    """Return g v / |v|, with the norm over all axes but the first; g is (n, 1, ...), v (n, ...)."""
    weight: Tensor = g * v / v.flatten(1).norm(dim=1).view(g.shape)
    return weight


def without_weight_norm(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights with g v / |v|, float32, in place of each pair of `weight_g` and `weight_v`."""
    plain = dict(weights)
    for name in [name for name in weights if name.endswith("weight_v") and f"{name[:-1]}g" in weights]:
        g, v = plain.pop(f"{name[:-1]}g").float(), plain.pop(name).float()
        plain[name.removesuffix("_v")] = normed_weight(g, v)
    return plain


def load_codec_config(path: Path) -> SemanticCodecConfig:
    """Return the section `semantic_codec` of a config.yaml.

    Raises:
        UserError: the file cannot be read, or the section lacks the sizes of a codec.
    """
    return read_section(SemanticCodecConfig, path, CONFIG_ADVICE, "semantic_codec")


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


def _apply_half(half: nn.Sequential, x: Tensor, lengths: Tensor | None) -> Tensor:
    """Apply the encoder or the decoder to `x` (B, T, H): (B, T, H)."""
    backbone, linear = half
    out: Tensor = linear(backbone(x, real_positions(x, lengths)))
    return out


def real_positions(x: Tensor, lengths: Tensor | None) -> Tensor:
    """Return where the rows of `x` (B, T, ...) are real, (B, T); everywhere without `lengths` (B,)."""
    B, T = x.shape[:2]  # noqa: N806 - axes
    positions = torch.arange(T, device=x.device)
    return positions < (positions.new_full((B, 1), T) if lengths is None else lengths[:, None])


def _convolve(convolution: nn.Module, x: Tensor, keep: Tensor) -> Tensor:
    """Convolve `x` (B, T, channels) over time; outside `keep` (B, T) it reads zeros, like the padding."""
    convolved: Tensor = convolution(x.masked_fill(~keep[:, :, None], 0.0).transpose(1, 2))
    return convolved.transpose(1, 2)
