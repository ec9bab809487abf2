"""Encoders of speech features: a conformer, and a perceiver that resamples its output to a fixed length.

Axes: B clips, T feature frames, F feature width, P = (T-1)//2 positions after the first convolution, Q width
of the conformer (`output_size`), A heads, d = Q/A; K latents, R their width, h width of a perceiver head (64
in the published model, for any number of heads).

In a padded batch padding affects the result: the convolution turns a masked position into its bias, which
real positions up to seven positions away then see. The published model was trained like this. With
`isolate_padding` each clip gives the same result as alone.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from indextts.models.gpt.config import ConditionModuleConfig


class ConformerEncoder(nn.Module):
    """Features (B, T, F) to states (B, P, Q); without dropout, in training too."""

    def __init__(
        self, config: ConditionModuleConfig, feature_dim: int, conv_kernel_size: int, pe_length: int
    ) -> None:
        super().__init__()
        self.embed = ConvolutionalEmbedding(feature_dim, config.output_size, pe_length)
        self.after_norm = nn.LayerNorm(config.output_size)
        self.encoders = nn.ModuleList(
            ConformerBlock(config, conv_kernel_size) for _ in range(config.num_blocks)
        )

    def forward(
        self, features: Tensor, lengths: Tensor | None, isolate_padding: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Return the states and the mask of the real positions.

        Args:
            features: (B, T, F), T from 3 frames to twice the length of the position table.
            lengths: (B,), real frames per clip; None if all frames are real.
            isolate_padding: mask padding before the convolution too, unlike the published code.

        Returns:
            (B, P, Q) and (B, P), True where the position is real.
        """
        x, positions = self.embed(features)  # (B, P, Q), (P, Q)
        keep = kept_positions(features, lengths)  # (B, P)
        for block in self.encoders:
            x = block(x, positions, keep, isolate_padding)
        return self.after_norm(x), keep


def kept_positions(features: Tensor, lengths: Tensor | None) -> Tensor:
    """Return True for positions whose last input frame is real: (B, P)."""
    B, T, _ = features.shape
    last_frames = torch.arange(2, T, 2, device=features.device)  # (P,)
    if lengths is None:
        return torch.ones(B, len(last_frames), dtype=torch.bool, device=features.device)
    return last_frames < lengths[:, None]


class ConvolutionalEmbedding(nn.Module):
    """Halves the frame rate: features as an image, one strided convolution, one linear layer."""

    def __init__(self, feature_dim: int, dim: int, pe_length: int) -> None:
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(1, dim, kernel_size=3, stride=2), nn.ReLU())
        self.out = nn.Sequential(nn.Linear(dim * ((feature_dim - 1) // 2), dim))
        self.pos_enc = PositionTable(pe_length, dim)

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Return scaled states (B, P, Q) and, separately, the rows of the position table (P, Q)."""
        image = self.conv(features[:, None])  # (B, Q, P, (F-1)//2)
        x = self.out(image.transpose(1, 2).flatten(2))  # (B, P, Q): channel slow, frequency fast
        return x * math.sqrt(x.shape[-1]), self.pos_enc.pe[0, : x.shape[1]]


class PositionTable(nn.Module):
    """Sines and cosines; a persistent buffer, because published files hold a rounded table."""

    pe: Tensor

    def __init__(self, length: int, dim: int) -> None:
        super().__init__()
        self.register_buffer("pe", sinusoids(length, dim)[None])


def sinusoids(length: int, dim: int) -> Tensor:
    """sin(p * w_i) on even and cos(p * w_i) on odd columns, w_i = 10000^(-2i/dim): (length, dim)."""
    # In float32 on purpose: the published table was made so, and is off the exact sine by up to 1e-4.
    frequencies = torch.exp(torch.arange(0, dim, 2, dtype=torch.float32) * -(math.log(10000.0) / dim))
    angles = torch.arange(length, dtype=torch.float32)[:, None] * frequencies  # (length, dim/2)
    return torch.stack([angles.sin(), angles.cos()], dim=2).flatten(1)


class ConformerBlock(nn.Module):
    """Attention, convolution, feed-forward; each with a norm in front and a residual around it."""

    def __init__(self, config: ConditionModuleConfig, conv_kernel_size: int) -> None:
        super().__init__()
        dim = config.output_size
        self.self_attn = PositionAwareAttention(dim, config.attention_heads)
        self.feed_forward = FeedForward(dim, config.linear_units)
        self.conv_module = ConvolutionModule(dim, conv_kernel_size)
        self.norm_ff = nn.LayerNorm(dim)
        self.norm_mha = nn.LayerNorm(dim)
        self.norm_conv = nn.LayerNorm(dim)
        self.norm_final = nn.LayerNorm(dim)

    def forward(self, x: Tensor, positions: Tensor, keep: Tensor, isolate_padding: bool) -> Tensor:
        """One block; `x` (B, P, Q), `positions` (P, Q), `keep` (B, P)."""
        x = x + self.self_attn(self.norm_mha(x), positions, keep)
        x = x + self.conv_module(self.norm_conv(x), keep, isolate_padding)
        x = x + self.feed_forward(self.norm_ff(x))
        normed: Tensor = self.norm_final(x)
        return normed


class PositionAwareAttention(nn.Module):
    """Attention whose scores also see the absolute position of the key (there is no relative shift)."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.pos_bias_u = nn.Parameter(torch.empty(heads, dim // heads))
        self.pos_bias_v = nn.Parameter(torch.empty(heads, dim // heads))
        self.linear_q = nn.Linear(dim, dim)
        self.linear_k = nn.Linear(dim, dim)
        self.linear_v = nn.Linear(dim, dim)
        self.linear_out = nn.Linear(dim, dim)
        self.linear_pos = nn.Linear(dim, dim, bias=False)

    def forward(self, x: Tensor, positions: Tensor, keep: Tensor) -> Tensor:
        """Attend from every position to the real ones; a clip without real positions gets zeros.

        Args:
            x: (B, P, Q).
            positions: (P, Q), rows of the position table.
            keep: (B, P), True where a key is real.

        Returns:
            (B, P, Q).
        """
        q = _by_head(self.linear_q(x), self.heads)  # (B, A, P, d)
        k = _by_head(self.linear_k(x), self.heads)  # (B, A, P, d)
        v = _by_head(self.linear_v(x), self.heads)  # (B, A, P, d)
        p = _by_head(self.linear_pos(positions)[None], self.heads)  # (1, A, P, d)
        content = (q + self.pos_bias_u[:, None]) @ k.transpose(2, 3)  # (B, A, P, P)
        position = (q + self.pos_bias_v[:, None]) @ p.transpose(2, 3)  # (B, A, P, P)
        scores = (content + position) / math.sqrt(q.shape[-1])
        hidden = ~keep[:, None, None, :]  # (B, 1, 1, P)
        # The most negative number, not -inf: a row of only -inf would turn gradients into NaN.
        weights = scores.masked_fill(hidden, torch.finfo(scores.dtype).min).softmax(dim=-1)
        attended = weights.masked_fill(hidden, 0.0) @ v  # (B, A, P, d)
        out: Tensor = self.linear_out(attended.transpose(1, 2).flatten(2))
        return out


class ConvolutionModule(nn.Module):
    """Gate, depthwise convolution over positions, norm, SiLU."""

    def __init__(self, dim: int, kernel_size: int) -> None:
        super().__init__()
        self.pointwise_conv1 = nn.Conv1d(dim, 2 * dim, kernel_size=1)
        self.depthwise_conv = nn.Conv1d(dim, dim, kernel_size, padding=kernel_size // 2, groups=dim)
        self.norm = nn.LayerNorm(dim)
        self.pointwise_conv2 = nn.Conv1d(dim, dim, kernel_size=1)

    def forward(self, x: Tensor, keep: Tensor, isolate_padding: bool) -> Tensor:
        """Convolve `x` (B, P, Q); positions outside `keep` (B, P) are zeros at the input and the output.

        The gate turns these zeros into its bias. With `isolate_padding` they are zeroed again before the
        convolution.
        """
        hidden = ~keep[:, None, :]  # (B, 1, P)
        x = x.transpose(1, 2).masked_fill(hidden, 0.0)  # (B, Q, P)
        x = F.glu(self.pointwise_conv1(x), dim=1)  # (B, Q, P)
        x = self.depthwise_conv(x.masked_fill(hidden, 0.0) if isolate_padding else x)
        x = F.silu(self.norm(x.transpose(1, 2))).transpose(1, 2)
        convolved: Tensor = self.pointwise_conv2(x)  # (B, Q, P)
        return convolved.masked_fill(hidden, 0.0).transpose(1, 2)


class FeedForward(nn.Module):
    """Two linear layers with SiLU between them."""

    def __init__(self, dim: int, hidden_dim: int) -> None:
        super().__init__()
        self.w_1 = nn.Linear(dim, hidden_dim)
        self.w_2 = nn.Linear(hidden_dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        """Apply to the last axis of `x` (..., Q)."""
        out: Tensor = self.w_2(F.silu(self.w_1(x)))
        return out


class PerceiverResampler(nn.Module):
    """States (B, P, Q) to latents (B, K, R)."""

    def __init__(
        self, config: ConditionModuleConfig, dim: int, num_latents: int, head_dim: int, depth: int
    ) -> None:
        super().__init__()
        same_width = config.output_size == dim
        inner_dim = int(dim * config.perceiver_mult * 2 / 3)
        self.latents = nn.Parameter(torch.empty(num_latents, dim))
        self.proj_context = nn.Identity() if same_width else nn.Linear(config.output_size, dim)
        self.layers = nn.ModuleList(
            PerceiverLayer(
                [
                    LatentAttention(dim, config.attention_heads, head_dim),
                    nn.Sequential(nn.Linear(dim, 2 * inner_dim), GatedGELU(), nn.Linear(inner_dim, dim)),
                ]
            )
            for _ in range(depth)
        )
        self.norm = RMSNorm(dim)

    def forward(self, states: Tensor, keep: Tensor) -> Tensor:
        """Return the latents after attention to the real positions.

        Args:
            states: (B, P, Q).
            keep: (B, P), True where a position is real.

        Returns:
            (B, K, R).
        """
        context = self.proj_context(states)  # (B, P, R)
        latents = self.latents.expand(len(states), -1, -1)  # (B, K, R)
        mask = F.pad(keep, (latents.shape[1], 0), value=True)  # (B, K+P)
        for layer in self.layers:
            latents = layer(latents, context, mask)
        normed: Tensor = self.norm(latents)
        return normed


class PerceiverLayer(nn.ModuleList):
    """Attention and feed-forward with residuals; a ModuleList because the published names are numbered."""

    def forward(self, latents: Tensor, context: Tensor, mask: Tensor) -> Tensor:
        """Apply the layer to `latents` (B, K, R), with `context` (B, P, R) and `mask` (B, K+P) over both."""
        attention, feed_forward = self
        latents = latents + attention(latents, context, mask)
        latents = latents + feed_forward(latents)
        return latents


class LatentAttention(nn.Module):
    """Attention from the latents to themselves and the context, without normalisation."""

    def __init__(self, dim: int, heads: int, head_dim: int) -> None:
        super().__init__()
        self.heads = heads
        self.to_q = nn.Linear(dim, heads * head_dim, bias=False)
        self.to_kv = nn.Linear(dim, 2 * heads * head_dim, bias=False)
        self.to_out = nn.Linear(heads * head_dim, dim, bias=False)

    def forward(self, latents: Tensor, context: Tensor, mask: Tensor) -> Tensor:
        """Attend from `latents` (B, K, R) to themselves and `context` (B, P, R), with `mask` (B, K+P)."""
        q = _by_head(self.to_q(latents), self.heads)  # (B, A, K, h)
        kv = self.to_kv(torch.cat([latents, context], dim=1))  # (B, K+P, 2*A*h)
        k, v = kv.chunk(2, dim=2)
        read = F.scaled_dot_product_attention(
            q, _by_head(k, self.heads), _by_head(v, self.heads), attn_mask=mask[:, None, None, :]
        )  # (B, A, K, h)
        out: Tensor = self.to_out(read.transpose(1, 2).flatten(2))
        return out


class GatedGELU(nn.Module):
    """The first half of the last axis times the exact GELU of the second half."""

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., 2I) to (..., I)."""
        value, gate = x.chunk(2, dim=-1)
        return F.gelu(gate) * value


class RMSNorm(nn.Module):
    """Scaling of the last axis to norm sqrt(R), then by `gamma`; the epsilon applies to the norm only."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.empty(dim))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise `x` (..., R)."""
        return F.normalize(x, dim=-1, eps=1e-12) * math.sqrt(x.shape[-1]) * self.gamma


def _by_head(x: Tensor, heads: int) -> Tensor:
    """Return `x` (B, T, width) by head: (B, heads, T, width / heads)."""
    return x.view(*x.shape[:2], heads, -1).transpose(1, 2)
