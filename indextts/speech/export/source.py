"""What is exported: the weights of a checkpoint, or the mean of it and those saved before it.

Only checkpoints of one part of a run with one vocabulary are averaged: the weights of others are no points of
one path, and their mean is none of them.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from indextts.commands.speech import Weights
from indextts.errors import UserError
from indextts.models.averaged_weights import chosen_weights
from indextts.models.checkpoint import codes_identity, meta_of, read_file
from indextts.models.weight_names import canonical_names
from indextts.runs.directory import CheckpointMeta, checkpoints, verify_checkpoint

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Source:
    """Weights with what belongs to them.

    Args:
        paths: the checkpoints that `weights` are the mean of, the newest first.
        weights: by published name; of one checkpoint memory-mapped, else computed.
        tokenizer: as in the checkpoint, see `indextts.models.checkpoint`.
        meta: of the newest; None in a file that another program wrote.
        codes: the identity of the speech backend whose codes it speaks; None where nobody wrote it down.
        ema_decay: of the moving average that `weights` are; None where they are the trained ones.
    """

    paths: tuple[Path, ...]
    weights: Mapping[str, Tensor]
    tokenizer: Mapping[str, Any]
    meta: CheckpointMeta | None
    codes: str | None = None
    ema_decay: float | None = None


def read_source(path: Path, num_averaged: int, chosen: Weights = "raw") -> Source:
    """Return what to export.

    Args:
        path: a checkpoint.
        num_averaged: how many checkpoints to average: this one and those saved before it.
        chosen: the weights, or their moving average, which is not averaged once more.

    Raises:
        UserError: a file is damaged, or has no model with its tokenizer; or there are too few checkpoints of
            one part and vocabulary to average, or no averaged weights.
    """
    if chosen == "averaged" and num_averaged > 1:
        raise UserError(
            f"--average-last {num_averaged}: the averaged weights are an average already; leave out one of "
            "--average-last and --weights"
        )
    content = _read_whole(path)
    meta = meta_of(content, path)
    tokenizer = content["tokenizer"]
    if chosen == "averaged":
        weights = canonical_names(chosen_weights(content, chosen, path))
        decay = content["averaged"]["decay"]
        return Source((path,), weights, tokenizer, meta, codes_identity(content), decay)
    if num_averaged == 1:
        return Source((path,), canonical_names(content["model"]), tokenizer, meta, codes_identity(content))
    if meta is None:
        raise UserError(f"{path}: does not say which run it is of, so there is nothing to average it with")
    earlier = _saved_before(path, meta, num_averaged - 1)
    logger.info("The mean of %s", ", ".join(file.name for file in (path, *earlier)))
    contents = [content, *(_read_whole(file) for file in earlier)]
    weights = mean([canonical_names(content["model"]) for content in contents])
    return Source((path, *earlier), weights, tokenizer, meta, codes_identity(content))


def mean(weights: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Return the mean of each tensor, added up in float64; what is the same in all stays bit by bit."""
    return {name: _mean([one[name] for one in weights]) for name in weights[0]}


def _mean(tensors: Sequence[Tensor]) -> Tensor:
    first = tensors[0]
    if not first.is_floating_point():
        return first
    total = torch.zeros_like(first, dtype=torch.float64)
    for tensor in tensors:
        total += tensor
    return (total / len(tensors)).to(first.dtype)


def _saved_before(path: Path, meta: CheckpointMeta, number: int) -> list[Path]:
    """Return the `number` checkpoints saved before the one at `path`, the newest first."""
    by_serial: dict[int, tuple[Path, CheckpointMeta]] = {}
    for file, other in checkpoints(path.parent):
        if other.serial < meta.serial and file.is_file():
            by_serial.setdefault(other.serial, (file, other))
    found = list(by_serial.values())[:number]
    if len(found) < number:
        raise UserError(
            f"--average-last {number + 1}: {path.parent} has only {len(found)} checkpoints that were saved "
            f"before {path.name} (step {meta.step}); give a later checkpoint, or a smaller number"
        )
    for file, other in found:
        if other.part != meta.part:
            raise UserError(
                f"--average-last {number + 1}: {file.name} is of part {other.part} of the run, {path.name} "
                f"of part {meta.part}; average checkpoints of one part: give a smaller number"
            )
        if other.tokenizer_fingerprint != meta.tokenizer_fingerprint:
            raise UserError(
                f"--average-last {number + 1}: {file.name} has another vocabulary than {path.name}; give a "
                "smaller number"
            )
    return [file for file, _ in found]


def _read_whole(path: Path) -> dict[str, Any]:
    """Return a checkpoint's content; where its meta file is beside it, its digest was compared."""
    if path.with_suffix(".json").is_file():
        _compare_digest(path)
    content = read_file(path)
    tokenizer = content.get("tokenizer")
    if "model" not in content or not isinstance(tokenizer, dict) or "model" not in tokenizer:
        raise UserError(
            f"{path}: holds no model with its tokenizer; give a model_step*.pth, latest.pth or "
            "best.pth of a run"
        )
    return content


def _compare_digest(path: Path) -> None:
    """Raise a UserError unless the file is the one that was saved; a running trainer may replace it now."""
    before = _serial(path)
    try:
        verify_checkpoint(path)
    except ValueError as error:
        if _serial(path) != before:
            return _compare_digest(path)
        raise UserError(f"{path.parent}: {error}; give another checkpoint") from None


def _serial(path: Path) -> int:
    try:
        return CheckpointMeta.read(path.with_suffix(".json")).serial
    except ValueError:
        return -1
