"""The perceiver that turns a clip of any length into a fixed number of vectors.

Axes: B clips, P positions of the conformer, Q their width, K latents, R width of the latents, A heads of
width h (64 in the published model, whatever the number of heads).
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from indextts.models.gpt.config import ConditionModuleConfig


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
        """Latents that have read the real positions.

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
    """Attention and feed-forward, a residual around each; a list, because the published names count them."""

    def forward(self, latents: Tensor, context: Tensor, mask: Tensor) -> Tensor:
        """One layer on `latents` (B, K, R), with `context` (B, P, R) and `mask` (B, K+P) over both."""
        attention, feed_forward = self
        latents = latents + attention(latents, context, mask)
        latents = latents + feed_forward(latents)
        return latents


class LatentAttention(nn.Module):
    """Attention from the latents to themselves and the context; nothing is normalised."""

    def __init__(self, dim: int, heads: int, head_dim: int) -> None:
        super().__init__()
        self.heads = heads
        self.to_q = nn.Linear(dim, heads * head_dim, bias=False)
        self.to_kv = nn.Linear(dim, 2 * heads * head_dim, bias=False)
        self.to_out = nn.Linear(heads * head_dim, dim, bias=False)

    def forward(self, latents: Tensor, context: Tensor, mask: Tensor) -> Tensor:
        """What the latents (B, K, R) read from themselves and `context` (B, P, R) where `mask` (B, K+P)."""
        q = self._by_head(self.to_q(latents))  # (B, A, K, h)
        kv = self.to_kv(torch.cat([latents, context], dim=1))  # (B, K+P, 2*A*h)
        k, v = kv.chunk(2, dim=2)
        read = F.scaled_dot_product_attention(
            q, self._by_head(k), self._by_head(v), attn_mask=mask[:, None, None, :]
        )  # (B, A, K, h)
        out: Tensor = self.to_out(read.transpose(1, 2).flatten(2))
        return out

    def _by_head(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], self.heads, -1).transpose(1, 2)


class GatedGELU(nn.Module):
    """First half of the last axis times the exact GELU of the second half."""

    def forward(self, x: Tensor) -> Tensor:
        """(..., 2I) to (..., I)."""
        value, gate = x.chunk(2, dim=-1)
        return F.gelu(gate) * value


class RMSNorm(nn.Module):
    """Scale the last axis to length sqrt(R), then by `gamma`; the epsilon guards the length only."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.empty(dim))

    def forward(self, x: Tensor) -> Tensor:
        """(..., R) to (..., R)."""
        return F.normalize(x, dim=-1, eps=1e-12) * math.sqrt(x.shape[-1]) * self.gamma
