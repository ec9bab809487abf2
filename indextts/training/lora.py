"""Start of a LoRA run, and resume of a LoRA checkpoint: the adapters, and the base that holds the rest."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from indextts.models.checkpoint import read_weights
from indextts.models.gpt.model import UnifiedVoice
from indextts.models.lora import (
    IN,
    OUT,
    LoraSettings,
    adapters_in,
    is_block_matrix,
    lora_record,
    merge,
    with_rows,
)
from indextts.runs.directory import FileIdentity
from indextts.runs.lora_base import find_base
from indextts.training.optim import TrainedParameters

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class SavedAdapters:
    """The adapters of a checkpoint by name, and their scale, alpha / rank."""

    values: Mapping[str, Tensor] = field(default_factory=dict)
    scale: float = 1.0


def with_base(
    content: dict[str, Any], path: Path, file: Path, base: FileIdentity | None, *, merges: bool
) -> tuple[dict[str, Any], SavedAdapters, Path | None]:
    """Return the content of a checkpoint with the model of an `OpenedCheckpoint`, its adapters, and its base.

    The average is merged too if the run has no adapters. The base is None for a checkpoint of all weights.

    Args:
        file: --base-checkpoint.
        base: its identity, None if it is unreadable.
        merges: the run has no adapters.

    Raises:
        UserError: the base of a LoRA checkpoint is missing, or does not fit it.
    """
    record = lora_record(content, path)
    if record is None:
        return content, SavedAdapters(), None
    if base is None or base.digest != record.base.digest:
        file = find_base(record.base, path, given=file)
        logger.info("The base of the LoRA checkpoint is %s", file)
    trained, averaged, weights = content["model"], content.get("averaged"), read_weights(file)
    if averaged and merges:
        averaged = {**averaged, "weights": merge(weights, averaged["weights"], record)}
    complete = (merge if merges else with_rows)(weights, trained, record)
    adapters = SavedAdapters(adapters_in(trained), record.scale)
    return {**content, "model": complete, "averaged": averaged}, adapters, file


@contextmanager
def blocks_in_float32(model: UnifiedVoice) -> Iterator[None]:
    """Compute with all weights in float32, as synthesis does; afterwards, restore the frozen matrices.

    A copy in float32 of the frozen matrices takes 4 bytes per value meanwhile.
    """
    halves = [
        (each, each.data)
        for name, each in model.named_parameters()
        if is_block_matrix(name) and each.dtype != torch.float32
    ]
    try:
        for parameter, values in halves:
            parameter.data = values.float()
        yield
    finally:
        for parameter, values in halves:
            parameter.data = values


def log_adapters(settings: LoraSettings, trained: TrainedParameters, dtype: torch.dtype) -> None:
    values = sum(parameter.numel() for parameter in trained.parameters.values())
    in_adapters = sum(p.numel() for name, p in trained.parameters.items() if name.endswith((IN, OUT)))
    logger.info(
        "LoRA of rank %d, alpha %g on %s: %s trained values, %s of them in adapters; the frozen "
        "matrices of the blocks are in %s",
        settings.rank,
        settings.alpha,
        "all matrices of the blocks" if settings.targets == "all" else f"the {settings.targets} matrices",
        f"{values:,}",
        f"{in_adapters:,}",
        str(dtype).removeprefix("torch."),
    )
