"""The gradient of a step from the shares of all processes.

    own share --forward, backward--> own part of the gradient --add_up--> the gradient, on all of them

The losses of a share are divided by the tokens of the whole step, so that the sum over all processes is what
one process would have computed. A process without a sample, as at the end of an epoch, adds zeros.
"""

from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor

from indextts.training.batches import MicroBatch
from indextts.training.distributed.ranks import Ranks
from indextts.training.losses import LossSums
from indextts.training.run import Run
from indextts.training.step import accumulate_batches

# Gradients travel together up to this size: a message of its own for each norm and bias would take longer.
BUCKET_BYTES = 32 << 20
LARGE_BYTES = 4 << 20  # a message of its own, without a copy


def accumulate_share(
    this: Run, group: Sequence[MicroBatch], num_text: int, num_mel: int
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
    device = this.inputs.device
    if batches:
        sums, loss = accumulate_batches(this, batches, num_text, num_mel)
    else:
        sums, loss = LossSums.nothing(device), torch.zeros((), device=device)
        this.scaler.scale(loss)  # makes the scale, which an update needs, where this was not done yet
    this.trained.fill_gradients()
    this.trained.collect_gradients()
    loss = loss.clone()
    # whoever's memory ran out has said so: on a card the sum itself would wait for it without a word
    this.inputs.ranks.wait_for_all()
    add_up([*this.trained.gradients(), loss], this.inputs.ranks)
    return sums, loss


def add_up(tensors: Iterable[Tensor], ranks: Ranks) -> None:
    """Replace each tensor by its sum over all processes; their order must be the same in all of them."""
    for bucket in in_buckets(tensors):
        if len(bucket) == 1 and bucket[0].is_contiguous():
            ranks.add_up(bucket[0])
            continue
        flat = torch.cat([tensor.reshape(-1) for tensor in bucket])
        ranks.add_up(flat)
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
