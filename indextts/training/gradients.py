"""Gradients of a step: micro-batches that fit into memory, and the sum over ranks.

A step whose memory runs out is repeated in smaller parts. Losses are means over the tokens of the whole step,
so a split step has the same gradients, up to rounding and the draws of dropout.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from indextts.errors import OUT_OF_MEMORY, UserError
from indextts.models.gpt.config import GPTConfig
from indextts.models.gpt.model import GPTBatch
from indextts.models.out_of_memory import is_out_of_memory
from indextts.training.batches import Batch
from indextts.training.distributed.ranks import Ranks
from indextts.training.run import Run

logger = logging.getLogger(__name__)

LIMITED_STEPS = 1000  # a try of whole micro-batches that fails costs one step of them
# Small gradients travel together up to this size: one message for each norm and bias would take longer.
BUCKET_BYTES = 32 << 20
LARGE_BYTES = 4 << 20  # a message of its own, without a copy

ResultT = TypeVar("ResultT")


@dataclass(frozen=True)
class TokenCounts:
    """Targets of a step on all ranks, stop tokens included."""

    num_text: int
    num_mel: int


def in_parts_that_fit(
    run: Run, batches: Sequence[Batch], compute: Callable[[Sequence[Batch]], ResultT]
) -> ResultT:
    """Return what `compute` makes of the batches, split into parts where memory runs out.

    After a failure the whole step is computed again in parts of half the size, so that no sample is lost or
    counted twice. The size that fits is kept for the next LIMITED_STEPS steps; then whole micro-batches are
    tried again, since another program may have used the memory.

    Args:
        batches: at least one.
        compute: forward and backward; adds to the gradients.

    Raises:
        UserError: with status 7 if a single sample does not fit.
    """
    state, config = run.state, run.model.config
    if state.position_limit and state.step - state.limited_at >= LIMITED_STEPS:
        state.position_limit = 0
        logger.info("Trying whole micro-batches again, %d steps after the memory ran out", LIMITED_STEPS)
    while True:
        # always from the whole batches: what an earlier try computed is thrown away with its gradients
        parts = [part for batch in batches for part in _split(batch, state.position_limit, config)]
        try:
            return compute(parts)
        except RuntimeError as error:  # torch.OutOfMemoryError is one
            if not is_out_of_memory(error):
                raise
            problem = str(error).splitlines()[0]
        # after the except clause: the error holds the tensors of the failed pass
        run.trained.clear_gradients()  # the parts that did fit have left theirs
        if torch.cuda.is_available():
            torch.cuda.empty_cache()  # its blocks have the sizes of the failed pass; smaller ones are next
        state.position_limit, state.limited_at = _smaller_limit(parts, problem), state.step
        logger.warning(
            "Out of memory (%s): repeating the step with micro-batches of at most %d positions",
            problem,
            state.position_limit,
        )


def all_reduce_gradients(run: Run, loss: Tensor) -> None:
    """Replace the gradients and the loss by their sums over all ranks."""
    run.trained.fill_missing_gradients()  # every rank must reduce the same tensors in the same order
    run.trained.collect_gradients()
    # a rank whose memory ran out has reported it here: on a GPU the sum itself would wait for it in silence
    run.inputs.ranks.barrier()
    all_reduce_tensors([*run.trained.gradients(), loss], run.inputs.ranks)


def all_reduce_tensors(tensors: Iterable[Tensor], ranks: Ranks) -> None:
    """Replace each tensor by its sum over all ranks; the order must be the same on each."""
    for bucket in in_buckets(tensors):
        if len(bucket) == 1 and bucket[0].is_contiguous():  # in place: a copy of a large table takes memory
            ranks.all_reduce(bucket[0])
            continue
        flat = torch.cat([tensor.reshape(-1) for tensor in bucket])
        ranks.all_reduce(flat)
        pieces = torch.split(flat, [tensor.numel() for tensor in bucket])
        for tensor, piece in zip(bucket, pieces, strict=True):
            tensor.copy_(piece.view_as(tensor))


def in_buckets(tensors: Iterable[Tensor]) -> Iterator[list[Tensor]]:
    """Yield tensors that travel together, of one type each; a large one travels alone."""
    open_buckets: dict[torch.dtype, list[Tensor]] = {}
    for tensor in tensors:
        if tensor.nbytes >= LARGE_BYTES:
            yield [tensor]
            continue
        bucket = open_buckets.setdefault(tensor.dtype, [])
        bucket.append(tensor)
        if sum(each.nbytes for each in bucket) >= BUCKET_BYTES:
            yield open_buckets.pop(tensor.dtype)
    yield from open_buckets.values()


def _split(batch: Batch, limit: int, config: GPTConfig) -> Sequence[Batch]:
    """Return parts of at most `limit` positions, all in one if it is 0."""
    if not limit or batch.num_positions <= limit:
        return [batch]
    return batch.split(limit) if isinstance(batch, GPTBatch) else batch.split(limit, config)


def _smaller_limit(parts: Sequence[Batch], problem: str) -> int:
    """Return half the size of the largest part."""
    # of the largest part and not of the limit before: the batches may have been smaller than that
    largest = max(parts, key=lambda part: part.num_positions)
    if largest.num_samples > 1:
        return largest.num_positions // 2
    longest = max(part.num_mel for part in parts) - 1  # without the stop token, as users count codes
    raise UserError(
        f"Out of memory ({problem}) with a single sample; the longest of this step has {longest} codes. Use "
        "--amp or --grad-checkpointing, leave out the longest recordings, or use a GPU with more memory; the "
        "last checkpoint is valid, resume with --resume auto",
        OUT_OF_MEMORY,
    )
