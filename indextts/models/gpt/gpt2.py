"""The GPT-2 body: causal blocks without embeddings, and a fast dropout for the CPU.

Axes: B rows, T sequence positions, D width, H heads, d = D/H.

The attention is an argument, `attend`, so that one body serves padded batches (`causal_attention`), packed
sequences, and generation with a cache of keys and values.

On a CPU torch draws a Bernoulli mask at about 4 ns a value, several times the cost of the softmax before it.
Here one 64-bit random number decides four values: each is dropped if its 16 bits are below p * 65536. This
rounds the probability to a multiple of 1/65536 (0.1 becomes 0.100006); the scale uses the rounded
probability, so the mean stays exact. On other devices torch's dropout is memory-bound and is used unchanged.

Both draw from torch's default generator, so `torch.manual_seed` makes them reproducible.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

# q, k, v, each (..., positions, H, d), and the probability of dropping a weight -> (..., positions, H, d)
Attend = Callable[[Tensor, Tensor, Tensor, float], Tensor]


def causal_attention(q: Tensor, k: Tensor, v: Tensor, dropout_p: float) -> Tensor:
    """Attend from every position to itself and all earlier ones; arguments and result are (B, T, H, d)."""
    q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)  # (B, H, T, d)
    attended = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout_p, is_causal=True)
    return attended.transpose(1, 2)


class GPT2(nn.Module):
    """Embeddings (..., D) to states (..., D), after the final norm of the body.

    Attributes:
        recompute: activation checkpointing of each block: a third more work, far less memory.
    """

    def __init__(self, dim: int, layers: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.dropout = dropout
        self.recompute = False
        self._compiled: Callable[[Tensor, Attend], Tensor] | None = None
        self._compiled_length = 0  # of the sequences; 0 for any
        self.h = nn.ModuleList(Block(dim, heads, dropout) for _ in range(layers))
        self.ln_f = nn.LayerNorm(dim)

    def forward(self, x: Tensor, attend: Attend = causal_attention) -> Tensor:
        """Return the states for the embeddings `x` (B, T, D), or another layout that `attend` supports."""
        x = dropout(x.to(self.ln_f.weight.dtype), self.dropout, self.training)
        for block in self.h:
            if self.recompute and torch.is_grad_enabled():
                x = checkpoint(block, x, attend, use_reentrant=False)
            else:
                x = block(x, attend)
        states: Tensor = self.ln_f(x)
        return states

    def compile_blocks(self, num_positions: int, backend: str = "inductor") -> None:
        """Compile all blocks as one graph, for training; validation and generation stay as they are.

        Args:
            num_positions: length of the packed sequences that use the graph; with 0, they have any length.
        """
        self._compiled = torch.compile(self.forward, fullgraph=True, dynamic=True, backend=backend)
        self._compiled_length = num_positions

    def do_not_compile(self) -> None:
        """Undo `compile_blocks`."""
        self._compiled = None

    def graph_length(self, num_positions: int) -> int | None:
        """Return the length to which to pad a packed sequence for the compiled graph; None to do without it.

        A sequence that would fill at most half of the graph's length does without.
        """
        if self._compiled is None or not (self.training and torch.is_grad_enabled()):
            return None
        length = self._compiled_length or num_positions
        return length if length // 2 < num_positions <= length else None

    def compiled_states(self, x: Tensor, attend: Attend) -> Tensor:
        """Return what `forward` does, from the compiled graph.

        Args:
            x: (T, D), of a length from `graph_length`.
            attend: calls one operator, see `AttentionBackend.can_compile`.
        """
        assert self._compiled is not None
        if self._compiled_length:
            torch._dynamo.mark_static(x)
        return self._compiled(x, attend)


class Block(nn.Module):
    def __init__(self, dim: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(dim)
        self.attn = Attention(dim, heads, dropout)
        self.ln_2 = nn.LayerNorm(dim)
        self.mlp = MLP(dim, dropout)

    def forward(self, x: Tensor, attend: Attend) -> Tensor:
        """Apply the block to `x` (..., D)."""
        q, k, v = self.attn.project(self.ln_1(x)).unbind(-3)
        x = x + self.attn.merge(attend(q, k, v, self.attn.dropout if self.training else 0.0))
        x = x + self.mlp(self.ln_2(x))
        return x


class Attention(nn.Module):
    """The projections around the attention; `attend` applies the dropout of attention weights."""

    def __init__(self, dim: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        self.c_attn = InOutLinear(dim, 3 * dim)
        self.c_proj = InOutLinear(dim, dim)

    def project(self, x: Tensor) -> Tensor:
        """Return queries, keys and values, (..., 3, H, d), of `x` (..., D)."""
        projected: Tensor = self.c_attn(x).view(*x.shape[:-1], 3, self.heads, -1)
        return projected

    def merge(self, attended: Tensor) -> Tensor:
        """Project the attention's output (..., H, d) back to (..., D)."""
        return dropout(self.c_proj(attended.flatten(-2)), self.dropout, self.training)


class MLP(nn.Module):
    def __init__(self, dim: int, dropout: float) -> None:
        super().__init__()
        self.dropout = dropout
        self.c_fc = InOutLinear(dim, 4 * dim)
        self.c_proj = InOutLinear(4 * dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        """Project `x` (..., D) to 4D, apply GELU (tanh form), project back."""
        hidden = F.gelu(self.c_fc(x), approximate="tanh")  # (..., 4D)
        return dropout(self.c_proj(hidden), self.dropout, self.training)


class InOutLinear(nn.Module):
    """A linear layer whose weight is stored (in, out), transposed compared with `nn.Linear`.

    Attributes:
        adapter: added to the output; None except in a LoRA run (`indextts.models.lora`).
    """

    def __init__(self, in_dim: int, out_dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(in_dim, out_dim))
        self.bias = nn.Parameter(torch.empty(out_dim))
        self.adapter: Adapter | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., in) to (..., out)."""
        rows = x if x.dim() == 2 else x.flatten(0, -2)
        result = torch.addmm(self.bias, rows, self.weight)
        if self.adapter is not None:
            result = self.adapter(rows, result)
        return result if x.dim() == 2 else result.view(*x.shape[:-1], -1)


class Adapter(nn.Module):
    """A product of two low-rank matrices, a (in, r) and b (r, out), beside a frozen matrix."""

    def __init__(self, a: Tensor, b: Tensor, scale: float) -> None:
        super().__init__()
        self.a, self.b = nn.Parameter(a), nn.Parameter(b)
        self.scale = scale

    def forward(self, rows: Tensor, result: Tensor) -> Tensor:
        """Return `result` (N, out) + scale x rows (N, in) a b."""
        return torch.addmm(result, rows @ self.a, self.b, alpha=self.scale)


LEVELS = 65536  # of the 16 random bits per value


def dropout(x: Tensor, probability: float, training: bool) -> Tensor:
    """Drop values of `x` (...) with `probability`, scale the rest up; return `x` itself if not training."""
    if not training or probability == 0.0:
        return x
    if x.device.type != "cpu":
        return F.dropout(x, probability)
    result: Tensor = _Dropout.apply(x, probability)  # type: ignore[no-untyped-call]
    return result


def keep_mask(shape: torch.Size, probability: float) -> Tensor:
    """Draw a dropout mask on the CPU, 1 for kept and 0 for dropped values: uint8 of `shape`.

    uint8, because torch vectorises comparison and product with it, unlike with bool.
    """
    size = shape.numel()
    words = torch.empty(-(-size // 4), dtype=torch.int64).random_(-(2**63), None)
    bits = words.view(torch.int16)[:size]
    return torch.ge(bits, _threshold(probability), out=torch.empty(size, dtype=torch.uint8)).view(shape)


def keep_scale(probability: float) -> float:
    """Return the factor of kept values that preserves the mean."""
    return LEVELS / (LEVELS // 2 - _threshold(probability))


def _threshold(probability: float) -> int:
    """Return the bound below which a signed 16-bit number means dropped."""
    return round(probability * LEVELS) - LEVELS // 2


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, probability: float) -> Tensor:
        kept = keep_mask(x.shape, probability)
        ctx.save_for_backward(kept)
        ctx.scale = keep_scale(probability)
        return (x * kept).mul_(ctx.scale)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (kept,) = ctx.saved_tensors
        return (gradient * kept).mul_(ctx.scale), None
