"""The learning rate as a pure function of the step and three stored numbers: nothing to restore or lose."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Schedule:
    """Linear warm-up to `peak`, then a half cosine towards 0 at the end of the run.

    Args:
        total_steps: steps of the whole run; past them the rate stays where the last step had it.
    """

    peak: float
    warmup_steps: int
    total_steps: int

    def learning_rate(self, step: int) -> float:
        """Return the rate of `step`, counted from 1; the last step still learns a little."""
        if step < self.warmup_steps:
            return self.peak * step / self.warmup_steps
        # one more than the steps left, so that the cosine reaches 0 just after the last step
        num_steps = max(1, self.total_steps + 1 - self.warmup_steps)
        progress = min(step, self.total_steps) - self.warmup_steps
        return self.peak * 0.5 * (1 + math.cos(math.pi * max(0, progress) / num_steps))
