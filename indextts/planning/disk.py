"""How much disk the checkpoints of a training take, pruning counted."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from indextts.commands.train import Train
from indextts.models.gpt.config import GPTConfig
from indextts.planning.model_size import ModelSize
from indextts.runs.directory import LINKS, CheckpointMeta, checkpoints

SPARE_BYTES = 1 << 30  # the log, the metrics, TensorBoard's files, and room for whatever else is written


@dataclass(frozen=True)
class DiskNeed:
    """What the checkpoints of a training take.

    Args:
        checkpoint_bytes: of one.
        is_measured: taken from a checkpoint of the run; else counted from the model's parameters.
        num_at_most: checkpoints at once: those kept, the best, and the one that is written before an old one
            is removed.
        num_present: of the run, on the disk already.
        free_bytes: on the disk of the run directory.
    """

    checkpoint_bytes: int
    is_measured: bool
    num_at_most: int
    num_present: int
    free_bytes: int

    @property
    def needed_bytes(self) -> int:
        """What still has to fit; a new save is written before an old one is removed."""
        num_new = max(min(1, self.num_at_most), self.num_at_most - self.num_present)
        return num_new * self.checkpoint_bytes + (SPARE_BYTES if num_new else 0)

    @property
    def fits(self) -> bool:
        return self.needed_bytes <= self.free_bytes


def disk_need(command: Train, config: GPTConfig, size: ModelSize, *, steps: int) -> DiskNeed:
    """Return the disk that `steps` more steps of `command` need.

    Args:
        config: with the pieces of the run's tokenizer.
    """
    present = [
        (path, meta)
        for path, meta in checkpoints(command.output_dir)
        if path.name not in LINKS and path.is_file()
    ]
    same = [meta for _, meta in present if _is_same_kind(meta, config, command)]
    part = present[0][1].part if present else 1
    num_present = sum(
        meta.part == part and not path.with_suffix(".pinned").exists() for path, meta in present
    )
    num_saves = -(-steps // command.save_interval) + _num_validations(command, steps)
    counted = size.checkpoint_bytes(command.optimizer_state, command.ema_decay)
    return DiskNeed(
        checkpoint_bytes=same[0].num_bytes if same else counted,
        is_measured=bool(same),
        num_at_most=min(command.keep_checkpoints + 2, num_present + num_saves),
        num_present=min(num_present, command.keep_checkpoints + 1),
        free_bytes=free_bytes(command.output_dir),
    )


def free_bytes(folder: Path) -> int:
    """Return the bytes that are free where `folder` is or will be."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return shutil.disk_usage(folder).free


def _num_validations(command: Train, steps: int) -> int:
    """Return how many validations there are at most, each of which may be the best and be saved."""
    return -(-steps // command.val_interval) if command.val_interval else command.epochs


def _is_same_kind(meta: CheckpointMeta, config: GPTConfig, command: Train) -> bool:
    """Return whether a checkpoint is as large as those to come: of the same model and the same state."""
    shape = (meta.gpt_config.get("layers"), meta.gpt_config.get("model_dim"), meta.tokenizer_size)
    had_average = bool(meta.settings.get("ema_decay", 0.0))
    state = (meta.settings.get("optimizer_state", "float32"), had_average)
    return shape == (config.layers, config.model_dim, config.number_text_tokens) and state == (
        command.optimizer_state,
        bool(command.ema_decay),
    )
