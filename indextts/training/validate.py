"""The losses on held-out pairs, always the same ones in the same batches."""

import logging
from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass

import torch

from indextts.errors import UserError
from indextts.models.gpt.attention import AttentionBackend
from indextts.models.gpt.model import UnifiedVoice
from indextts.training.batches import Collate, PairDataset, Unreadable, load_batches
from indextts.training.distributed.ranks import SINGLE_PROCESS, Ranks
from indextts.training.distributed.sharding import Sharding, all_reduce_losses
from indextts.training.losses import LossMeans, LossSums, batch_sums
from indextts.training.order import epoch_order, in_batches

logger = logging.getLogger(__name__)

# Not the run's seed: two runs shall be comparable.
VALIDATION_SEED = 0

SEEN, UNSEEN = "seen", "unseen"  # speakers


@dataclass(frozen=True)
class Validation:
    """The means of all pairs, and of those by speakers that are trained on and that are not.

    Args:
        by_speakers: under SEEN and UNSEEN, what there is of them; empty if all are seen.
        averaged: the means of all pairs with the averaged weights; None where there are none.
    """

    means: LossMeans
    by_speakers: dict[str, LossMeans]
    averaged: LossMeans | None = None


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
    trained_speakers: Set[str] | None = None,
    ranks: Ranks = SINGLE_PROCESS,
) -> Validation | None:
    """Return the means over tokens of all batches; None if `should_stop` said so in between.

    Pairs that cannot be read are left out, and counted in the log.

    Args:
        collate: makes the batches, as in training.
        backend: attention of packed batches.
        max_batches: at most so many batches, a fixed random choice of the pairs; 0 for all.
        trained_speakers: pairs of others make batches of their own; None if all are alike.
        ranks: each does its share, in batches of `batch_size` on average, and all get the same result.
    """
    device = model.mel_head.weight.device  # the encoders may be elsewhere
    order = epoch_order(len(dataset), VALIDATION_SEED, epoch=0)
    if max_batches:
        order = order[: max_batches * batch_size * ranks.world_size]
    orders: dict[str, list[int]] = {SEEN: [], UNSEEN: []}
    for index in order:
        is_seen = trained_speakers is None or dataset.pairs[index].speaker in trained_speakers
        orders[SEEN if is_seen else UNSEEN].append(index)
    sharding = None if not ranks.is_distributed else Sharding.of(dataset, model.config.model_dim, ranks)
    totals: dict[str, LossSums] = {}
    unreadable: list[Unreadable] = []
    is_stopped = False
    was_training = model.training
    model.eval()
    try:
        for part, indices in orders.items():
            batches: Iterable[list[int]] = in_batches(indices, batch_size * ranks.world_size)
            if sharding is not None:
                batches = sharding.own_shards(batches)
            for micro_batch in load_batches(dataset, batches, 0, collate):
                if is_stopped := is_stopped or should_stop():
                    break
                unreadable += micro_batch.unreadable
                batch = micro_batch.batch
                if batch is None:  # none of its samples can be read
                    continue
                with torch.no_grad(), torch.autocast(device.type, dtype, enabled=dtype != torch.float32):
                    sums = batch_sums(model, batch.to(device), backend, first_new_token)
                totals[part] = totals[part] + sums if part in totals else sums
    finally:
        model.train(was_training)
    if ranks.any_rank(is_stopped):
        return None
    if ranks.is_distributed:
        unreadable = [each for part in ranks.all_gather(unreadable) for each in part]
        found_sums = {part: all_reduce_losses(totals.get(part), ranks, device) for part in orders}
        totals = {part: sums for part, sums in found_sums.items() if sums is not None}
    if unreadable and ranks.is_main:
        logger.warning(
            "%d of %d pairs to validate on cannot be read, as %s: %s",
            len(unreadable),
            len(order),
            unreadable[0].id,
            unreadable[0].reason,
        )
    if not totals:
        raise UserError("None of the pairs to validate on can be read; preprocess again")
    means = {part: sums.means() for part, sums in totals.items()}
    whole = totals[SEEN] + totals[UNSEEN] if len(totals) == 2 else next(iter(totals.values()))
    found = whole.means()
    assert found is not None  # a batch has at least one stop token
    by_speakers = {part: mean for part, mean in means.items() if mean is not None and UNSEEN in means}
    return Validation(found, by_speakers)
