"""Facts of a loaded checkpoint, of this trainer or another one, and its optimizer moments by name.

    this trainer      key "meta", see `checkpoint.embedded_meta`; optimizer groups have "param_names"
    other trainers    no "meta"; the optimizer state has no names, and its order tells them

The published trainer and the predecessor of this one both create `AdamW(model.parameters())`: one group of
all parameters, numbered in the order of the model. The state dict of the model in the same file has the same
order, with buffers and second names of shared weights in between. So parameter n is the n-th entry of the
state dict whose name is a parameter.

    optimizer["param_groups"][..]["params"]   0 1 2 3 4 ...      all parameters
    optimizer["state"]                        {0: .., 3: ..}     those that ever had a gradient
    model                                     name -> tensor     parameters and more, in the same order

The moments of the frozen base rows of the text tables are cut off, since no step changes those rows.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from indextts.data.feature_store import IMPORTED
from indextts.errors import RESUME_REFUSED, UserError
from indextts.models.checkpoint import codes_identity, table_rows
from indextts.models.weight_names import published_names
from indextts.runs.directory import CheckpointMeta
from indextts.runs.restore_facts import CheckpointFacts, codebook_identity
from indextts.text.bases import load_tokenizer
from indextts.text.vocabulary import Vocabulary

Shape = tuple[int, ...]

ADVICE = "choose another checkpoint, or use --resume auto"


@dataclass(frozen=True)
class OptimizerLayout:
    """Names and shapes that identify the moments in an optimizer state without names.

    Args:
        trained: shape of each trained parameter; of a text table, of the rows from `base_size` on.
    """

    parameter_names: frozenset[str]
    trained: dict[str, Shape]
    base_size: int


def checkpoint_facts(
    content: Mapping[str, Any], path: Path, meta: CheckpointMeta | None, layout: OptimizerLayout
) -> CheckpointFacts:
    """Return the facts of a checkpoint.

    Raises:
        UserError: with status 3 if `content` is not a checkpoint.
    """
    weights = content["model"]
    if not isinstance(weights, Mapping) or not all(isinstance(value, Tensor) for value in weights.values()):
        raise UserError(
            f"Failed to load checkpoint: {path}: its model is not a dict of tensors; {ADVICE}", RESUME_REFUSED
        )
    not_floats = [
        f"{name} ({weights[name].dtype})"
        for name in sorted(layout.parameter_names & weights.keys())
        if not weights[name].is_floating_point()
    ]
    if not_floats:
        raise UserError(
            f"Failed to load checkpoint: {path}: weights are not floating-point: {', '.join(not_floats)}; "
            f"{ADVICE}",
            RESUME_REFUSED,
        )
    languages, shapes, misfit = None, None, ""
    if meta is not None and "languages" in content["state"]:  # not in an older checkpoint
        languages = frozenset(content["state"]["languages"])
    try:
        moments = named_moments(content, layout)
        shapes = {name: tuple(state["exp_avg"].shape) for name, state in moments.items()}
    except ValueError as error:
        misfit = str(error)
    return CheckpointFacts(
        name=path.name,
        keys=frozenset(content),
        text_rows=table_rows(published_names(weights), str(path)),
        step=_count(content, "step", path),
        epoch=_count(content, "epoch", path),
        meta=meta,
        trained_shapes=shapes,
        misfit=misfit,
        has_scaler=bool(content.get("scaler")),
        learning_rate=_learning_rate(content),
        codebook=_codebook(content),
        languages=languages,
    )


def read_old_pieces(
    tokenizer: Path, content: Mapping[str, Any], path: Path, base_pieces: Sequence[str]
) -> Vocabulary:
    """Return the pieces of another program's checkpoint, of which --resume-tokenizer is the tokenizer.

    Raises:
        UserError: it is not the tokenizer of this checkpoint.
    """
    num_pieces = table_rows(published_names(content["model"]), str(path)) - 1
    vocabulary, misfit = load_tokenizer(tokenizer).vocabulary, ""
    if vocabulary.size != num_pieces:
        misfit = f"it has {vocabulary.size:,} pieces, and the checkpoint has rows for {num_pieces:,}"
    else:
        for token, (piece, base) in enumerate(zip(vocabulary.pieces, base_pieces, strict=False)):
            if piece != base:
                misfit = f"it does not extend the base tokenizer: id {token} is {piece!r}, not {base!r}"
                break
    if misfit:
        raise UserError(
            f"--resume-tokenizer {tokenizer} is not the tokenizer of {path}: {misfit}; "
            "pass the tokenizer that the checkpoint was trained with"
        )
    return vocabulary


def _codebook(content: Mapping[str, Any]) -> str | None:
    identity = codes_identity(content)
    if identity is None or content["state"]["codes"].get("backend") == IMPORTED:
        return None
    return codebook_identity(identity)


def named_moments(content: Mapping[str, Any], layout: OptimizerLayout) -> dict[str, dict[str, Tensor]]:
    """Return `step`, `exp_avg` and `exp_avg_sq` of each trained parameter, without the frozen rows.

    Raises:
        ValueError: the optimizer state does not belong to this model; the message says why.
    """
    optimizer = content["optimizer"]
    try:
        groups, states = optimizer["param_groups"], optimizer["state"]
        order = [index for group in groups for index in group["params"]]
        names = [name for group in groups for name in group.get("param_names", ())]
        if names:
            by_name = dict(zip(names, order, strict=True))
            places = {name: (index, 0) for name, index in by_name.items() if index in states}
        else:
            places = _places_by_order(content, layout, order)
        moments = {name: _sliced(states[index], first_row) for name, (index, first_row) in places.items()}
        for name, state in moments.items():
            if state["exp_avg"].shape != state["exp_avg_sq"].shape or state["step"].numel() != 1:
                raise ValueError(f"the moments of {name} differ in shape")
        return moments
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise ValueError(f"it is not an AdamW state ({type(error).__name__}: {error})") from None


def _places_by_order(
    content: Mapping[str, Any], layout: OptimizerLayout, order: Sequence[int]
) -> dict[str, tuple[int, int]]:
    """Return where the moments of each trained parameter are: index, and number of frozen rows before.

    Args:
        order: the `params` of all groups, concatenated.
    """
    weights = published_names(content["model"])
    states = content["optimizer"]["state"]
    moments = {index: tuple(state["exp_avg"].shape) for index, state in states.items()}
    names = [name for name in weights if name in layout.parameter_names]
    if len(names) != len(order):
        raise ValueError(f"it has {len(order)} parameters, the model in the file has {len(names)}")
    index_of = dict(zip(names, order, strict=True))
    for name, index in index_of.items():  # check all: a single mismatch means another order
        if index in moments and moments[index] != tuple(weights[name].shape):
            raise ValueError(
                f"the moments of {name} have shape {moments[index]}, but the weight has "
                f"{tuple(weights[name].shape)}"
            )
    found = {}
    for name, shape in layout.trained.items():
        index = index_of.get(name, -1)
        if index not in moments:
            raise ValueError(f"it has no moments of {name}, a trained parameter")
        found[name] = index, _first_row(name, moments[index], shape, layout.base_size)
    return found


def _sliced(state: Mapping[str, Any], first_row: int) -> dict[str, Tensor]:
    return {
        "step": torch.as_tensor(state["step"], dtype=torch.float32),  # a number in older versions of torch
        "exp_avg": state["exp_avg"][first_row:] if first_row else state["exp_avg"],
        "exp_avg_sq": state["exp_avg_sq"][first_row:] if first_row else state["exp_avg_sq"],
    }


def _count(content: Mapping[str, Any], key: str, path: Path) -> int:
    try:
        return int(content[key])
    except (TypeError, ValueError, OverflowError, RuntimeError):  # the last: a tensor of several values
        raise UserError(
            f"Failed to load checkpoint: {path}: {key} is {content[key]!r}, not a number; {ADVICE}",
            RESUME_REFUSED,
        ) from None


def _learning_rate(content: Mapping[str, Any]) -> float | None:
    """Return the learning rate of the last step from the scheduler, else from the optimizer."""
    for key_path in (("scheduler", "_last_lr", 0), ("optimizer", "param_groups", 0, "lr")):
        value: Any = content
        try:
            for key in key_path:
                value = value[key]
            rate = float(value)
        except (KeyError, TypeError, IndexError, ValueError):
            continue
        if math.isfinite(rate) and rate >= 0:
            return rate
    return None


def _first_row(name: str, full: Shape, trained: Shape, base_size: int) -> int:
    if full == trained:
        return 0
    if full == (base_size + trained[0], *trained[1:]):
        return base_size
    raise ValueError(f"the moments of {name} have shape {full}, but this run trains {trained}")
