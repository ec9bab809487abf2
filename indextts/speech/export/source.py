"""The weights to export: those of a checkpoint, or the mean of the last checkpoints.

Only checkpoints of the same part of a run with the same vocabulary are averaged; other weights do not belong
to one optimisation path, so their mean is not a useful model.
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
from indextts.models.checkpoint import codes_identity, embedded_meta, read_file, select_weights
from indextts.runs.directory import CheckpointMeta, checkpoints, verify_checkpoint
from indextts.system.amounts import counted

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Source:
    """Weights with their tokenizer and origin.

    Args:
        paths: the checkpoints of the mean, newest first; one without averaging.
        weights: by published name; memory-mapped if they are from one checkpoint.
        tokenizer: as in the checkpoint, see `indextts.models.checkpoint`.
        meta: of the newest checkpoint; None if another program wrote it.
        codes: the identity of the speech backend that made the training codes; None if not recorded.
        ema_decay: of the moving average; None if `weights` are the trained ones.
    """

    paths: tuple[Path, ...]
    weights: Mapping[str, Tensor]
    tokenizer: Mapping[str, Any]
    meta: CheckpointMeta | None
    codes: str | None = None
    ema_decay: float | None = None


def read_source(
    path: Path, num_averaged: int, choice: Weights = "raw", folders: Sequence[Path] = ()
) -> Source:
    """Return the weights to export.

    Args:
        num_averaged: the number of checkpoints to average: this one and those saved before it.
        choice: the trained weights, or their moving average, which excludes `num_averaged` above 1.
        folders: where to look for the base of a LoRA checkpoint, besides where it was.

    Raises:
        UserError: a file is corrupt or has no model with its tokenizer, there are too few checkpoints of one
            part and vocabulary, or there are no averaged weights.
    """
    if choice == "averaged" and num_averaged > 1:
        raise UserError(
            f"--average-last {num_averaged}: cannot be combined with --weights averaged; remove one of the "
            "two"
        )
    content = read_verified(path)
    meta = embedded_meta(content, path)
    paths = (path, *_saved_before(path, meta, num_averaged - 1))
    if num_averaged > 1:
        logger.info("Averaging %s", ", ".join(file.name for file in paths))
    contents = {file: content if file == path else read_verified(file) for file in paths}
    weights = [select_weights(each, choice, file, folders) for file, each in contents.items()]
    return Source(
        paths,
        weights[0] if num_averaged == 1 else mean(weights),
        content["tokenizer"],
        meta,
        codes_identity(content),
        content["averaged"]["decay"] if choice == "averaged" else None,
    )


def mean(weights: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Return the mean of each tensor, in float64; tensors equal in all checkpoints stay bit-identical."""
    means = dict(weights[0])
    for name, first in means.items():
        if first.is_floating_point():
            total = torch.zeros_like(first, dtype=torch.float64)
            for tensors in weights:
                total += tensors[name]
            means[name] = (total / len(weights)).to(first.dtype)
    return means


def _saved_before(path: Path, meta: CheckpointMeta | None, number: int) -> list[Path]:
    """Return the `number` checkpoints saved before `path`, newest first."""
    if not number:
        return []
    if meta is None:
        raise UserError(
            f"{path}: contains no meta record, so the earlier checkpoints of its run are unknown; remove "
            "--average-last"
        )
    by_serial: dict[int, tuple[Path, CheckpointMeta]] = {}
    for file, other in checkpoints(path.parent):
        if other.serial < meta.serial and file.is_file():
            by_serial.setdefault(other.serial, (file, other))
    found = list(by_serial.values())[:number]
    if len(found) < number:
        raise UserError(
            f"--average-last {number + 1}: {path.parent} has only {counted(len(found), 'checkpoint')} saved "
            f"before {path.name} (step {meta.step}), and {number} are needed; use a later checkpoint or a "
            "smaller number"
        )
    for file, other in found:
        if other.part != meta.part:
            raise UserError(
                f"--average-last {number + 1}: {file.name} belongs to part {other.part} of the run, but "
                f"{path.name} to part {meta.part}; use a smaller number"
            )
        if other.tokenizer_fingerprint != meta.tokenizer_fingerprint:
            raise UserError(
                f"--average-last {number + 1}: {file.name} and {path.name} have different vocabularies; use "
                "a smaller number"
            )
    return [file for file, _ in found]


def read_verified(path: Path) -> dict[str, Any]:
    """Return a checkpoint's content; verify its digest if the meta file exists."""
    if path.with_suffix(".json").is_file():
        _compare_digest(path)
    content = read_file(path)
    tokenizer = content.get("tokenizer")
    if "model" not in content or not isinstance(tokenizer, dict) or "model" not in tokenizer:
        raise UserError(
            f"{path}: no model with a tokenizer; use a model_step*.pth, latest.pth or best.pth of a run"
        )
    return content


def _compare_digest(path: Path) -> None:
    """Raise a UserError if the digest is wrong; retry if a running trainer has just replaced the file."""
    before = _serial(path)
    try:
        verify_checkpoint(path)
    except ValueError as error:
        if _serial(path) != before:
            return _compare_digest(path)
        raise UserError(f"{path.parent}: {error}; use another checkpoint") from None


def _serial(path: Path) -> int:
    try:
        return CheckpointMeta.read(path.with_suffix(".json")).serial
    except ValueError:
        return -1
