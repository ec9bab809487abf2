"""Losses of the two heads: nats per position, sums over positions, means.

Axes: B rows, T positions, N text tokens, M codes, V+1 rows of the text head, C classes of a head, P packed
positions, D model width.

    padded: GPTOutput --padded_sums--> LossSums + LossSums + ... --means--> LossMeans
    packed: PackedBatch --packed_sums--> LossSums

A loss is a mean over tokens, not over rows or batches. So sums are accumulated and divided once: by the
tokens of all micro-steps of a step, of a whole validation set, or of all steps since the last log line.

For packed batches `head_loss` computes the cross-entropy of a linear head in chunks, so that the logits of
all positions never exist at once. It computes the gradients in the forward pass, while the logits of a chunk
exist; it keeps nothing of the size of the logits and multiplies with the head's weight only once. Softmax and
loss are float32, whatever the data type of the matrix products.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from indextts.models.gpt.attention import AttentionBackend
from indextts.models.gpt.model import GPTBatch, GPTOutput, TensorFields, UnifiedVoice
from indextts.models.gpt.packed import PackedBatch, packed_states

IGNORED = -100

# of the float32 logits of one chunk: large enough for fast products, small enough for a CPU's cache
CHUNK_BYTES = {"cpu": 32 << 20, "cuda": 512 << 20}
MIN_ROWS = 64


@dataclass(frozen=True)
class LossSums(TensorFields):
    """Sums over tokens: 0-dimensional tensors on the device; the sums of nats have gradients.

    Attributes:
        text_nats: cross-entropy of the text tokens, float32.
        text_tokens: number of text tokens with one stop token per row, int64.
        mel_nats: cross-entropy of the codes, float32.
        mel_tokens: number of codes with one stop code per row, int64.
        mel_hits: number of codes whose logit was the highest, int64.
        new_text_nats: part of `text_nats` whose targets are new tokens; without a gradient in a packed batch.
        new_text_tokens: number of new tokens, int64; may be 0.
    """

    text_nats: Tensor
    text_tokens: Tensor
    mel_nats: Tensor
    mel_tokens: Tensor
    mel_hits: Tensor
    new_text_nats: Tensor
    new_text_tokens: Tensor

    def __add__(self, other: "LossSums") -> "LossSums":
        return LossSums(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def detach(self) -> "LossSums":
        """Return the same sums without their autograd graph."""
        return self.each(Tensor.detach)

    @classmethod
    def nothing(cls, device: torch.device) -> "LossSums":
        """Return the sums over no tokens."""
        counts = torch.zeros((), dtype=torch.int64, device=device)
        nats = torch.zeros((), device=device)
        return cls(nats, counts, nats, counts, counts, nats, counts)

    def numbers(self) -> list[float]:
        """Return the sums as Python numbers; reads the device once."""
        # float64 holds the counts exactly, which float32 would not from 16.7 million tokens on
        stacked = torch.stack([value.detach().double() for value in self._values()])
        return stacked.tolist()

    def with_numbers(self, numbers: Sequence[float]) -> "LossSums":
        """Return sums with other values, of the same types and on the same device."""
        pairs = zip(self._values(), numbers, strict=True)
        return LossSums(*(torch.full_like(value, number) for value, number in pairs))

    def unless(self, is_bad: Tensor) -> "LossSums":
        """Return the same sums, or zeros where `is_bad` (0-dimensional) is not 0, without a device wait."""
        return self.each(lambda value: torch.where(is_bad == 0, value, torch.zeros_like(value)))

    def _values(self) -> list[Tensor]:
        return [getattr(self, f.name) for f in fields(self)]

    def means(self) -> "LossMeans | None":
        """Return the means as Python numbers, None where no token was counted; reads the device once."""
        sums = self.numbers()  # one stack of seven: each number read alone would wait for the device
        text_nats, text_tokens, mel_nats, mel_tokens, mel_hits, new_text_nats, new_text_tokens = sums
        if not mel_tokens:
            return None
        return LossMeans(
            text_loss=text_nats / text_tokens,
            mel_loss=mel_nats / mel_tokens,
            mel_top1=mel_hits / mel_tokens,
            new_text_loss=new_text_nats / new_text_tokens if new_text_tokens else None,
        )


@dataclass(frozen=True)
class LossMeans:
    """Nats per token, and `mel_top1` as a fraction; `new_text_loss` is None without new tokens."""

    text_loss: float
    mel_loss: float
    mel_top1: float
    new_text_loss: float | None


def batch_sums(
    model: UnifiedVoice, batch: GPTBatch | PackedBatch, backend: AttentionBackend, first_new_token: int
) -> LossSums:
    """Return the sums of a padded or packed batch; call it under the autocast of the forward pass.

    In a packed batch every sample has the losses that it would have alone. In a padded batch it has those of
    the published trainer, where a sample's codes also attend to the padding of its text. `backend` is for
    packed batches.
    """
    if isinstance(batch, PackedBatch):
        return packed_sums(model, batch, backend, first_new_token)
    return padded_sums(model(batch), first_new_token)


def packed_sums(
    model: UnifiedVoice, batch: PackedBatch, backend: AttentionBackend, first_new_token: int
) -> LossSums:
    """Return the sums of a packed batch; text tokens from `first_new_token` on are new."""
    text_states, mel_states = packed_states(model, batch, backend)
    text_nats, of_positions, _ = head_loss(text_states, model.text_head, batch.text_targets)
    mel_nats, _, is_hit = head_loss(mel_states, model.mel_head, batch.mel_targets)
    is_new = batch.text_targets >= first_new_token

    def count(number: int) -> Tensor:
        return torch.full((), number, device=is_new.device)  # not copied from the host: that would wait

    return LossSums(
        text_nats=text_nats,
        text_tokens=count(batch.num_text),
        mel_nats=mel_nats,
        mel_tokens=count(batch.num_mel),
        mel_hits=is_hit.sum(),
        new_text_nats=of_positions.where(is_new, 0.0).sum(),
        new_text_tokens=is_new.sum(),
    )


def head_loss(states: Tensor, head: nn.Linear, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the loss of `head` on `states` (P, D) and `targets` (P,); products use the autocast type.

    Returns:
        The sum of the cross-entropy, float32, with a gradient; that of each position, (P,), without one; and
        (P,), True where the logit of the target was the highest.
    """
    kind = states.device.type
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else states.dtype
    rows = max(MIN_ROWS, CHUNK_BYTES.get(kind, CHUNK_BYTES["cpu"]) // (4 * head.out_features))
    # `_HeadLoss` decides about the type of each product itself
    with torch.autocast(kind, enabled=False):
        nats, position_nats, is_hit = _HeadLoss.apply(  # type: ignore[no-untyped-call]
            states, head.weight, head.bias, targets, rows, dtype, torch.is_grad_enabled()
        )
    return nats, position_nats, is_hit


def padded_sums(output: GPTOutput, first_new_token: int) -> LossSums:
    """Return the sums of a padded batch, in float32; text tokens from `first_new_token` on are new."""
    text_nats = masked_nats(output.text_logits, output.text_targets, output.text_mask)
    best_codes = output.mel_logits.detach().argmax(dim=-1)  # (B, M+2)
    is_new = output.text_mask & (output.text_targets >= first_new_token)
    return LossSums(
        text_nats=text_nats.sum(),
        text_tokens=output.text_mask.sum(),
        mel_nats=masked_nats(output.mel_logits, output.mel_targets, output.mel_mask).sum(),
        mel_tokens=output.mel_mask.sum(),
        mel_hits=((best_codes == output.mel_targets) & output.mel_mask).sum(),
        new_text_nats=text_nats.where(is_new, 0.0).sum(),
        new_text_tokens=is_new.sum(),
    )


def masked_nats(logits: Tensor, targets: Tensor, mask: Tensor) -> Tensor:
    """Return the cross-entropy per position, 0 outside `mask`.

    Args:
        logits: (B, T, C).
        targets: (B, T).
        mask: (B, T).

    Returns:
        (B, T), float32.
    """
    counted = targets.masked_fill(~mask, IGNORED)
    # float32 even from half precision: a sum over thousands of classes would lose its last digits
    nats = F.cross_entropy(
        logits.flatten(0, 1).float(), counted.flatten(), reduction="none", ignore_index=IGNORED
    )  # (B*T,)
    return nats.view_as(mask)


class _HeadLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        states: Tensor,
        weight: Tensor,
        bias: Tensor,
        targets: Tensor,
        num_rows: int,
        dtype: torch.dtype,
        needs_gradient: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:
        cast_weight, cast_bias = weight.to(dtype), bias.to(dtype)
        position_nats = torch.empty(len(states), device=states.device)
        is_hit = torch.empty(len(states), dtype=torch.bool, device=states.device)
        if needs_gradient:
            # in the types of the parameters: the parts of many chunks are added without rounding to `dtype`
            d_states = torch.empty_like(states)
            d_weight = torch.zeros_like(weight)
            d_bias = torch.zeros_like(bias)
        for start in range(0, len(states), num_rows):
            part = slice(start, start + num_rows)
            chunk, target = states[part].to(dtype), targets[part]
            logits = torch.addmm(cast_bias, chunk, cast_weight.t()).float()  # (rows, C)
            # log-softmax by hand, since the same exponentials make the gradient below; the highest logit is
            # subtracted first, or exp would overflow
            highest, best = logits.max(dim=1)
            is_hit[part] = best == target
            position_nats[part] = highest - logits.gather(1, target[:, None])[:, 0]
            logits.sub_(highest[:, None]).exp_()  # in place: a chunk is as large as the cache
            total = logits.sum(dim=1)
            position_nats[part] += total.log()
            if not needs_gradient:
                continue
            d_logits = logits.div_(total[:, None])  # the softmax, minus 1 at the target
            d_logits.scatter_add_(1, target[:, None], torch.full_like(total, -1.0)[:, None])
            d_bias += d_logits.sum(dim=0)
            d_logits = d_logits.to(dtype)
            d_states[part] = torch.mm(d_logits, cast_weight)
            if dtype == d_weight.dtype:  # the product adds itself; of two types it needs a copy
                d_weight.addmm_(d_logits.t(), chunk)
            else:
                d_weight += torch.mm(d_logits.t(), chunk)
        if needs_gradient:
            ctx.gradients = (d_states, d_weight, d_bias)
        ctx.mark_non_differentiable(position_nats, is_hit)
        return position_nats.sum(), position_nats, is_hit

    @staticmethod
    def backward(
        ctx: Any, gradient: Tensor, _position_nats: Tensor, _is_hit: Tensor
    ) -> tuple[Tensor | None, ...]:
        # for one backward pass: scaled in place and released, before the blocks need their memory
        d_states, d_weight, d_bias = ctx.gradients
        del ctx.gradients
        return d_states.mul_(gradient), d_weight.mul_(gradient), d_bias.mul_(gradient), None, None, None, None
