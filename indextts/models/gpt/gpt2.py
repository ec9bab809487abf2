"""The GPT-2 body: causal blocks without embeddings of its own.

Axes: B rows, T sequence positions, D width, H heads, d = D/H.

How positions see each other is an argument, `attend`, so that one body serves padded batches
(`causal_attention`), sequences packed end to end, and generation from a cache of keys and values.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from indextts.models.gpt.dropout import dropout

# q, k, v, each (..., positions, H, d), and the probability of dropping a weight -> (..., positions, H, d)
Attend = Callable[[Tensor, Tensor, Tensor, float], Tensor]


def causal_attention(q: Tensor, k: Tensor, v: Tensor, dropout_p: float) -> Tensor:
    """Every position attends to itself and all before it: (B, T, H, d) each, and so the result."""
    q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)  # (B, H, T, d)
    attended = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout_p, is_causal=True)
    return attended.transpose(1, 2)


class GPT2(nn.Module):
    """Embeddings (..., D) to states (..., D), after the last norm of the body.

    Attributes:
        recompute: compute the blocks a second time in the backward pass instead of keeping what is inside
            them: a third more work, far less memory.
    """

    def __init__(self, dim: int, layers: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.dropout = dropout
        self.recompute = False
        self.h = nn.ModuleList(Block(dim, heads, dropout) for _ in range(layers))
        self.ln_f = nn.LayerNorm(dim)

    def forward(self, x: Tensor, attend: Attend = causal_attention) -> Tensor:
        """States of the embeddings `x` (B, T, D), or of another layout that `attend` understands."""
        x = dropout(x, self.dropout, self.training)
        for block in self.h:
            if self.recompute and torch.is_grad_enabled():
                x = checkpoint(block, x, attend, use_reentrant=False)
            else:
                x = block(x, attend)
        states: Tensor = self.ln_f(x)
        return states

    def compile_blocks(self) -> None:
        """Compile what stands before and after the attention of each block, for sequences of any length."""
        for block in self.h:
            assert isinstance(block, Block)
            # as attributes of the instance, so that checkpoints and names stay as they are
            vars(block)["project"] = torch.compile(block.project, dynamic=True)
            vars(block)["absorb"] = torch.compile(block.absorb, dynamic=True)


class Block(nn.Module):
    def __init__(self, dim: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(dim)
        self.attn = Attention(dim, heads, dropout)
        self.ln_2 = nn.LayerNorm(dim)
        self.mlp = MLP(dim, dropout)

    def forward(self, x: Tensor, attend: Attend) -> Tensor:
        """One block on `x` (..., D)."""
        q, k, v = self.project(x).unbind(-3)
        return self.absorb(x, attend(q, k, v, self.attn.dropout if self.training else 0.0))

    def project(self, x: Tensor) -> Tensor:
        """Queries, keys and values (..., 3, H, d) of `x` (..., D)."""
        return self.attn.project(self.ln_1(x))

    def absorb(self, x: Tensor, attended: Tensor) -> Tensor:
        """The block's result (..., D) from its input `x` and what was `attended` (..., H, d)."""
        x = x + self.attn.merge(attended)
        x = x + self.mlp(self.ln_2(x))
        return x


class Attention(nn.Module):
    """The projections around the attention; dropping attention weights is up to who attends."""

    def __init__(self, dim: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        self.c_attn = InOutLinear(dim, 3 * dim)
        self.c_proj = InOutLinear(dim, dim)

    def project(self, x: Tensor) -> Tensor:
        """Queries, keys and values, (..., 3, H, d), of `x` (..., D)."""
        projected: Tensor = self.c_attn(x).view(*x.shape[:-1], 3, self.heads, -1)
        return projected

    def merge(self, attended: Tensor) -> Tensor:
        """Project what was `attended` (..., H, d) back to (..., D)."""
        return dropout(self.c_proj(attended.flatten(-2)), self.dropout, self.training)


class MLP(nn.Module):
    def __init__(self, dim: int, dropout: float) -> None:
        super().__init__()
        self.dropout = dropout
        self.c_fc = InOutLinear(dim, 4 * dim)
        self.c_proj = InOutLinear(4 * dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        """Widen `x` (..., D) four times, GELU (tanh form), narrow."""
        hidden = F.gelu(self.c_fc(x), approximate="tanh")  # (..., 4D)
        return dropout(self.c_proj(hidden), self.dropout, self.training)


class InOutLinear(nn.Module):
    """A linear layer whose weight is stored (in, out), the other way round than in `nn.Linear`."""

    def __init__(self, in_dim: int, out_dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(in_dim, out_dim))
        self.bias = nn.Parameter(torch.empty(out_dim))

    def forward(self, x: Tensor) -> Tensor:
        """(..., in) to (..., out)."""
        return torch.addmm(self.bias, x.flatten(0, -2), self.weight).view(*x.shape[:-1], -1)
