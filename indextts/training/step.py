"""The gradients of one step, from its micro-batches; what does not fit into memory is split.

    group of micro-batches --split--> parts that fit --forward, backward--> gradients, sums of losses

Losses are means over the tokens of the whole step: each token weighs the same, whatever part it is in. So a
step that was split has the same gradients as one that was not, up to rounding and the draws of dropout.

The gradient of a step from the shares of all processes.

    own share --forward, backward--> own part of the gradient --add_up--> the gradient, on all of them

The losses of a share are divided by the tokens of the whole step, so that the sum over all processes is what
one process would have computed. A process without a sample, as at the end of an epoch, adds zeros.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from indextts.errors import OUT_OF_MEMORY, UserError
from indextts.models.gpt.model import GPTBatch
from indextts.models.out_of_memory import is_out_of_memory
from indextts.training.batches import Batch, MicroBatch
from indextts.training.distributed.ranks import Ranks
from indextts.training.losses import LossSums, batch_sums
from indextts.training.order import mix
from indextts.training.run import Run

logger = logging.getLogger(__name__)

CODES_PER_SECOND = 50


def accumulate(run: Run, group: Sequence[MicroBatch]) -> tuple[LossSums, Tensor] | tuple[None, None]:
    """Leave the gradients of the step's loss in the parameters; return its sums and the loss, on the device.

    Where memory runs out the whole step is done again in smaller parts, so that no sample is lost or counted
    twice; the size that fits is kept.

    Returns:
        (None, None) if no sample of the group can be read.

    Raises:
        UserError: with status 7 if one sample alone does not fit.
    """
    batches = [part.batch for part in group if part.batch is not None]
    if not batches:
        return None, None
    num_text, num_mel = sum(batch.num_text for batch in batches), sum(batch.num_mel for batch in batches)
    return accumulate_batches(run, batches, num_text, num_mel)


def accumulate_batches(
    run: Run, batches: Sequence[Batch], num_text: int, num_mel: int
) -> tuple[LossSums, Tensor]:
    """Do the same for what could be read, at least one sample.

    Args:
        num_text, num_mel: tokens of the step that the loss is the mean of, of all processes.

    Raises:
        UserError: as `accumulate`.
    """
    while True:
        limit = run.state.micro_batch_limit
        parts = [part for batch in batches for part in (_split(batch, limit) if limit else [batch])]
        try:
            return _accumulate(run, parts, num_text, num_mel)
        except RuntimeError as error:  # torch.OutOfMemoryError is one
            if not is_out_of_memory(error):
                raise
            problem = str(error).splitlines()[0]
        # behind the except clause: the error holds the tensors of the failed pass
        run.trained.clear_gradients()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        run.state.micro_batch_limit = _smaller(parts, problem)
        logger.warning(
            "Out of memory (%s): the step is done again with micro-batches of at most %d",
            problem,
            run.state.micro_batch_limit,
        )


def _split(batch: Batch, limit: int) -> Sequence[Batch]:
    """Return parts of at most `limit` rows; padded texts stay as wide: the codes see their padding."""
    if not isinstance(batch, GPTBatch):
        return batch.split(limit)
    width = batch.text_ids.shape[1]
    return [
        replace(part, text_ids=F.pad(part.text_ids, (0, width - part.text_ids.shape[1])))
        for part in batch.split(limit)
    ]


def _accumulate(run: Run, parts: Sequence[Batch], num_text: int, num_mel: int) -> tuple[LossSums, Tensor]:
    command, inputs = run.inputs.command, run.inputs
    total: LossSums | None = None
    total_loss: Tensor | None = None
    for micro_step, part in enumerate(parts):
        # dropout is a function of the step, so that a resumed run draws what this one would have drawn
        torch.manual_seed(mix(command.seed, "dropout", run.state.step, micro_step, *inputs.ranks.seed_parts))
        with torch.autocast(inputs.device.type, inputs.dtype, enabled=inputs.dtype != torch.float32):
            sums = batch_sums(run.model, part.to(inputs.device), inputs.attention, run.base_size)
        text_loss, mel_loss = sums.text_nats / num_text, sums.mel_nats / num_mel
        loss = command.text_loss_weight * text_loss + command.mel_loss_weight * mel_loss
        run.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        sums, loss = sums.detach(), loss.detach()
        total = sums if total is None else total + sums
        total_loss = loss if total_loss is None else total_loss + loss
    assert total is not None
    assert total_loss is not None
    return total, total_loss


def _smaller(parts: Sequence[Batch], problem: str) -> int:
    """Return half the largest part's size.

    Raises:
        UserError: it is one sample.
    """
    largest = max(part.num_samples for part in parts)
    if largest > 1:
        return largest // 2
    longest = max(part.num_mel for part in parts) - 1  # without the stop
    raise UserError(
        f"Out of memory ({problem}) with a single sample; the longest of this step has {longest} codes "
        f"({longest / CODES_PER_SECOND:.0f} s). Use --amp or --grad-checkpointing, leave out the longest "
        "recordings, or take a device with more memory; the last checkpoint is untouched, go on with "
        "--resume auto",
        OUT_OF_MEMORY,
    )


# Gradients travel together up to this size: a message of its own for each norm and bias would take longer.
BUCKET_BYTES = 32 << 20
LARGE_BYTES = 4 << 20  # a message of its own, without a copy


def accumulate_share(
    run: Run, group: Sequence[MicroBatch], num_text: int, num_mel: int
) -> tuple[LossSums, Tensor] | tuple[None, None]:
    """Leave the gradients of the step's loss in the parameters, the same ones in every process.

    Args:
        group: own shares.
        num_text, num_mel: tokens of the step, of all processes.

    Returns:
        The sums of the own share, and the loss of the step; (None, None) if no sample of any share can be
        read.

    Raises:
        UserError: as `accumulate`.
    """
    if not num_mel:
        return None, None
    batches = [part.batch for part in group if part.batch is not None]
    device = run.inputs.device
    if batches:
        sums, loss = accumulate_batches(run, batches, num_text, num_mel)
    else:
        sums, loss = LossSums.nothing(device), torch.zeros((), device=device)
        run.scaler.scale(loss)  # makes the scale, which an update needs, where this was not done yet
    run.trained.fill_missing_gradients()
    run.trained.collect_gradients()
    loss = loss.clone()
    # whoever's memory ran out has said so: on a card the sum itself would wait for it without a word
    run.inputs.ranks.barrier()
    all_reduce_tensors([*run.trained.gradients(), loss], run.inputs.ranks)
    return sums, loss


def all_reduce_tensors(tensors: Iterable[Tensor], ranks: Ranks) -> None:
    """Replace each tensor by its sum over all processes; their order must be the same in all of them."""
    for bucket in in_buckets(tensors):
        if len(bucket) == 1 and bucket[0].is_contiguous():
            ranks.all_reduce(bucket[0])
            continue
        flat = torch.cat([tensor.reshape(-1) for tensor in bucket])
        ranks.all_reduce(flat)
        pieces = torch.split(flat, [tensor.numel() for tensor in bucket])
        for tensor, piece in zip(bucket, pieces, strict=True):
            tensor.copy_(piece.view_as(tensor))


def in_buckets(tensors: Iterable[Tensor]) -> Iterator[list[Tensor]]:
    """Yield the tensors that travel together, of one type each; a large one travels alone."""
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
