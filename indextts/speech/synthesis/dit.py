"""The diffusion transformer of the flow matching: the published `cfm.estimator`.

Axes: B rows, T mel frames, C mel bands, D width, K width of the condition, S width of the style, d width of
a head, L layers.

    x, prompt (B, C, T), condition (B, T, K), style (B, S) -> one linear layer (B, T, D)
      -> L transformer layers, with norms conditioned on the first time embedding; each layer after the middle
         has a skip connection from its mirror image before the middle
      -> joined with x again -> gated convolutions (the published `wavenet`), conditioned on the second time
         embedding -> (B, C, T)

As published, only attention keys are masked: positions after the length of a row are computed like the rest,
and reach its last positions through the convolutions. With `isolate_padding` every row is mirrored at its own
end, which gives it the values that it has alone.

The layers may be in half precision (`set_precision`); inputs and output are float32.

Names and shapes of the parameters are those of the published s2mel.pth, without its weight normalisation
(`without_weight_norm`); the double `.conv.conv.` in the names of the gated convolutions is part of them.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from indextts.speech.synthesis.config import FlowConfig

NUM_TIME_WAVES = 128
MAX_PERIOD = 10_000.0
TIME_SCALE = 1000.0
RMS_EPS = 1e-5
FINAL_NORM_EPS = 1e-6
NUM_POSITIONS = 16_384


class DiT(nn.Module):
    """The complete estimator."""

    input_pos: Tensor

    def __init__(self, config: FlowConfig) -> None:
        super().__init__()
        sizes, convolutions, style_dim = config.DiT, config.wavenet, config.style_encoder.dim
        dim, bands = sizes.hidden_dim, sizes.in_channels
        self.transformer = Transformer(dim, sizes.num_heads, sizes.depth)
        self.cond_projection = nn.Linear(sizes.content_dim, dim)
        self.cond_x_merge_linear = nn.Linear(dim + 2 * bands + style_dim, dim)
        self.skip_linear = nn.Linear(dim + bands, dim)
        self.t_embedder = TimeEmbedding(dim)
        self.t_embedder2 = TimeEmbedding(dim)
        self.conv1 = nn.Linear(dim, dim)
        self.conv2 = nn.Conv1d(dim, bands, 1)
        self.wavenet = WaveNet(
            dim, convolutions.num_layers, convolutions.kernel_size, convolutions.dilation_rate
        )
        self.res_projection = nn.Linear(dim, dim)
        self.final_layer = FinalLayer(dim)
        # In the published file, but unused.
        self.x_embedder = nn.Linear(bands, dim)
        self.cond_embedder = nn.Embedding(sizes.content_codebook_size, dim)
        self.content_mask_embedder = nn.Embedding(1, dim)
        self.register_buffer("input_pos", torch.arange(NUM_POSITIONS))

    def set_precision(self, dtype: torch.dtype) -> None:
        """Convert all layers to `dtype`, except the time embeddings, which need exact angles."""
        self.to(dtype)
        self.t_embedder.float()
        self.t_embedder2.float()

    def forward(
        self,
        x: Tensor,
        prompt_x: Tensor,
        x_lens: Tensor,
        t: Tensor,
        style: Tensor,
        cond: Tensor,
        isolate_padding: bool = False,
    ) -> Tensor:
        """Return the velocity of x at time t: (B, C, T).

        Args:
            x: (B, C, T), between noise and mel.
            prompt_x: (B, C, T), the mel of the prompt, zeros after it.
            x_lens: (B,) or (1,), real frames.
            t: (B,), from 0 (noise) to 1 (mel).
            style: (B, S), of the speaker.
            cond: (B, T, K), the content, frame by frame.
            isolate_padding: make each row independent of the padding.
        """
        projected = self.cond_projection(cond.to(self._dtype))
        return self.from_merged(self.merge(x, prompt_x, style, projected), x, x_lens, t, isolate_padding)

    def merge(self, x: Tensor, prompt_x: Tensor, style: Tensor, projected: Tensor) -> Tensor:
        """Merge all inputs into (B, T, D); `projected` (B, T, D) is the projected condition."""
        styles = style[:, None].expand(-1, x.shape[2], -1)  # (B, T, S)
        parts = [x.transpose(1, 2), prompt_x.transpose(1, 2), projected, styles]
        merged: Tensor = self.cond_x_merge_linear(torch.cat([part.to(self._dtype) for part in parts], dim=2))
        return merged

    def from_merged(
        self, merged: Tensor, x: Tensor, x_lens: Tensor, t: Tensor, isolate_padding: bool = False
    ) -> Tensor:
        """Run the part of `forward` after `merge`."""
        x = x.to(self._dtype)
        time, time2 = (
            embedder(t).to(self._dtype) for embedder in (self.t_embedder, self.t_embedder2)
        )  # (B, D)
        is_real = torch.arange(x.shape[2], device=x.device) < x_lens[:, None]  # (B or 1, T)
        h = self.transformer(merged, time, is_real)  # (B, T, D)
        h = self.skip_linear(torch.cat([h, x.transpose(1, 2)], dim=2))
        own_ends = x_lens if isolate_padding else None
        waves = self.wavenet(self.conv1(h).transpose(1, 2), is_real, time2, own_ends)  # (B, D, T)
        h = self.final_layer(waves.transpose(1, 2) + self.res_projection(h), time)
        direction: Tensor = self.conv2(h.transpose(1, 2))
        return direction.float()

    @property
    def _dtype(self) -> torch.dtype:
        return self.conv1.weight.dtype


class TimeEmbedding(nn.Module):
    """A sinusoidal embedding of the time and two linear layers."""

    freqs: Tensor

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(2 * NUM_TIME_WAVES, dim), nn.SiLU(), nn.Linear(dim, dim))
        exponents = torch.arange(NUM_TIME_WAVES, dtype=torch.float32) / NUM_TIME_WAVES
        self.register_buffer("freqs", torch.exp(-math.log(MAX_PERIOD) * exponents))

    def forward(self, t: Tensor) -> Tensor:
        """Map times (B,) to (B, D)."""
        embedded: Tensor = self.mlp(self.waves(t))
        return embedded

    def waves(self, t: Tensor) -> Tensor:
        """Return cosines, then sines: (B, 2 NUM_TIME_WAVES)."""
        angles = TIME_SCALE * t[:, None] * self.freqs
        return torch.cat([angles.cos(), angles.sin()], dim=1)


class Transformer(nn.Module):
    """Layers with long skip connections between mirrored layers, and a final norm."""

    def __init__(self, dim: int, num_heads: int, depth: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(TransformerLayer(dim, num_heads) for _ in range(depth))
        self.norm = AdaptiveNorm(dim)

    def forward(self, h: Tensor, time: Tensor, is_real: Tensor) -> Tensor:
        """Map (B, T, D) to (B, T, D); `time` (B, D), `is_real` (B, T) or (1, T)."""
        head_dim = h.shape[2] // self.layers[0].attention.num_heads  # type: ignore[union-attr, operator]
        rotation = rotary_table(h.shape[1], int(head_dim), h.device)
        keys = None if is_real.all() else is_real[:, None, None, :]  # (B or 1, 1, 1, T)
        middle = len(self.layers) // 2
        skips: list[Tensor] = []
        for number, layer in enumerate(self.layers):
            h = layer(h, skips.pop() if number > middle else None, time, keys, rotation)
            if number < middle:
                skips.append(h)
        normed: Tensor = self.norm(h, time)
        return normed


class TransformerLayer(nn.Module):
    """Attention and a gated linear unit, both with pre-norm and residual."""

    def __init__(self, dim: int, num_heads: int) -> None:
        super().__init__()
        self.attention = Attention(dim, num_heads)
        self.feed_forward = FeedForward(dim)
        self.attention_norm = AdaptiveNorm(dim)
        self.ffn_norm = AdaptiveNorm(dim)
        self.skip_in_linear = nn.Linear(2 * dim, dim)  # unused in the first half, but in the published file

    def forward(
        self,
        h: Tensor,
        skip: Tensor | None,
        time: Tensor,
        keys: Tensor | None,
        rotation: tuple[Tensor, Tensor],
    ) -> Tensor:
        """Apply the layer; `h` and `skip` are (B, T, D), `keys` is (B or 1, 1, 1, T) or None for all."""
        if skip is not None:
            h = self.skip_in_linear(torch.cat([h, skip], dim=2))
        h = h + self.attention(self.attention_norm(h, time), keys, rotation)
        h = h + self.feed_forward(self.ffn_norm(h, time))
        return h


class Attention(nn.Module):
    """Bidirectional attention with rotary positions."""

    def __init__(self, dim: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.wqkv = nn.Linear(dim, 3 * dim, bias=False)
        self.wo = nn.Linear(dim, dim, bias=False)

    def forward(self, h: Tensor, keys: Tensor | None, rotation: tuple[Tensor, Tensor]) -> Tensor:
        """Map (B, T, D) to (B, T, D); `keys` is (B or 1, 1, 1, T) or None, `rotation` two of (T, d/2)."""
        q, k, v = (
            part.view(*part.shape[:2], self.num_heads, -1).transpose(1, 2)  # (B, heads, T, d)
            for part in self.wqkv(h).chunk(3, dim=2)
        )
        q, k = rotate(q, rotation), rotate(k, rotation)
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=keys)
        out: Tensor = self.wo(mixed.transpose(1, 2).flatten(2))
        return out


def rotary_table(length: int, head_dim: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return cosines and sines of the rotary angles for each position and pair: (T, d/2) each."""
    pairs = torch.arange(0, head_dim, 2, dtype=torch.float32, device=device) / head_dim  # (d/2,)
    positions = torch.arange(length, dtype=torch.float32, device=device)
    angles = positions[:, None] / MAX_PERIOD**pairs
    return angles.cos(), angles.sin()


def rotate(x: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
    """Rotate each pair of adjacent values of `x` (..., T, d) by the angles of `rotation`, (T, d/2) each."""
    cos, sin = rotation
    a, b = x.view(*x.shape[:-1], -1, 2).unbind(dim=-1)  # (..., T, d/2) each
    return torch.stack([a * cos - b * sin, b * cos + a * sin], dim=-1).flatten(-2).to(x.dtype)


class FeedForward(nn.Module):
    """A gated linear unit with SiLU."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        hidden_dim = 256 * math.ceil(int(8 * dim / 3) / 256)
        self.w1 = nn.Linear(dim, hidden_dim, bias=False)
        self.w3 = nn.Linear(dim, hidden_dim, bias=False)
        self.w2 = nn.Linear(hidden_dim, dim, bias=False)

    def forward(self, h: Tensor) -> Tensor:
        """Apply to the last axis of `h` (..., D)."""
        out: Tensor = self.w2(F.silu(self.w1(h)) * self.w3(h))
        return out


class AdaptiveNorm(nn.Module):
    """RMS norm with a scale and a shift that depend on the time."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.project_layer = nn.Linear(dim, 2 * dim)
        self.norm = nn.RMSNorm(dim, eps=RMS_EPS)

    def forward(self, h: Tensor, time: Tensor) -> Tensor:
        """Normalise `h` (B, T, D); the scale from `time` (B, D) is the factor itself, not added to 1."""
        scale, shift = self.project_layer(time)[:, None].chunk(2, dim=2)  # (B, 1, D) each
        normed: Tensor = scale * self.norm(h) + shift
        return normed


class FinalLayer(nn.Module):
    """A layer norm whose shift and scale depend on the time, and a linear layer."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.norm_final = nn.LayerNorm(dim, eps=FINAL_NORM_EPS, elementwise_affine=False)
        self.linear = nn.Linear(dim, dim)
        self.adaLN_modulation = nn.Sequential(nn.SiLU(), nn.Linear(dim, 2 * dim))

    def forward(self, h: Tensor, time: Tensor) -> Tensor:
        """Map (B, T, D) to (B, T, D); unlike in `AdaptiveNorm`, shift comes first and 1 is added to scale."""
        shift, scale = self.adaLN_modulation(time)[:, None].chunk(2, dim=2)  # (B, 1, D) each
        out: Tensor = self.linear(self.norm_final(h) * (1 + scale) + shift)
        return out


class WaveNet(nn.Module):
    """L gated layers, each with a residual and a skip output; the result is the sum of the skip outputs.

    Args:
        dilation_rate: the dilation of layer j is its j-th power.
    """

    def __init__(self, dim: int, num_layers: int, kernel_size: int, dilation_rate: int) -> None:
        super().__init__()
        self.in_layers = nn.ModuleList(
            PaddedConv(dim, 2 * dim, kernel_size, dilation_rate**layer) for layer in range(num_layers)
        )
        self.res_skip_layers = nn.ModuleList(
            PaddedConv(dim, 2 * dim if layer < num_layers - 1 else dim, 1) for layer in range(num_layers)
        )
        self.cond_layer = PaddedConv(dim, 2 * dim * num_layers, 1)

    def forward(self, x: Tensor, is_real: Tensor, time: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Map (B, D, T) to (B, D, T).

        Args:
            is_real: (B, T) or (1, T); the other positions become zero, but only after the first layer.
            time: (B, D), the second time embedding.
            lengths: (B,) to mirror each row at its own end; None to mirror all at T.
        """
        mask = is_real[:, None, :]  # (B, 1, T)
        if lengths is not None:
            x = x * mask
        shifts = self.cond_layer(time[:, :, None]).chunk(len(self.in_layers), dim=1)  # L of (B, 2D, 1)
        total = torch.zeros_like(x)
        for in_layer, res_skip_layer, shift in zip(self.in_layers, self.res_skip_layers, shifts, strict=True):
            wave, gate = (in_layer(x, lengths) + shift).chunk(2, dim=1)  # (B, D, T) each
            y = res_skip_layer(wave.tanh() * gate.sigmoid())  # (B, 2D, T), of the last layer (B, D, T)
            if y.shape[1] == x.shape[1]:
                total = total + y
            else:
                residual, share = y.chunk(2, dim=1)
                x = (x + residual) * mask
                total = total + share
        return total * mask


class PaddedConv(nn.Module):
    """A convolution that preserves the length, with reflection padding."""

    def __init__(self, in_dim: int, out_dim: int, kernel_size: int, dilation: int = 1) -> None:
        super().__init__()
        # the second `conv` of the parameter names
        self.conv = nn.ModuleDict({"conv": nn.Conv1d(in_dim, out_dim, kernel_size, dilation=dilation)})
        self.padding = (kernel_size - 1) * dilation

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Map (B, in, T) to (B, out, T); rows with `lengths` (B,) are mirrored at their own ends."""
        padded = mirrored(x, self.padding) if lengths is None else mirrored_rows(x, self.padding, lengths)
        convolved: Tensor = self.conv["conv"](padded)
        return convolved


def mirrored(x: Tensor, padding: int) -> Tensor:
    """Pad `x` (..., T) with `padding` reflected samples, half at each end (an odd one on the left).

    An input too short for reflection is extended by zeros first, which are removed afterwards.
    """
    right = padding // 2
    left = padding - right
    missing = max(0, left - x.shape[-1] + 1)
    padded = F.pad(F.pad(x, (0, missing)), (left, right), mode="reflect")
    return padded[..., : padded.shape[-1] - missing]


def mirrored_rows(x: Tensor, padding: int, lengths: Tensor) -> Tensor:
    """Pad each row of `x` (B, channels, T), zero after its length (B,), as `mirrored` pads it alone."""
    left = padding - padding // 2
    ends = lengths.clamp(min=left + 1)[:, None] - 1  # (B, 1), the positions to reflect at
    places = (torch.arange(x.shape[2] + padding, device=x.device) - left).abs()
    places = torch.where(places > ends, 2 * ends - places, places).clamp(
        0, x.shape[2] - 1
    )  # (B, T + padding)
    return x.gather(2, places[:, None].expand(-1, x.shape[1], -1))
