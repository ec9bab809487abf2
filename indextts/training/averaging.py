"""The averaged weights: an exponential moving average of what is trained, beside it.

    average <- average + (1 - d) * (weights - average)    after every step, d = min(decay, (1 + n) / (10 + n))

n counts the steps since the average began. The bound is TensorFlow's (`num_updates` of
`tf.train.ExponentialMovingAverage`): without it the untrained weights would stay in the average for some
1 / (1 - decay) steps. Frozen rows and the encoders never move, so they are not in it: it takes 4 bytes for
each trained value, on the device.
"""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from indextts.training.optim import Trained

logger = logging.getLogger(__name__)


@dataclass
class WeightAverage:
    """The average of the weights in `trained`.

    Args:
        decay: the largest share of the old average in the new one.
        weights: by parameter name, shaped as the parameter.
        num_updates: steps since it began; one that was skipped counts, but moves nothing.
    """

    trained: Trained
    decay: float
    weights: dict[str, Tensor]
    num_updates: int = 0

    @classmethod
    def from_weights(cls, trained: Trained, decay: float) -> "WeightAverage":
        """Return the average that begins with the weights as they are."""
        copies = {name: parameter.detach().clone() for name, parameter in trained.parameters.items()}
        return cls(trained, decay, copies)

    @torch.no_grad()
    def update(self, is_bad: Tensor) -> None:
        """Take in the weights after a step; nothing here waits for the device.

        Args:
            is_bad: `Update.is_bad`: where it is 1 nothing moves.
        """
        decay = min(self.decay, (1 + self.num_updates) / (10 + self.num_updates))
        share = (1.0 - is_bad) * (1.0 - decay)  # (), on the device
        for name, parameter in self.trained.parameters.items():
            self.weights[name].lerp_(parameter, share)
        self.num_updates += 1

    @contextmanager
    def swapped_in(self) -> Iterator[None]:
        """Swap the averaged weights into the model; both come back bit by bit.

        By content, one tensor at a time: the optimizer, the views of the text tables and compiled blocks hold
        on to the parameters' memory.
        """
        self._swap()
        try:
            yield
        finally:
            self._swap()

    @torch.no_grad()
    def _swap(self) -> None:
        for name, parameter in self.trained.parameters.items():
            raw = parameter.clone()
            parameter.copy_(self.weights[name])
            self.weights[name].copy_(raw)

    @property
    def content(self) -> dict[str, Any]:
        """Return what a checkpoint keeps of it."""
        return {"decay": self.decay, "num_updates": self.num_updates, "weights": dict(self.weights)}

    def restore(self, content: Mapping[str, Any]) -> None:
        """Take over what a checkpoint of this run's parameters kept."""
        with torch.no_grad():
            for name, tensor in self.weights.items():
                tensor.copy_(content["weights"][name])
        self.num_updates = content["num_updates"]


def start_average(trained: Trained, decay: float, kept: Mapping[str, Any] | None) -> WeightAverage | None:
    """Return the average of a run, None where `decay` is 0.

    Args:
        kept: what the checkpoint has of it, None where it has none.
    """
    if not decay:
        if kept:
            logger.warning("The averaged weights of the checkpoint are dropped: --ema-decay is 0")
        return None
    average = WeightAverage.from_weights(trained, decay)
    if kept:
        logger.info("Restoring averaged weights...")
        average.restore(kept)
    else:
        logger.info("Averaging the weights from this step on, with decay %g", decay)
    return average
