"""The GPT-2 body: causal blocks without embeddings of its own.

Axes: B rows, T sequence positions, D width, H heads, d = D/H.

How positions see each other is an argument, `attend`, so that one body serves padded batches
(`causal_attention`), sequences packed end to end, and generation from a cache of keys and values.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# q, k, v, each (..., positions, H, d), and the probability of dropping a weight -> (..., positions, H, d)
Attend = Callable[[Tensor, Tensor, Tensor, float], Tensor]


def causal_attention(q: Tensor, k: Tensor, v: Tensor, dropout: float) -> Tensor:
    """Every position attends to itself and all before it: (B, T, H, d) each, and so the result."""
    q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)  # (B, H, T, d)
    attended = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)
    return attended.transpose(1, 2)


class GPT2(nn.Module):
    """Embeddings (..., D) to states (..., D), after the last norm of the body."""

    def __init__(self, dim: int, layers: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.dropout = dropout
        self.h = nn.ModuleList(Block(dim, heads, dropout) for _ in range(layers))
        self.ln_f = nn.LayerNorm(dim)

    def forward(self, x: Tensor, attend: Attend = causal_attention) -> Tensor:
        """States of the embeddings `x` (B, T, D), or of another layout that `attend` understands."""
        x = F.dropout(x, self.dropout, self.training)
        for block in self.h:
            x = block(x, attend)
        states: Tensor = self.ln_f(x)
        return states


class Block(nn.Module):
    def __init__(self, dim: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(dim)
        self.attn = Attention(dim, heads, dropout)
        self.ln_2 = nn.LayerNorm(dim)
        self.mlp = MLP(dim, dropout)

    def forward(self, x: Tensor, attend: Attend) -> Tensor:
        """One block on `x` (..., D)."""
        x = x + self.attn(self.ln_1(x), attend)
        x = x + self.mlp(self.ln_2(x))
        return x


class Attention(nn.Module):
    def __init__(self, dim: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        self.c_attn = InOutLinear(dim, 3 * dim)
        self.c_proj = InOutLinear(dim, dim)

    def forward(self, x: Tensor, attend: Attend) -> Tensor:
        """Project `x` (..., D) to queries, keys and values, attend, project back."""
        qkv = self.c_attn(x).view(*x.shape[:-1], 3, self.heads, -1)
        q, k, v = qkv.unbind(-3)  # (..., H, d) each
        attended = attend(q, k, v, self.dropout if self.training else 0.0)  # (..., H, d)
        return F.dropout(self.c_proj(attended.flatten(-2)), self.dropout, self.training)


class MLP(nn.Module):
    def __init__(self, dim: int, dropout: float) -> None:
        super().__init__()
        self.dropout = dropout
        self.c_fc = InOutLinear(dim, 4 * dim)
        self.c_proj = InOutLinear(4 * dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        """Widen `x` (..., D) four times, GELU (tanh form), narrow."""
        hidden = F.gelu(self.c_fc(x), approximate="tanh")  # (..., 4D)
        return F.dropout(self.c_proj(hidden), self.dropout, self.training)


class InOutLinear(nn.Module):
    """A linear layer whose weight is stored (in, out), the other way round than in `nn.Linear`."""

    def __init__(self, in_dim: int, out_dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(in_dim, out_dim))
        self.bias = nn.Parameter(torch.empty(out_dim))

    def forward(self, x: Tensor) -> Tensor:
        """(..., in) to (..., out)."""
        return torch.addmm(self.bias, x.flatten(0, -2), self.weight).view(*x.shape[:-1], -1)
