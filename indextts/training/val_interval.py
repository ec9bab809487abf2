"""How often a run validates where nobody said it: so rarely that it takes at most 1/20 of the training.

By operations, not by the clock, so that every machine chooses the same: a validation is a forward pass over
its pairs, a third of what a training step does with as many positions. Averaged weights are validated too,
which makes it twice that. The validations before the first step and after the last are not counted.
"""

import logging
import math

from indextts.commands.train import Train
from indextts.runs.schedule import EpochSize

logger = logging.getLogger(__name__)

LARGEST_SHARE = 1 / 20
FORWARD_SHARE = 1 / 3  # of forward and backward


def with_val_interval(
    command: Train, train: EpochSize, validation: EpochSize, num_processes: int = 1
) -> Train:
    """Return the command with the interval between validations that holds; a typed one is not touched."""
    if "val_interval" in command.model_fields_set:
        return command
    interval = least_interval(command, train, validation, num_processes)
    if interval <= command.val_interval:
        return command
    logger.info(
        "Validating every %d steps and not every %d: so it takes at most 1/%d of the training "
        "(--val-interval sets it)",
        interval,
        command.val_interval,
        round(1 / LARGEST_SHARE),
    )
    return command.model_copy(update={"val_interval": interval})


def least_interval(command: Train, train: EpochSize, validation: EpochSize, num_processes: int = 1) -> int:
    """Return the fewest steps between validations that keep to the share.

    Args:
        train, validation: all pairs of either kind.
        num_processes: each has the batches that the command names.
    """
    pairs = validation.num_samples
    if command.max_val_batches:
        batch = num_processes * (command.val_batch_size or 2 * command.batch_size)
        pairs = min(pairs, command.max_val_batches * batch)
    passes = 2 if command.ema_decay else 1
    cost = passes * FORWARD_SHARE * validation.scaled(pairs).num_positions
    num_batches = train.num_batches(num_processes * command.batch_size, num_processes * command.batch_tokens)
    num_steps = math.ceil(num_batches / command.grad_accumulation)
    return math.ceil(cost / LARGEST_SHARE * num_steps / train.num_positions)
