"""Exponential moving average of the trained weights.

    average <- average + (1 - d) * (weights - average)    after every step, d = min(decay, (1 + n) / (10 + n))

n is the number of steps since the average started. The bound is that of TensorFlow (`num_updates` of
`tf.train.ExponentialMovingAverage`): without it the untrained weights would remain in the average for about
1 / (1 - decay) steps. Frozen rows and the encoders never change, so they are not averaged. The average takes
4 bytes per trained value on the device.
"""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from indextts.models.checkpoint import TEXT_TABLES
from indextts.training.optim import TrainedParameters

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class SavedAverage:
    """Averaged weights of a checkpoint.

    Args:
        weights: by name; text tables with the frozen rows too, so that they move as the model's do.
    """

    weights: Mapping[str, Tensor]
    num_updates: int

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Self | None:
        """Return the average in a checkpoint whose entry "model" has complete tables; None without one."""
        saved = content.get("averaged")
        if not saved:
            return None
        # a run without new pieces does not average the text tables, and one with other pieces will
        model = content["model"]
        weights = {name: model[name] for name in TEXT_TABLES if name in model}
        for name, values in saved["weights"].items():
            num_frozen = len(model[name]) - len(values) if name in model else 0  # adapters are not in it
            weights[name] = torch.cat([model[name][:num_frozen], values]) if num_frozen else values
        return cls(weights, saved["num_updates"])


@dataclass
class WeightAverage:
    """Average of the weights in `trained`."""

    trained: TrainedParameters
    decay: float  # maximum weight of the old average in the new one
    weights: dict[str, Tensor]
    num_updates: int = 0  # steps since the average started; skipped steps count but change nothing

    @torch.no_grad()
    def update(self, is_bad: Tensor) -> None:
        """Update the average after a step; does not wait for the device.

        Args:
            is_bad: 1 where the step was skipped, which leaves the average unchanged; else 0.
        """
        decay = min(self.decay, (1 + self.num_updates) / (10 + self.num_updates))
        weight = (1.0 - is_bad) * (1.0 - decay)  # (), on the device
        for name, parameter in self.trained.parameters.items():
            self.weights[name].lerp_(parameter, weight)
        self.num_updates += 1

    @contextmanager
    def swapped_in(self) -> Iterator[None]:
        """Swap the averaged weights into the model; afterwards, restore both exactly.

        The values are swapped one tensor at a time, since the optimizer, the views of the text tables and
        compiled blocks refer to the memory of the parameters.
        """
        self._swap()
        try:
            yield
        finally:
            self._swap()

    @torch.no_grad()
    def _swap(self) -> None:
        for name, parameter in self.trained.parameters.items():
            trained = parameter.clone()
            parameter.copy_(self.weights[name])
            self.weights[name].copy_(trained)

    @property
    def content(self) -> dict[str, Any]:
        """State of the average for a checkpoint."""
        return {"decay": self.decay, "num_updates": self.num_updates, "weights": dict(self.weights)}


def start_average(
    trained: TrainedParameters, decay: float, saved: SavedAverage | None
) -> WeightAverage | None:
    """Return the average of a run, None where `decay` is 0.

    Args:
        saved: the state from the checkpoint, None where it has none that the run can use.
    """
    if not decay:
        return None
    copies = {name: parameter.detach().clone() for name, parameter in trained.parameters.items()}
    if not saved:
        logger.info("Averaging the weights from this step on with --ema-decay %g", decay)
        return WeightAverage(trained, decay, copies)
    logger.info("Restoring the weight average...")
    for name, tensor in copies.items():
        if (complete := saved.weights.get(name)) is not None:  # else an adapter of another matrix than before
            tensor.copy_(complete[len(complete) - len(tensor) :])
    return WeightAverage(trained, decay, copies, saved.num_updates)
