"""The micro-batches of each step of the training loop: loaded, counted, and unreadable samples noted."""

import logging
from collections.abc import Generator, Sequence

from indextts.errors import UserError
from indextts.system.signals import StopRequest
from indextts.training.batches import EmotionSource, MicroBatch, Unreadable, group_batches, is_too_many
from indextts.training.distributed.ranks import Ranks
from indextts.training.distributed.sharding import Sharding, load_shards
from indextts.training.gradients import TokenCounts
from indextts.training.loading import load_batches
from indextts.training.order import BatchPlan
from indextts.training.run import Run

logger = logging.getLogger(__name__)


def endless_groups(run: Run, stop: StopRequest) -> Generator[list[MicroBatch]]:
    """Yield the micro-batches of one step after another, from the run's position, epoch after epoch.

    Raises as `load_batches`.
    """
    inputs, state = run.inputs, run.state
    command = inputs.command
    target_shares = {"prompt": 0.0, "target": 1.0, "mixed": command.emotion_target_share}
    emotion = EmotionSource(target_shares[command.emotion_from], command.seed)
    train_set = inputs.train_set.with_emotion(emotion)

    def should_stop() -> bool:
        return stop.is_requested

    plan = BatchPlan(
        train_set.lengths,
        command.seed,
        inputs.ranks.world_size * command.batch_size,
        inputs.ranks.world_size * command.batch_tokens,
        state.epoch,
        state.samples_done,
        train_set.mix,
    )
    if not inputs.ranks.is_distributed:
        batches = load_batches(train_set, plan, command.num_workers, inputs.collate, should_stop)
    else:
        shares = Sharding(train_set, inputs.config.model_dim, inputs.ranks)
        batches = load_shards(train_set, plan, shares, command.num_workers, inputs.collate, should_stop)
    yield from group_batches(batches, plan.epoch_end_flags(), command.grad_accumulation)


def count_tokens(group: Sequence[MicroBatch] | None, ranks: Ranks) -> tuple[TokenCounts, int] | None:
    """Return the tokens of a step and its unreadable samples, over all ranks; None if a rank has no group."""
    parts = group or ()
    batches = [part.batch for part in parts if part.batch is not None]
    num_text, num_mel, num_unreadable, num_without = ranks.all_reduce_ints(
        [
            sum(batch.num_text for batch in batches),
            sum(batch.num_mel for batch in batches),
            sum(len(part.unreadable) for part in parts),
            group is None,
        ]
    )
    return None if num_without else (TokenCounts(num_text, num_mel), num_unreadable)


def note_unreadable(found: Sequence[Unreadable], group: Sequence[MicroBatch], run: Run) -> None:
    """Log each unreadable sample once, on rank 0, and forget those of the group that are readable again.

    Args:
        found: the unreadable samples of the group, on all ranks.

    Raises:
        UserError: there are too many.
    """
    known = run.state.unreadable
    known -= {id for part in group for id in part.ids} - {sample.id for sample in found}
    for sample in found:
        if sample.id in known:
            continue
        known.add(sample.id)
        if run.inputs.ranks.is_main:
            logger.warning("Skipped %s (%d so far): %s", sample.id, len(known), sample.reason)
    num_samples = len(run.inputs.train_set)
    if is_too_many(len(known), num_samples):
        raise UserError(
            f"{len(known)} of {num_samples} pairs cannot be read, such as {min(known)}; the last "
            "checkpoint is valid: preprocess again (check_amharic_data.py names the corrupt ones), then "
            "resume with --resume auto"
        )
