"""Learning-rate schedule of a run, and the size of an epoch.

The learning rate is a pure function of the step and a few stored numbers, so there is no state to restore.

    rate
    peak        .-~-.                      warm-up: linear to the peak
              /      `-.                   then:    half a cosine towards the floor just after the last step
    floor   /            `-.__
    0     /____________________ step

If peak, warm-up or length change after step a, the rate moves from its current value to the new curve in a
straight line (the bridge), without a jump:

    rate(s) = curve(s) + (anchor_rate - curve(a)) * max(0, 1 - (s - a) / bridge_steps)

--rewarm begins a new curve after step a: linear from the current rate to a new peak, then half a cosine
towards its floor.
"""

import math
from dataclasses import dataclass, replace
from typing import Self

SAMPLED_STEPS = 2_000  # of a long run, to find its highest rate
MIN_BRIDGE_STEPS = 100  # steps; a warm-up of 0 must not cause a jump in the middle of a run


@dataclass(frozen=True)
class Schedule:
    """Linear warm-up to `peak`, then a half cosine towards the floor, entered over a bridge.

    Args:
        total_steps: steps of the run; after the last step the rate stays constant.
        anchor_step, anchor_rate: the start of the bridge.
        bridge_steps: length of the bridge; 0 for none.
        start_step, start_rate: the start of the warm-up; not 0 after --rewarm.
        floor: the rate at the end of the run, as a share of the peak.
    """

    peak: float
    warmup_steps: int
    total_steps: int
    anchor_step: int = 0
    anchor_rate: float = 0.0
    bridge_steps: int = 0
    start_step: int = 0
    start_rate: float = 0.0
    floor: float = 0.0

    @property
    def warmup_end(self) -> int:
        """Step of the peak."""
        return self.start_step + self.warmup_steps

    def learning_rate(self, step: int) -> float:
        """Return the rate of `step`, counted from 1; the rate of the last step is above the floor."""
        curve = self._curve(step)
        passed = step - self.anchor_step
        if passed >= self.bridge_steps:
            return curve
        left = 1 - max(0, passed) / self.bridge_steps
        # A bridge spans at most half of the remaining steps, so only rounding can make the sum negative.
        return max(0.0, curve + (self.anchor_rate - self._curve(self.anchor_step)) * left)

    def re_anchored(
        self, step: int, *, peak: float, warmup_steps: int, total_steps: int, floor: float = 0.0
    ) -> Self:
        """Return the schedule of a run that followed this one for `step` steps and now has new settings."""
        curve = replace(self, peak=peak, warmup_steps=warmup_steps, total_steps=total_steps, floor=floor)
        if curve == self:
            return self
        curve = replace(curve, anchor_step=0, anchor_rate=0.0, bridge_steps=0)
        return curve.bridged(step, self.learning_rate(step))

    def rewarmed(self, step: int, rate: float, peak: float) -> Self:
        """Return the schedule with this warm-up and end that warms up to `peak` from `rate` at `step`."""
        return type(self)(
            peak, self.warmup_steps, self.total_steps, start_step=step, start_rate=rate, floor=self.floor
        )

    def highest_after(self, step: int) -> tuple[int, float]:
        """Return the step after `step` with the highest rate, and that rate; a long run is sampled."""
        stride = max(1, (self.total_steps - step) // SAMPLED_STEPS)
        corners = {self.warmup_end, self.anchor_step + self.bridge_steps}
        steps = [
            *range(step + 1, self.total_steps + 1, stride),
            *(corner for corner in corners if step < corner <= self.total_steps),
        ]
        return max(((each, self.learning_rate(each)) for each in steps), key=lambda found: found[1])

    def bridged(self, step: int, rate: float) -> Self:
        """Return this schedule with a bridge from `rate`, the rate at `step`, the last step done."""
        if step == 0 or rate == self.learning_rate(step):
            return self
        bridge = max(1, min(max(self.warmup_steps, MIN_BRIDGE_STEPS), (self.total_steps - step) // 2))
        return replace(self, anchor_step=step, anchor_rate=rate, bridge_steps=bridge)

    def _curve(self, step: int) -> float:
        if step < self.warmup_end:
            risen = (self.peak - self.start_rate) * (step - self.start_step) / self.warmup_steps
            return self.start_rate + risen
        # one more than the remaining steps, so that the cosine reaches the floor just after the last step
        num_steps = max(1, self.total_steps + 1 - self.warmup_end)
        progress = min(step, self.total_steps) - self.warmup_end
        left = 0.5 * (1 + math.cos(math.pi * max(0, progress) / num_steps))  # of the way down
        return self.peak * (self.floor + (1 - self.floor) * left)


@dataclass(frozen=True)
class EpochSize:
    """The size of an epoch."""

    num_samples: int
    num_positions: int = 0  # sequence positions of all samples; 0 if unknown
    longest: int = 0

    def num_batches(self, batch_size: int, batch_tokens: int) -> int:
        """Return the micro-batches of an epoch, in any order.

        With a token budget this is an upper bound: the epoch is cut into this many pieces of equal positions,
        each cut at the end of a sample, so a piece may be longer than the others by up to one sample.

        Args:
            batch_tokens: positions in a batch instead; 0 for no budget.
        """
        if batch_tokens and self.num_positions:
            return -(-self.num_positions // (batch_tokens - self.longest))
        return -(-self.num_samples // batch_size)

    def scaled(self, num_samples: int) -> Self:
        """Return the size of `num_samples` samples of the same average length."""
        num_positions = self.num_positions * num_samples // max(1, self.num_samples)
        return replace(self, num_samples=num_samples, num_positions=num_positions)
