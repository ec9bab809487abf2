"""Which weights of a checkpoint are meant: those it was trained to, or their average beside them.

What `indextts.training.averaging` keeps under the key "averaged" is the average of the trained values alone,
of a text table the rows behind the base's; all else is in the model itself.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from indextts.commands.speech import Weights
from indextts.errors import UserError


def chosen_weights(content: Mapping[str, Any], chosen: Weights, path: Path) -> dict[str, Tensor]:
    """Return every weight of the model in a checkpoint, by name.

    Args:
        content: of the checkpoint at `path`, a run's.

    Raises:
        UserError: it has no averaged weights, or they are not those of its model.
    """
    weights: dict[str, Tensor] = dict(content["model"])
    if chosen == "raw":
        return weights
    kept = content.get("averaged")
    if not isinstance(kept, dict):
        raise UserError(
            f"{path}: has no averaged weights, its run was not given --ema-decay; leave out "
            "--weights averaged"
        )
    for name, average in kept["weights"].items():
        if name not in weights or weights[name].shape[1:] != average.shape[1:]:
            raise UserError(f"{path}: its averaged weights are not its model's ({name}); take --weights raw")
        num_frozen = len(weights[name]) - len(average)
        weights[name] = torch.cat([weights[name][:num_frozen], average]) if num_frozen else average
    return weights
