"""The semantic codec of the published weights (MaskGCT's RepCodec): speech features to codes and back.

Axes: B clips, T feature vectors, H their width, W width inside, Z width of a codebook row, K codes.

    features (B, T, H) -> encoder (B, T, H) -> in_project (B, T, Z) -> nearest row by angle: codes (B, T)
    codes (B, T) -> codebook rows (B, T, Z) -> out_project: embeddings (B, T, H) -> decoder (B, T, H)

Sizes stand in the section `semantic_codec` of the published config.yaml; names and shapes of the parameters
are those of the published semantic_codec/model.safetensors. The way to codes needs encoder and quantizer,
the acoustic model takes the embeddings; the decoder turns them back into features.
"""

from dataclasses import dataclass, fields
from pathlib import Path

import torch
import torch.nn.functional as F
import yaml
from torch import Tensor, nn

from indextts.errors import UserError
from indextts.features.weights import load_safetensors

KERNEL_SIZE = 7
NORM_EPS = 1e-6
TAKE_THE_RIGHT_CONFIG = "use the config.yaml that was published with IndexTTS-2"
TAKE_THE_RIGHT_FILE = "give semantic_codec/model.safetensors of amphion/MaskGCT and the published config.yaml"


@dataclass(frozen=True)
class SemanticCodecConfig:
    """Sizes of the codec, under their names in config.yaml: K, H, Z, W, and two of the convolution blocks."""

    codebook_size: int
    hidden_size: int
    codebook_dim: int
    vocos_dim: int
    vocos_intermediate_dim: int
    vocos_num_layers: int


@dataclass(frozen=True)
class Quantized:
    """What the codec makes of features.

    Attributes:
        codes: (B, T), int64.
        embeddings: (B, T, H), what the codes stand for.
    """

    codes: Tensor
    embeddings: Tensor


class SemanticCodec(nn.Module):
    """The whole codec; a fresh one holds no useful weights, see `load_codec`."""

    def __init__(self, config: SemanticCodecConfig) -> None:
        super().__init__()
        self.config = config
        # Sequential: the published names count backbone and linear layer as 0 and 1
        self.encoder = nn.Sequential(Backbone(config), nn.Linear(config.vocos_dim, config.hidden_size))
        self.decoder = nn.Sequential(Backbone(config), nn.Linear(config.vocos_dim, config.hidden_size))
        self.quantizer = ResidualQuantizer(config)

    def quantize(self, features: Tensor, lengths: Tensor | None = None) -> Quantized:
        """Codes and embeddings of features; a padded row gives at its real positions what it gives alone.

        Args:
            features: (B, T, H); what stands at or after a row's length is ignored.
            lengths: (B,), real feature vectors per row; None if all are real.
        """
        codes: Tensor = self.quantizer(self.encode(features, lengths))
        return Quantized(codes, self.embed(codes))

    def encode(self, features: Tensor, lengths: Tensor | None = None) -> Tensor:
        """What the quantizer reads: (B, T, H); arguments as for `quantize`."""
        return _through(self.encoder, features, lengths)

    def embed(self, codes: Tensor) -> Tensor:
        """What codes (..., T) stand for: (..., T, H)."""
        return self.quantizer.embed(codes)

    def decode(self, embeddings: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Features that embeddings (B, T, H) stand for: (B, T, H); `lengths` as for `quantize`."""
        return _through(self.decoder, embeddings, lengths)


class Backbone(nn.Module):
    """Convolutions over time at the width W."""

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
        """(B, T, H) to (B, T, W); where `keep` (B, T) is False, every convolution reads zeros."""
        x = self.norm(_convolve(self.embed, x, keep))  # (B, T, W)
        for block in self.convnext:
            x = block(x, keep)
        normed: Tensor = self.final_layer_norm(x)
        return normed


class ConvNeXtBlock(nn.Module):
    """Depthwise convolution, then two linear layers, a scale per channel, a residual around it all."""

    def __init__(self, dim: int, hidden_dim: int) -> None:
        super().__init__()
        self.dwconv = nn.Conv1d(dim, dim, KERNEL_SIZE, padding=KERNEL_SIZE // 2, groups=dim)
        self.norm = nn.LayerNorm(dim, eps=NORM_EPS)
        self.pwconv1 = nn.Linear(dim, hidden_dim)
        self.pwconv2 = nn.Linear(hidden_dim, dim)
        self.gamma = nn.Parameter(torch.ones(dim))

    def forward(self, x: Tensor, keep: Tensor) -> Tensor:
        """One block; `x` (B, T, W), `keep` (B, T)."""
        y = self.norm(_convolve(self.dwconv, x, keep))  # (B, T, W)
        changed: Tensor = x + self.gamma * self.pwconv2(F.gelu(self.pwconv1(y)))
        return changed


class ResidualQuantizer(nn.Module):
    """A list of quantizers, each for what the one before left over; the published codec has one."""

    def __init__(self, config: SemanticCodecConfig) -> None:
        super().__init__()
        self.quantizers = nn.ModuleList([VectorQuantizer(config)])

    def forward(self, x: Tensor) -> Tensor:
        """Codes of what the encoder says (B, T, H): (B, T)."""
        codes: Tensor = self._only()(x)
        return codes

    def embed(self, codes: Tensor) -> Tensor:
        """(..., T) to (..., T, H): codebook rows as they are, not brought to length 1, projected."""
        quantizer = self._only()
        embeddings: Tensor = quantizer.out_project(quantizer.codebook(codes))
        return embeddings

    def _only(self) -> "VectorQuantizer":
        (quantizer,) = self.quantizers
        assert isinstance(quantizer, VectorQuantizer)
        return quantizer


class VectorQuantizer(nn.Module):
    """A codebook of narrow rows, with a projection on each side."""

    def __init__(self, config: SemanticCodecConfig) -> None:
        super().__init__()
        self.in_project = NormedProjection(config.hidden_size, config.codebook_dim)
        self.out_project = NormedProjection(config.codebook_dim, config.hidden_size)
        self.codebook = nn.Embedding(config.codebook_size, config.codebook_dim)

    def forward(self, x: Tensor) -> Tensor:
        """Rows of the smallest angle to the projected (B, T, H): (B, T); of equals the first."""
        directions = F.normalize(self.in_project(x), dim=-1)  # (B, T, Z)
        rows = F.normalize(self.codebook.weight, dim=-1)  # (K, Z)
        return (directions @ rows.T).argmax(dim=-1)


class NormedProjection(nn.Module):
    """A linear layer with the weight g v / |v|, by the names and shapes of a convolution of width 1.

    The published file holds g and v as torch named them before its parametrizations.
    """

    def __init__(self, in_dim: int, out_dim: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(out_dim))
        self.weight_g = nn.Parameter(torch.ones(out_dim, 1, 1))
        self.weight_v = nn.Parameter(torch.randn(out_dim, in_dim, 1))

    def forward(self, x: Tensor) -> Tensor:
        """(..., in) to (..., out)."""
        weight = normed_weight(self.weight_g, self.weight_v)  # (out, in, 1)
        return F.linear(x, weight[:, :, 0], self.bias)


def normed_weight(g: Tensor, v: Tensor) -> Tensor:
    """G v / |v|, the length taken over all axes but the first; g is (n, 1, ...), v (n, ...)."""
    weight: Tensor = g * v / v.flatten(1).norm(dim=1).view(g.shape)
    return weight


def load_codec_config(path: Path) -> SemanticCodecConfig:
    """Return the section `semantic_codec` of a config.yaml.

    Raises:
        UserError: the file cannot be read, or the section does not hold the sizes of a codec.
    """
    try:
        document = yaml.safe_load(path.read_bytes())
    except (OSError, yaml.YAMLError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{path}: cannot be read ({reason}); {TAKE_THE_RIGHT_CONFIG}") from None
    section = document.get("semantic_codec") if isinstance(document, dict) else None
    if not isinstance(section, dict):
        raise UserError(f"{path}: no section semantic_codec; {TAKE_THE_RIGHT_CONFIG}")
    names = [field.name for field in fields(SemanticCodecConfig)]
    wrong = [
        f"semantic_codec.{name} is {section.get(name)!r}, it must be a whole number of at least 1"
        for name in names
        if not isinstance(section.get(name), int) or section[name] is True or section[name] < 1
    ]
    if section.get("downsample_scale", 1) != 1:
        scale = section["downsample_scale"]
        wrong.append(f"semantic_codec.downsample_scale is {scale!r}, but only 1 (IndexTTS-2) is supported")
    if wrong:
        raise UserError(f"{path}: {'; '.join(wrong)}; {TAKE_THE_RIGHT_CONFIG}")
    return SemanticCodecConfig(**{name: section[name] for name in names})


def load_codec(config: SemanticCodecConfig, path: Path) -> SemanticCodec:
    """Return the codec with the weights of a .safetensors file, float32, on the CPU.

    Raises:
        UserError: the file cannot be read, or a tensor is missing, unexpected or of another shape.
    """
    with torch.device("meta"):
        codec = SemanticCodec(config)
    load_safetensors(codec, path, TAKE_THE_RIGHT_FILE)
    return codec


def _through(half: nn.Sequential, x: Tensor, lengths: Tensor | None) -> Tensor:
    """Encoder or decoder of `x` (B, T, H): (B, T, H)."""
    B, T, _ = x.shape  # noqa: N806 - axes
    positions = torch.arange(T, device=x.device)
    keep = positions < (positions.new_full((B, 1), T) if lengths is None else lengths[:, None])  # (B, T)
    backbone, linear = half
    out: Tensor = linear(backbone(x, keep))
    return out


def _convolve(convolution: nn.Module, x: Tensor, keep: Tensor) -> Tensor:
    """Convolve `x` (B, T, channels) over time; outside `keep` (B, T) it reads zeros, as beyond the ends."""
    convolved: Tensor = convolution(x.masked_fill(~keep[:, :, None], 0.0).transpose(1, 2))
    return convolved.transpose(1, 2)
