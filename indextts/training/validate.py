"""The losses on held-out pairs, always the same ones in the same batches."""

import logging
from collections.abc import Callable

import torch

from indextts.errors import UserError
from indextts.gpt.attention import AttentionBackend
from indextts.gpt.model import UnifiedVoice
from indextts.training.batches import Collate, PairDataset, Unreadable, load_batches
from indextts.training.losses import LossMeans, LossSums, batch_sums
from indextts.training.order import epoch_order, in_batches

logger = logging.getLogger(__name__)

# Not the run's seed: two runs shall be comparable.
VALIDATION_SEED = 0


def validate(
    model: UnifiedVoice,
    dataset: PairDataset,
    *,
    collate: Collate,
    backend: AttentionBackend,
    batch_size: int,
    max_batches: int,
    first_new_token: int,
    dtype: torch.dtype,
    should_stop: Callable[[], bool],
) -> LossMeans | None:
    """Return the means over tokens of all batches; None if `should_stop` said so in between.

    Pairs that cannot be read are left out, and counted in the log.

    Args:
        collate: makes the batches, as in training.
        backend: attention of packed batches.
        max_batches: at most so many batches, a fixed random choice of the pairs; 0 for all.
    """
    device = model.mel_head.weight.device  # the encoders may be elsewhere
    order = epoch_order(len(dataset), VALIDATION_SEED, epoch=0)
    if max_batches:
        order = order[: max_batches * batch_size]
    total: LossSums | None = None
    unreadable: list[Unreadable] = []
    was_training = model.training
    model.eval()
    try:
        for micro_batch in load_batches(dataset, in_batches(order, batch_size), 0, collate):
            if should_stop():
                return None
            unreadable += micro_batch.unreadable
            batch = micro_batch.batch
            if batch is None:  # none of its samples can be read
                continue
            with torch.no_grad(), torch.autocast(device.type, dtype, enabled=dtype != torch.float32):
                sums = batch_sums(model, batch.to(device), backend, first_new_token)
            total = sums if total is None else total + sums
    finally:
        model.train(was_training)
    if unreadable:
        logger.warning(
            "%d of %d pairs to validate on cannot be read, as %s: %s",
            len(unreadable),
            len(order),
            unreadable[0].id,
            unreadable[0].reason,
        )
    if total is None:
        raise UserError("None of the pairs to validate on can be read; preprocess again")
    if unreadable:
        logger.warning(
            "%d pairs to validate on are left out, as %s: %s",
            len(unreadable),
            unreadable[0].id,
            unreadable[0].reason,
        )
    return total.means()
