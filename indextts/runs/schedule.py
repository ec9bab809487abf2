"""The learning rate as a pure function of the step and a few stored numbers: nothing to restore or lose.

    rate
    peak        .-~-.                      warm-up: linear to the peak
              /      `-.                   then:    half a cosine towards 0 just after the last step
            /            `-._
    0     /__________________`-.__ step

Where a run that stands after step a is told another peak, warm-up or length, its rate goes from the value it
has to the new curve in a straight line (the bridge), never in a jump:

    rate(s) = curve(s) + (anchor_rate - curve(a)) * max(0, 1 - (s - a) / bridge_steps)

How often a run validates where nobody said it: so rarely that it takes at most 1/20 of the training.

By operations, not by the clock, so that every machine chooses the same: a validation is a forward pass over
its pairs, a third of what a training step does with as many positions. Averaged weights are validated too,
which makes it twice that. The validations before the first step and after the last are not counted.
"""

import logging
import math
from dataclasses import dataclass, replace
from typing import Self

from indextts.commands.train import Train

logger = logging.getLogger(__name__)

SHORTEST_BRIDGE = 100  # steps; a warm-up of 0 is no wish for a jump in the middle of a run


@dataclass(frozen=True)
class Schedule:
    """Linear warm-up to `peak`, then a half cosine towards 0 at the end of the run, reached over a bridge.

    Args:
        total_steps: steps of the whole run; past them the rate stays where the last step had it.
        anchor_step, anchor_rate: where the bridge begins.
        bridge_steps: length of the bridge; 0 for none.
    """

    peak: float
    warmup_steps: int
    total_steps: int
    anchor_step: int = 0
    anchor_rate: float = 0.0
    bridge_steps: int = 0

    def learning_rate(self, step: int) -> float:
        """Return the rate of `step`, counted from 1; the last step still learns a little."""
        curve = self._curve(step)
        passed = step - self.anchor_step
        if passed >= self.bridge_steps:
            return curve
        left = 1 - max(0, passed) / self.bridge_steps
        # a bridge is at most half of the steps left, so the sum is below 0 by rounding alone
        return max(0.0, curve + (self.anchor_rate - self._curve(self.anchor_step)) * left)

    def re_anchored(self, step: int, *, peak: float, warmup_steps: int, total_steps: int) -> Self:
        """Return the schedule of a run that did `step` steps by this one and is told new numbers now."""
        if (peak, warmup_steps, total_steps) == (self.peak, self.warmup_steps, self.total_steps):
            return self
        plain = type(self)(peak, warmup_steps, total_steps)
        return plain.bridged(step, self.learning_rate(step))

    def bridged(self, step: int, rate: float) -> Self:
        """Return this schedule for a run whose rate was `rate` at `step`, the last that it did."""
        if step == 0 or rate == self.learning_rate(step):
            return self
        bridge = max(1, min(max(self.warmup_steps, SHORTEST_BRIDGE), (self.total_steps - step) // 2))
        return replace(self, anchor_step=step, anchor_rate=rate, bridge_steps=bridge)

    def _curve(self, step: int) -> float:
        if step < self.warmup_steps:
            return self.peak * step / self.warmup_steps
        # one more than the steps left, so that the cosine reaches 0 just after the last step
        num_steps = max(1, self.total_steps + 1 - self.warmup_steps)
        progress = min(step, self.total_steps) - self.warmup_steps
        return self.peak * 0.5 * (1 + math.cos(math.pi * max(0, progress) / num_steps))


@dataclass(frozen=True)
class EpochSize:
    """What an epoch holds.

    Args:
        num_samples: in all.
        num_positions: of the model's sequence, of all samples; 0 where that is not known.
        longest: positions of the longest sample.
    """

    num_samples: int
    num_positions: int = 0
    longest: int = 0

    def num_batches(self, batch_size: int, batch_tokens: int) -> int:
        """Return the micro-batches of a whole epoch, whatever its order.

        With a budget they are as many as are certain to suffice: the order is cut into this many pieces of
        the same number of positions, each cut at the end of a sample, so a piece may be up to one sample
        longer than the others.

        Args:
            batch_size: samples in a batch.
            batch_tokens: positions in a batch instead; 0 for none.
        """
        if batch_tokens and self.num_positions:
            return -(-self.num_positions // (batch_tokens - self.longest))
        return -(-self.num_samples // batch_size)

    def scaled(self, num_samples: int) -> Self:
        """Return what so many samples of the same kind hold."""
        num_positions = self.num_positions * num_samples // max(1, self.num_samples)
        return replace(self, num_samples=num_samples, num_positions=num_positions)


def steps_of_run(
    *,
    size: EpochSize,
    batch_size: int,
    batch_tokens: int,
    grad_accumulation: int,
    epochs: int,
    max_steps: int,
    step: int,
    epoch: int,
    samples_done: int,
) -> int:
    """Return the steps of the whole run, seen from where it stands.

    Counted from there, so that a batch size that changed in between changes the steps to come and not those
    that are done. Less than `step` where the run is already longer than `epochs` or `max_steps` ask for.

    Args:
        max_steps: 0 for no limit.
        size: of an epoch.
        batch_size, batch_tokens: as for `EpochSize.num_batches`; with a budget the steps that are left of an
            epoch are those of its share of samples, which may be one off.
        step, epoch, samples_done: what is done: whole epochs, and samples of the next.
    """
    rest = size.scaled(size.num_samples - samples_done)
    left_of_epoch = -(-rest.num_batches(batch_size, batch_tokens) // grad_accumulation)
    whole = -(-size.num_batches(batch_size, batch_tokens) // grad_accumulation)
    steps = step + left_of_epoch + (epochs - epoch - 1) * whole
    return min(steps, max_steps or steps)


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
