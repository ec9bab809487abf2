"""CHECKPOINT FORMAT: what is in a `.pth`, written atomically and loaded verified.

model                 name -> tensor, every weight of the GPT: IndexTTS2 loads the file as gpt.pth
optimizer             AdamW's state, with the parameters' names
scheduler             {"peak", "warmup_steps", "total_steps"}: the learning rate is a function of the step
scaler                None: gradients are scaled in float16 only
epoch step batch_idx  where the run stands; batch_idx counts micro-steps of the epoch
sampler               {"samples_done", "data_order"}: position in the order of the epoch
rng                   {"seed"}: all randomness is a function of the seed, the epoch and the step
tokenizer             {"fingerprint", "pieces", "base_size", "model"}: the last is the SentencePiece file
recent_checkpoints    names of the run's checkpoints, newest last
manifests             {"train": [...], "val": [...]}
learning_rate text_loss_weight mel_loss_weight
best_mel_loss log_window format_version
"""

import hashlib
import io
import logging
import pickle
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, cast

import torch
from torch import Tensor

from indextts.errors import UserError
from indextts.restore import CheckpointFacts, Vocabulary
from indextts.run_dir import CheckpointMeta, checkpoint_path, link_as, sync_file, write_meta

logger = logging.getLogger(__name__)

FORMAT_VERSION = 1
TEXT_TABLES = ("text_embedding.weight", "text_head.weight", "text_head.bias")


def read_file(path: Path) -> dict[str, Any]:
    """Return the dict in a `.pth`, its tensors memory-mapped.

    Raises:
        UserError: no such file, not a checkpoint, or a pickle that wants to run code.
    """
    if not path.is_file():
        raise UserError(f"{path}: no such file")
    if not zipfile.is_zipfile(path):  # what torch.save has written since 2020
        raise UserError(f"{path}: not a checkpoint that torch.save wrote, or cut off; fetch it again")
    try:
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except (RuntimeError, ValueError, OSError, EOFError, KeyError, pickle.UnpicklingError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise UserError(f"{path}: not a checkpoint that can be loaded ({reason})") from None
    if not isinstance(content, dict):
        raise UserError(f"{path}: holds a {type(content).__name__}, a checkpoint is a dict of tensors")
    return content


def read_weights(path: Path) -> dict[str, Tensor]:
    """Return the weights in a checkpoint or a bare state dict, by name; tensors are memory-mapped.

    Raises:
        UserError: the file cannot be loaded, or holds no weights.
    """
    content = read_file(path)
    weights = content.get("model", content)
    if not isinstance(weights, dict) or not any(isinstance(value, Tensor) for value in weights.values()):
        raise UserError(f"{path}: holds no weights; expected name -> tensor, bare or under the key 'model'")
    return {name: value for name, value in weights.items() if isinstance(value, Tensor)}


def text_rows(path: Path) -> int:
    """Return the rows of a checkpoint's text embedding: one more than its tokenizer has pieces."""
    return table_rows(read_weights(path), str(path))


def table_rows(weights: Mapping[str, Tensor], source: str) -> int:
    """Return the rows of the text tables in `weights`, which must agree."""
    for name in TEXT_TABLES:
        if name not in weights:
            raise UserError(f"{source}: no tensor {name}; is this an IndexTTS2 gpt.pth?")
    rows = {name: weights[name].shape[0] for name in TEXT_TABLES}
    if len(set(rows.values())) != 1:
        raise UserError(f"{source}: the text tables have different numbers of rows: {rows}")
    return weights[TEXT_TABLES[0]].shape[0]


def facts_of(content: Mapping[str, Any], source: str) -> CheckpointFacts:
    """Return what a checkpoint's content says of itself, for `plan_restore`."""
    tokenizer = content.get("tokenizer")
    vocabulary = None
    if isinstance(tokenizer, dict) and "fingerprint" in tokenizer:
        vocabulary = Vocabulary(tuple(tokenizer["pieces"]), tokenizer["fingerprint"])
    weights = content.get("model", {})
    return CheckpointFacts(
        keys=frozenset(content),
        text_rows=table_rows(weights, source) if weights else 0,
        vocabulary=vocabulary,
        step=int(content.get("step", 0)),
        epoch=int(content.get("epoch", 0)),
        trained_shapes=_optimizer_shapes(content.get("optimizer")),
        data_order=content.get("sampler", {}).get("data_order"),
    )


def move_text_rows(weights: Mapping[str, Tensor], row_of: tuple[int, ...], seed: int) -> dict[str, Tensor]:
    """Return `weights` with text tables whose row i is the old row `row_of[i]`, or a fresh one.

    A fresh row is the mean of the old rows plus N(0, 0.02), the model's own initial spread: its logit starts
    at the average of the others, so that no fresh piece begins by drowning the learned ones (Hewitt 2021,
    "Initializing New Word Embeddings for Pretrained Language Models"). A fresh bias is the mean alone.
    """
    generator = torch.Generator().manual_seed(seed)
    rows = torch.tensor(row_of)
    is_fresh = rows < 0
    moved = dict(weights)
    for name in TEXT_TABLES:
        old = weights[name]
        table = old[rows.clamp(min=0)].clone()  # (rows, D) or (rows,)
        fresh = old[:-1].float().mean(dim=0).expand(int(is_fresh.sum()), *old.shape[1:])
        if old.dim() == 2:
            fresh = fresh + 0.02 * torch.randn(fresh.shape, generator=generator)
        table[is_fresh] = fresh.to(old.dtype)
        moved[name] = table
    return moved


def save_checkpoint(run_dir: Path, content: Mapping[str, Any], meta: CheckpointMeta) -> CheckpointMeta:
    """Write `model_step{N}.pth`, then its meta file, then `latest.pth`; return the meta with size and digest.

    Each file is written aside, synced and renamed; the meta file commits the checkpoint. A file of that name
    from an older part of the run is renamed first.
    """
    path = checkpoint_path(run_dir, meta.step)
    _step_aside(path, meta.part)
    aside = run_dir / f".tmp-{path.name}"
    try:
        with aside.open("wb") as file:
            hashing = _HashingFile(file)
            torch.save(dict(content), cast(BinaryIO, hashing))
        sync_file(aside)
    except (OSError, RuntimeError) as error:  # torch hides the system's error in one of its own
        aside.unlink(missing_ok=True)
        reason = error if isinstance(error, OSError) else error.__context__ or error
        raise UserError(
            f"{path} cannot be written ({reason}); the checkpoints before it are untouched: make room on the "
            "disk, and go on with --resume auto"
        ) from None
    aside.replace(path)
    meta = replace(meta, num_bytes=hashing.num_bytes, sha256=hashing.sha256.hexdigest())
    write_meta(path.with_suffix(".json"), meta)
    publish(path, run_dir / "latest.pth")
    return meta


def publish(checkpoint: Path, name: Path) -> None:
    """Make `name` (latest.pth or best.pth) and its meta file those of `checkpoint`."""
    link_as(checkpoint, name)
    link_as(checkpoint.with_suffix(".json"), name.with_suffix(".json"))
    sync_file(name.parent)


def _step_aside(path: Path, part: int) -> None:
    """Rename a checkpoint of an older part, so that this part's save does not replace it."""
    try:
        old = CheckpointMeta.read(path.with_suffix(".json"))
    except ValueError:
        return
    if old.part == part:
        return
    renamed = path.with_name(f"{path.stem}.part{old.part}.pth")
    path.rename(renamed)
    path.with_suffix(".json").rename(renamed.with_suffix(".json"))
    logger.info("%s of run part %d is now %s", path.name, old.part, renamed.name)


def _optimizer_shapes(optimizer: Any) -> dict[str, tuple[int, ...]] | None:
    """Return the shape of the moments of each parameter by name; None for an optimizer without names."""
    if not isinstance(optimizer, dict) or "state" not in optimizer:
        return None
    shapes = {}
    for group in optimizer["param_groups"]:
        if "param_names" not in group:
            return None
        for index, name in zip(group["params"], group["param_names"], strict=True):
            state = optimizer["state"].get(index)
            if state is not None:
                shapes[name] = tuple(state["exp_avg"].shape)
    return shapes


class _HashingFile(io.RawIOBase):
    """A file that is hashed while it is written, so that the bytes are not read again."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.sha256 = hashlib.sha256()
        self.num_bytes = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.sha256.update(data)
        num_bytes = self.file.write(data)
        self.num_bytes += num_bytes
        return num_bytes

    def flush(self) -> None:
        self.file.flush()
