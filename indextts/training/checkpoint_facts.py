"""What a loaded checkpoint says of itself, ours or another program's, and the moments in it by name.

ours        key "meta" (`indextts.models.checkpoint.meta_of`), the optimizer's groups have "param_names"
another's   no "meta"; `AdamW(model.parameters())` without names, which `predecessor_optimizer` finds

Names for an optimizer state that has none: the predecessor's, and the published trainer's.

Both made `AdamW(model.parameters())`: one group of all parameters, numbered in the order of the model. The
state dict of the trained model in the same file has that order too, between buffers and second names of the
same weight; so the n-th parameter's name is the n-th name in it that is a parameter's.

    optimizer["param_groups"][..]["params"]   0 1 2 3 4 ...      all parameters
    optimizer["state"]                        {0: .., 3: ..}     those that ever had a gradient
    model                                     name -> tensor     parameters and more, in the same order

Of the text tables the moments of the frozen base rows are cut off: nothing steps there any more.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from indextts.errors import RESUME_REFUSED, UserError
from indextts.models.checkpoint import table_rows
from indextts.models.weight_names import canonical_names
from indextts.runs.directory import CheckpointMeta
from indextts.runs.restore_facts import CheckpointFacts


@dataclass(frozen=True)
class OptimizerLayout:
    """What tells which moments are whose in an optimizer without names.

    Args:
        parameter_names: of the whole model.
        trained: shape of what the run trains, by name; of a text table the rows from `base_size` on.
    """

    parameter_names: frozenset[str]
    trained: dict[str, tuple[int, ...]]
    base_size: int


def checkpoint_facts(
    content: Mapping[str, Any], path: Path, meta: CheckpointMeta | None, layout: OptimizerLayout
) -> CheckpointFacts:
    """Return the facts of a checkpoint that was read.

    Raises:
        UserError: with status 3 if it is none.
    """
    weights = content["model"]
    if not isinstance(weights, Mapping) or not all(isinstance(value, Tensor) for value in weights.values()):
        raise UserError(f"Failed to load checkpoint: {path}: its model is no name -> tensor", RESUME_REFUSED)
    no_floats = [
        f"{name} ({weights[name].dtype})"
        for name in sorted(layout.parameter_names & weights.keys())
        if not weights[name].is_floating_point()
    ]
    if no_floats:
        raise UserError(
            f"Failed to load checkpoint: {path}: no floating-point numbers: {', '.join(no_floats)}",
            RESUME_REFUSED,
        )
    shapes: dict[str, tuple[int, ...]] | None = None
    misfit = ""
    try:
        moments = named_moments(content, layout)
        shapes = {name: tuple(state["exp_avg"].shape) for name, state in moments.items()}
    except ValueError as error:
        misfit = str(error)
    return CheckpointFacts(
        name=path.name,
        keys=frozenset(content),
        text_rows=table_rows(canonical_names(weights), str(path)),
        step=_count(content, "step", path),
        epoch=_count(content, "epoch", path),
        meta=meta,
        trained_shapes=shapes,
        misfit=misfit,
        has_scheduler=isinstance(content.get("scheduler"), dict),
        has_scaler=bool(content.get("scaler")),
        learning_rate=_learning_rate(content),
    )


def named_moments(content: Mapping[str, Any], layout: OptimizerLayout) -> dict[str, dict[str, Tensor]]:
    """Return `step`, `exp_avg` and `exp_avg_sq` of each trained parameter, without those of frozen rows.

    Raises:
        ValueError: the optimizer is not one of this model's; the message says why.
    """
    optimizer = content["optimizer"]
    try:
        groups, states = optimizer["param_groups"], optimizer["state"]
        order = [index for group in groups for index in group["params"]]
        names = [name for group in groups for name in group.get("param_names", ())]
        if names:
            by_name = dict(zip(names, order, strict=True))
            places = {name: MomentsLocation(by_name[name], 0) for name in by_name if by_name[name] in states}
        else:
            weights = canonical_names(content["model"])
            places = map_moments(
                order=order,
                moments={index: tuple(state["exp_avg"].shape) for index, state in states.items()},
                weights={name: tuple(tensor.shape) for name, tensor in weights.items()},
                parameter_names=layout.parameter_names,
                trained=layout.trained,
                base_size=layout.base_size,
            )
        moments = {name: _sliced(states[place.index], place.first_row) for name, place in places.items()}
        for name, state in moments.items():
            if state["exp_avg"].shape != state["exp_avg_sq"].shape or state["step"].numel() != 1:
                raise ValueError(f"the moments of {name} are of different shapes")
        return moments
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise ValueError(f"it is no AdamW state ({type(error).__name__}: {error})") from None


def _sliced(state: Mapping[str, Any], first_row: int) -> dict[str, Tensor]:
    return {
        "step": torch.as_tensor(state["step"], dtype=torch.float32),  # () in torch's, a number in older ones
        "exp_avg": state["exp_avg"][first_row:] if first_row else state["exp_avg"],
        "exp_avg_sq": state["exp_avg_sq"][first_row:] if first_row else state["exp_avg_sq"],
    }


def _count(content: Mapping[str, Any], key: str, path: Path) -> int:
    try:
        return int(content[key])
    except (TypeError, ValueError, OverflowError, RuntimeError):  # the last: a tensor of several values
        raise UserError(
            f"Failed to load checkpoint: {path}: {key} is {content[key]!r}, no number", RESUME_REFUSED
        ) from None


def _learning_rate(content: Mapping[str, Any]) -> float | None:
    """Return the rate of the last step, as torch's schedulers keep it, or the optimizer's own."""
    for place in (("scheduler", "_last_lr", 0), ("optimizer", "param_groups", 0, "lr")):
        value: Any = content
        try:
            for key in place:
                value = value[key]
            rate = float(value)
        except (KeyError, TypeError, IndexError, ValueError):
            continue
        if math.isfinite(rate) and rate >= 0:
            return rate
    return None


Shape = tuple[int, ...]


@dataclass(frozen=True)
class MomentsLocation:
    """Where the moments of a trained parameter are.

    Args:
        index: in `optimizer["state"]`.
        first_row: rows of the moments before this one are the frozen base's.
    """

    index: int
    first_row: int


def map_moments(
    *,
    order: Sequence[int],
    moments: Mapping[int, Shape],
    weights: Mapping[str, Shape],
    parameter_names: frozenset[str],
    trained: Mapping[str, Shape],
    base_size: int,
) -> dict[str, MomentsLocation]:
    """Return for each trained parameter where its moments are.

    Args:
        order: the groups' `params`, one after another.
        moments: shape of `exp_avg` by index.
        weights: shape of every tensor of the file's model under its published name, in the file's order.
        parameter_names: of the whole model as it is built here; the other names in `weights` are buffers.
        trained: shape of what the run trains, by name; of a text table the rows from `base_size` on.

    Raises:
        ValueError: the state is not that of this model's parameters; the message says what does not fit.
    """
    names = [name for name in weights if name in parameter_names]
    if len(names) != len(order):
        raise ValueError(f"it has {len(order)} parameters, the model in the file has {len(names)}")
    index_of = dict(zip(names, order, strict=True))
    for name, index in index_of.items():  # all of them: one in a wrong place means that the order is another
        if index in moments and moments[index] != weights[name]:
            raise ValueError(f"the moments of {name} are {moments[index]}, the weight is {weights[name]}")
    found = {}
    for name, shape in trained.items():
        index = index_of.get(name, -1)
        if index not in moments:
            raise ValueError(f"it has no moments of {name}, which this run trains")
        found[name] = MomentsLocation(index, _first_row(name, moments[index], shape, base_size))
    return found


def _first_row(name: str, whole: Shape, trained: Shape, base_size: int) -> int:
    if whole == trained:
        return 0
    if whole == (base_size + trained[0], *trained[1:]):
        return base_size
    raise ValueError(f"the moments of {name} are {whole}, this run trains {trained} of it")
