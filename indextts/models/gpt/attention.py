"""Causal attention within the samples of a packed sequence, with one backend per device and type.

Axes: T positions of all samples end to end, B samples, H heads, d width of a head.

    name     devices     types              dropout   compiled   implementation
    varlen   CUDA        bfloat16, float16  no        yes        torch.nn.attention.varlen, flash attention
    jagged   CUDA        all                yes       no         SDPA on jagged nested tensors
    blocks   CPU, CUDA   all                yes       no         a loop over samples and blocks of queries

All backends are exact: a position attends to itself and to the earlier positions of its sample only.

Dropout is that of attention weights. Compiled means that a graph of torch.compile contains the attention as
one operator, as which torch registers `varlen`. On a CPU a compiled step was slower, so `blocks` is none.

`blocks` exists because torch's CPU kernels are slow with dropout: SDPA computes full matrices and draws a
Bernoulli number for every pair, including the masked half. For one sample of 362 positions, 8 heads of 64,
forward and backward with dropout 0.1, on one core of an AMD EPYC (Zen 5), SDPA took 25 ms in float32 and 18
ms in bfloat16; `blocks` took 8 and 4.4 ms (without dropout: 12 and 11 ms against 6.4 and 3.2 ms).
"""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from indextts.models.gpt.gpt2 import Attend, keep_mask, keep_scale

logger = logging.getLogger(__name__)

FLASH_3_PACKAGE = "flash_attn_interface"  # the module that torch imports
HALF = (torch.bfloat16, torch.float16)


@dataclass(frozen=True)
class Segments:
    """The boundaries of the samples in a packed sequence.

    Attributes:
        lengths: positions per sample, on the host, so that kernel launches need no synchronisation.
        offsets: (B+1,), int32, the first position of each sample and T, on the device of the sequence.
    """

    lengths: tuple[int, ...]
    offsets: Tensor

    def with_tail(self, num_positions: int) -> "Segments":
        """Return the boundaries of a sequence that is padded to `num_positions`.

        The tail becomes segments no longer than the longest sample: the samples do not attend to it, and its
        cost does not grow with the square of its length.
        """
        longest, tail = max(self.lengths), num_positions - sum(self.lengths)
        lengths = [longest] * (tail // longest) + [tail % longest] * (tail % longest > 0)
        if not lengths:
            return self
        more = torch.tensor(lengths, dtype=torch.int32).cumsum(0, dtype=torch.int32) + sum(self.lengths)
        if self.offsets.device.type == "cuda":
            more = more.pin_memory()  # else the copy would wait for the GPU
        more = more.to(self.offsets.device, non_blocking=True)
        return Segments((*self.lengths, *lengths), torch.cat([self.offsets, more]))


@dataclass(frozen=True)
class AttentionBackend:
    """An implementation of attention.

    Attributes:
        can_compile: a graph of torch.compile contains it as one operator.
        bind: returns an `Attend` for (T, H, d) with given segments.
    """

    name: str
    has_dropout: bool
    can_compile: bool
    bind: Callable[[Segments], Attend]


def choose_backend(device: torch.device, dtype: torch.dtype) -> AttentionBackend:
    """Return the fastest backend for arithmetic in `dtype` on `device`."""
    if device.type != "cuda":
        return BLOCKS
    return VARLEN if dtype in HALF and _has_varlen(device) else JAGGED


def _has_varlen(device: torch.device) -> bool:
    try:
        import torch.nn.attention.varlen
    except ImportError:
        return False
    # flash attention needs Ampere; without a GPU (in tests) assume a current one
    return not torch.cuda.is_available() or torch.cuda.get_device_capability(device) >= (8, 0)


def with_flash_attention_3(backend: AttentionBackend) -> AttentionBackend:
    """Return `varlen` with the kernels of FlashAttention 3 where its package is installed; else `backend`.

    They need a Hopper GPU (H100, H200). torch then uses them in the whole process, and refuses dropout.
    """
    is_hopper = torch.cuda.is_available() and torch.cuda.get_device_capability()[0] == 9
    if backend is not VARLEN or not is_hopper or find_spec(FLASH_3_PACKAGE) is None:
        return backend
    try:
        from torch.nn.attention import activate_flash_attention_impl

        activate_flash_attention_impl("FA3")
    except (ImportError, RuntimeError) as error:
        logger.warning("FlashAttention 3 is installed, but does not work with this PyTorch: %s", error)
        return backend
    return replace(backend, name="varlen (FlashAttention 3)")


def _varlen(segments: Segments) -> Attend:
    from torch.nn.attention.varlen import varlen_attn

    longest = max(segments.lengths)

    def attend(q: Tensor, k: Tensor, v: Tensor, _dropout: float) -> Tensor:
        offsets = segments.offsets
        attended = varlen_attn(q, k, v, offsets, offsets, longest, longest, window_size=(-1, 0))
        assert isinstance(attended, Tensor)
        return attended

    return attend


def _jagged(segments: Segments) -> Attend:
    # lengths from the host save a device-to-host copy in every layer
    known: dict[str, Any] = {"min_seqlen": min(segments.lengths), "max_seqlen": max(segments.lengths)}
    offsets = segments.offsets.long()

    def nested(x: Tensor) -> Tensor:
        return torch.nested.nested_tensor_from_jagged(x.contiguous(), offsets, **known).transpose(
            1, 2
        )  # (B, H, *, d)

    def attend(q: Tensor, k: Tensor, v: Tensor, dropout: float) -> Tensor:
        attended = F.scaled_dot_product_attention(
            nested(q), nested(k), nested(v), dropout_p=dropout, is_causal=True
        )
        packed: Tensor = attended.transpose(1, 2).values()
        return packed  # (T, H, d)

    return attend


def _blocks(segments: Segments) -> Attend:
    def attend(q: Tensor, k: Tensor, v: Tensor, dropout: float) -> Tensor:
        attended: Tensor = _BlockAttention.apply(q, k, v, segments.lengths, dropout)  # type: ignore[no-untyped-call]
        return attended

    return attend


VARLEN = AttentionBackend("varlen", has_dropout=False, can_compile=True, bind=_varlen)
JAGGED = AttentionBackend("jagged", has_dropout=True, can_compile=False, bind=_jagged)
BLOCKS = AttentionBackend("blocks", has_dropout=True, can_compile=False, bind=_blocks)


class _BlockAttention(torch.autograd.Function):
    """Causal attention per sample, in blocks of queries that see only the keys up to their last query.

    The backward pass keeps the probabilities of all blocks: about H * (n + block) / 2 values per position of
    a sample of length n, in the type of the queries.
    """

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, lengths: tuple[int, ...], dropout: float
    ) -> Tensor:
        # heads first: a block of queries of all heads is then one batched product
        q, k, v = (x.transpose(0, 1).contiguous() for x in (q, k, v))  # (H, T, d) each
        out = torch.empty_like(q)
        needs_backward = any(ctx.needs_input_grad)
        saved = []
        scale = q.shape[2] ** -0.5
        for first, start, stop in _query_blocks(lengths, q.dtype):
            # softmax in float32, whatever the type: bfloat16 has too few digits for a sum of hundreds
            scores = torch.bmm(q[:, start:stop], k[:, first:stop].transpose(1, 2)).float().mul_(scale)
            # keys up to the block's last query are loaded, so only its own square needs a mask
            diagonal = scores[:, :, start - first :]
            diagonal.add_(torch.full(diagonal.shape[1:], -torch.inf, device=q.device).triu_(1))
            weights = scores.softmax(-1).to(q.dtype)  # (H, stop-start, stop-first)
            # a mask of bytes: the backward pass keeps it, and a mask of floats would be four times as large
            kept = _draw_kept(weights, dropout) if dropout else None
            used = weights if kept is None else weights * kept
            out[:, start:stop] = torch.bmm(used, v[:, first:stop])
            if needs_backward:
                saved += [weights] if kept is None else [weights, kept]
        if dropout:
            out.mul_(keep_scale(dropout))  # once for the output, instead of for every weight
        ctx.save_for_backward(q, k, v, out, *saved)
        ctx.lengths, ctx.dropout = lengths, dropout
        return out.transpose(0, 1)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        q, k, v, out, *saved = ctx.saved_tensors
        blocks = iter(saved)
        gradient = gradient.transpose(0, 1).contiguous()  # (H, T, d)
        # Backward of softmax: subtract the weighted mean of the gradients of the weights. That mean is the
        # product of output and gradient, as in FlashAttention, so that no row of weights is summed again.
        mean = (gradient.float() * out.float()).sum(-1, keepdim=True)  # (H, T, 1)
        if ctx.dropout:
            gradient = gradient * keep_scale(ctx.dropout)
        scale = q.shape[2] ** -0.5
        # a query is in one block, so that dq is written; a key is in several, whose parts add up
        dq, dk, dv = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
        for first, start, stop in _query_blocks(ctx.lengths, q.dtype):
            weights = next(blocks)
            kept = next(blocks) if ctx.dropout else None
            d_out = gradient[:, start:stop]
            used = weights if kept is None else weights * kept
            dv[:, first:stop].baddbmm_(used.transpose(1, 2), d_out)
            d_scores = torch.bmm(d_out, v[:, first:stop].transpose(1, 2))  # gradient of the weights so far
            if kept is not None:
                d_scores.mul_(kept)
            d_scores.sub_(mean[:, start:stop]).mul_(weights).mul_(scale)
            dq[:, start:stop] = torch.bmm(d_scores, k[:, first:stop])
            dk[:, first:stop].baddbmm_(d_scores.transpose(1, 2), q[:, start:stop])
        return dq.transpose(0, 1), dk.transpose(0, 1), dv.transpose(0, 1), None, None


def _query_blocks(lengths: tuple[int, ...], dtype: torch.dtype) -> Iterator[tuple[int, int, int]]:
    """Yield for each block of queries: first position of its sample, first and end position of the block."""
    size = 128 if dtype in HALF else 64  # measured: small blocks waste less work, large ones multiply faster
    first = 0
    for length in lengths:
        for start in range(first, first + length, size):
            yield first, start, min(start + size, first + length)
        first += length


def _draw_kept(weights: Tensor, dropout: float) -> Tensor:
    if weights.device.type == "cpu":
        return keep_mask(weights.shape, dropout)
    return torch.rand(weights.shape, device=weights.device).ge_(dropout).to(torch.uint8)
