"""Validation: losses on held-out pairs, always the same pairs in the same batches."""

import logging
from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass, field
from functools import reduce
from operator import add

import torch

from indextts.errors import UserError
from indextts.models.gpt.model import UnifiedVoice
from indextts.training.batches import PairDataset, Unreadable
from indextts.training.distributed.ranks import SINGLE_PROCESS, Ranks
from indextts.training.distributed.sharding import Sharding, all_reduce_losses
from indextts.training.loading import load_batches
from indextts.training.losses import LossMeans, LossSums, batch_sums
from indextts.training.order import in_batches, validation_order
from indextts.training.run import Inputs

logger = logging.getLogger(__name__)

SEEN, UNSEEN = "seen", "unseen"  # speakers
Group = tuple[str, str]  # of the speakers, and the language: batches of their own


@dataclass(frozen=True)
class Validation:
    """Mean losses over all pairs, and over the pairs of seen and unseen speakers.

    Args:
        by_speakers: keys SEEN and UNSEEN, where there are such pairs; empty if all speakers are seen.
        by_language: by ISO 639 code, "" for the language of the run; empty if there is only one.
        averaged: mean losses of the averaged weights over all pairs; None where there are none.
    """

    means: LossMeans
    by_speakers: dict[str, LossMeans]
    averaged: LossMeans | None = None
    by_language: dict[str, LossMeans] = field(default_factory=dict)


@dataclass(frozen=True)
class ValidationSettings:
    """Settings of a validation, which computes as the training of `inputs` does."""

    inputs: Inputs
    batch_size: int  # samples per batch; with several ranks, the mean per rank
    max_batches: int = 0  # maximum number of batches, from a fixed random choice of pairs; 0 for no limit
    first_new_token: int = 0  # size of the base vocabulary


def validate(
    model: UnifiedVoice,
    dataset: PairDataset,
    settings: ValidationSettings,
    *,
    should_stop: Callable[[], bool],
    trained_speakers: Set[str] | None = None,
    ranks: Ranks = SINGLE_PROCESS,
) -> Validation | None:
    """Return the mean losses over the tokens of all batches; None if `should_stop` became true meanwhile.

    Unreadable pairs are skipped, and their count is logged.

    Args:
        trained_speakers: pairs of other speakers form batches of their own; None puts all pairs together.
        ranks: each processes its shard, and all get the same result.
    """
    inputs = settings.inputs
    device = model.mel_head.weight.device  # the encoders may be on another device
    global_batch_size = settings.batch_size * ranks.world_size
    order = validation_order(len(dataset), global_batch_size, settings.max_batches)
    orders: dict[Group, list[int]] = {}
    for index in order:
        is_seen = trained_speakers is None or dataset.pairs.speaker_of(index) in trained_speakers
        orders.setdefault((SEEN if is_seen else UNSEEN, dataset.language_of(index)), []).append(index)
    sharding = Sharding(dataset, model.config.model_dim, ranks) if ranks.is_distributed else None
    totals: dict[Group, LossSums] = {}
    unreadable: list[Unreadable] = []
    is_stopped = False
    was_training = model.training
    model.eval()
    try:
        for group, indices in sorted(orders.items()):
            batches: Iterable[list[int]] = in_batches(indices, global_batch_size)
            if sharding is not None:
                batches = sharding.own_shards(batches)
            for micro_batch in load_batches(dataset, batches, 0, inputs.collate):
                if is_stopped := is_stopped or should_stop():
                    break
                unreadable += micro_batch.unreadable
                if micro_batch.batch is None:  # all of its samples are unreadable
                    continue
                is_autocast = inputs.dtype != torch.float32
                with torch.no_grad(), torch.autocast(device.type, inputs.dtype, enabled=is_autocast):
                    batch = micro_batch.batch.to(device)
                    sums = batch_sums(model, batch, inputs.attention, settings.first_new_token)
                totals[group] = totals[group] + sums if group in totals else sums
    finally:
        model.train(was_training)
    if ranks.any_rank(is_stopped):
        return None
    if ranks.is_distributed:
        unreadable = [each for part in ranks.all_gather(unreadable) for each in part]
        reduced = {group: all_reduce_losses(totals.get(group), ranks, device) for group in sorted(orders)}
        totals = {group: sums for group, sums in reduced.items() if sums is not None}
    if unreadable and ranks.is_main:
        logger.warning(
            "%d of %d validation pairs are unreadable and skipped; the first is %s: %s",
            len(unreadable),
            len(order),
            unreadable[0].id,
            unreadable[0].reason,
        )
    if not totals:
        raise UserError("None of the validation pairs is readable; run tools/preprocess_data.py again")
    return _means(totals)


def _means(totals: dict[Group, LossSums]) -> Validation:
    all_means = reduce(add, totals.values()).means()
    assert all_means is not None  # a batch has at least one stop token
    by_speakers, by_language = _parts(totals, 0), _parts(totals, 1)
    return Validation(
        all_means,
        by_speakers if UNSEEN in by_speakers else {},
        by_language=by_language if len(by_language) > 1 else {},
    )


def _parts(totals: dict[Group, LossSums], place: int) -> dict[str, LossMeans]:
    """Return the means over the groups that have the same value at a place of their key."""
    values = sorted({group[place] for group in totals})
    sums = {
        value: reduce(add, (part for group, part in totals.items() if group[place] == value))
        for value in values
    }
    means = {value: total.means() for value, total in sums.items()}
    return {value: mean for value, mean in means.items() if mean is not None}
