"""List, pin and delete the checkpoints of a run, also while its trainer runs.

    OUTPUT_DIR/
      model_step{N}.pinned                     the trainer never deletes this checkpoint
      trash/{time}_model_step{N}/model_step{N}.pth/.json   deleted; move it back to restore it

The trainer may save and delete checkpoints at any moment. Deletion moves the meta file first, as the trainer
does: the second of two finds it gone and leaves the rest to the first. A checkpoint that is needed (the
newest, the best, the only one, a pinned one) is not deleted.
"""

import math
import shutil
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from indextts.errors import UserError, disk_errors
from indextts.runs.directory import LINKS, QUARANTINED, CheckpointMeta, checkpoint_files
from indextts.system.files import first_free

TRASH = "trash"

GONE = "checkpoint {name} does not exist; the trainer may have deleted it, choose another"
BEING_SAVED = "the trainer is saving {name}; try again when it is done"
IS_LINK = "{name} is a link to a checkpoint; choose the file with a step in its name"
IS_PINNED = "{name} is pinned; unpin it first"
IS_LATEST = "{name} is the newest checkpoint, which a resume needs; delete it after a newer one is saved"
IS_BEST = "{name} is a best checkpoint (best.pth, best_heard.pth); delete it after a better one is saved"
IS_ONLY = "{name} is the only complete checkpoint of this run, which a resume needs; save another one first"


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint, described without reading its weights.

    Args:
        step, epoch, part, samples_done: None without a readable meta.
        serial: grows with every save; 0 without a readable meta.
        time: of writing, unix time.
        is_complete: its meta is readable and it has the recorded size; only a resume verifies the digest.
        is_latest, is_best, is_best_heard: latest.pth, best.pth or best_heard.pth is this checkpoint.
    """

    name: str
    num_bytes: int
    time: float
    step: int | None = None
    epoch: int | None = None
    part: int | None = None
    samples_done: int | None = None
    serial: int = 0
    is_complete: bool = False
    is_pinned: bool = False
    is_latest: bool = False
    is_best: bool = False
    is_best_heard: bool = False


def list_checkpoints(run_dir: Path) -> list[Checkpoint]:
    """Return the checkpoints of a run, newest save first, incomplete ones last.

    The links are listed only if their numbered file does not exist.
    """
    metas = {path: meta_of(path) for path in checkpoint_files(run_dir)}
    latest, heard, best = (_serial(metas.get(run_dir / link)) for link in LINKS)
    numbered = {_serial(meta) for path, meta in metas.items() if path.name not in LINKS}
    found = []
    for path, meta in metas.items():
        if path.name in LINKS and (meta is None or meta.serial in numbered):
            continue
        try:
            status = path.stat()
        except OSError:  # deleted since it was listed, or a link to itself
            continue
        listed = Checkpoint(path.name, status.st_size, status.st_mtime)
        if meta is not None:
            listed = replace(
                listed,
                step=meta.step,
                epoch=meta.epoch,
                part=meta.part,
                samples_done=meta.samples_done,
                serial=meta.serial,
                is_complete=status.st_size == meta.num_bytes and not path.name.startswith(QUARANTINED),
                is_pinned=path.with_suffix(".pinned").exists(),
                is_latest=meta.serial == latest,
                is_best=meta.serial == best,
                is_best_heard=meta.serial == heard,
            )
        found.append(listed)
    return sorted(found, key=lambda each: (not each.is_complete, -each.serial, each.name))


def best_validation_loss(run_dir: Path, validation_set: str) -> float:
    """Return the lowest validation mel loss of the checkpoints in this folder, infinity if there is none.

    Args:
        validation_set: checkpoints validated on other pairs do not count.
    """
    return _lowest(
        meta.validation_mel_loss for meta in _valid_metas(run_dir) if meta.validation_set == validation_set
    )


def best_heard_score(run_dir: Path, heard_by: str) -> float:
    """Return the lowest score of the checkpoints that the same ear heard, infinity if there is none."""
    return _lowest(meta.heard_score for meta in _valid_metas(run_dir) if meta.heard_by == heard_by)


def _valid_metas(run_dir: Path) -> list[CheckpointMeta]:
    found = [meta_of(path) for path in checkpoint_files(run_dir) if not path.name.startswith(QUARANTINED)]
    return [meta for meta in found if meta]


def _lowest(values: Iterable[float | None]) -> float:
    return min((value for value in values if value is not None), default=math.inf)


def validation_losses(lines: Iterable[Mapping[str, Any]]) -> dict[tuple[int, int], float]:
    """Return the validation mel loss by part and step, from the lines of metrics.jsonl."""
    return {
        (line["part"], line["step"]): line["mel_loss"]
        for line in lines
        if line.get("kind") == "val" and isinstance(line.get("mel_loss"), float)
    }


def pin(run_dir: Path, name: str, *, is_pinned: bool) -> None:
    """Protect a checkpoint from deletion, or remove the protection.

    Raises:
        UserError: the checkpoint does not exist, or the folder cannot be written.
    """
    _find(run_dir, name)
    mark = (run_dir / name).with_suffix(".pinned")
    with disk_errors(mark):
        if not is_pinned:
            mark.unlink(missing_ok=True)
            return
        mark.touch()
        if not (run_dir / name).exists():  # the trainer deleted it first
            mark.unlink(missing_ok=True)
            raise UserError(GONE.format(name=name))


def deletion_refusal(run_dir: Path, name: str) -> str:
    """Return the reason why a checkpoint must not be deleted; empty if it may be.

    Raises:
        UserError: the checkpoint does not exist.
    """
    chosen = _find(run_dir, name)
    complete = [each for each in list_checkpoints(run_dir) if each.is_complete]
    reasons = (
        (name in LINKS, IS_LINK),
        (chosen.is_pinned, IS_PINNED),
        (chosen.is_complete and len(complete) == 1, IS_ONLY),
        (chosen.is_latest or (chosen.is_complete and chosen.serial == complete[0].serial), IS_LATEST),
        (chosen.is_best or chosen.is_best_heard, IS_BEST),
    )
    return next((reason.format(name=name) for holds, reason in reasons if holds), "")


def move_to_trash(run_dir: Path, name: str) -> Path:
    """Move a checkpoint to the trash; return its folder there.

    Raises:
        UserError: the checkpoint is needed, does not exist, or cannot be moved.
    """
    reason = deletion_refusal(run_dir, name)
    if reason:
        raise UserError(reason)
    path = run_dir / name
    has_meta_file = path.with_suffix(".json").exists()
    # a commit renames the weights, then the meta file: the order of the two tests leaves no gap between them
    being_saved = path.with_name(f".tmp-{path.stem}.json"), path.with_suffix(".json")
    if not has_meta_file and any(each.exists() for each in being_saved):
        raise UserError(BEING_SAVED.format(name=name))
    with disk_errors(path):
        chosen = path.stat()
        folder = _folder_for(run_dir / TRASH, path.stem)
        try:
            if has_meta_file:
                path.with_suffix(".json").replace(folder / f"{path.stem}.json")
            if path.stat().st_ino != chosen.st_ino:  # a new part of the run reused the name
                raise FileNotFoundError(name)
            path.replace(folder / name)
        except FileNotFoundError:
            if not any(folder.iterdir()):
                folder.rmdir()
            raise UserError(GONE.format(name=name)) from None
    return folder


def bytes_in_trash(run_dir: Path) -> int:
    """Return the size of the trash."""
    return sum(path.stat().st_size for path in (run_dir / TRASH).rglob("*") if path.is_file())


def restore_trash(run_dir: Path) -> list[str]:
    """Move the checkpoints of the trash back, unless a newer one has the name; return their names.

    Raises:
        UserError: they cannot be moved.
    """
    restored = []
    with disk_errors(run_dir / TRASH):
        for folder in sorted((run_dir / TRASH).glob("*/")):
            files = sorted(folder.iterdir(), reverse=True)  # the weights first: the meta file commits them
            if any((run_dir / file.name).exists() for file in files):
                continue
            for file in files:
                file.replace(run_dir / file.name)
            folder.rmdir()
            restored += [file.name for file in files[:1]]
    return restored


def empty_trash(run_dir: Path) -> int:
    """Delete the trash; return the number of freed bytes.

    Raises:
        UserError: the trash cannot be deleted.
    """
    freed = bytes_in_trash(run_dir)
    with disk_errors(run_dir / TRASH):
        if (run_dir / TRASH).is_dir():
            shutil.rmtree(run_dir / TRASH)  # never follows a symbolic link
    return freed


def meta_of(checkpoint: Path) -> CheckpointMeta | None:
    """Return the meta of a checkpoint, None if it cannot be read; cached until the file changes."""
    path = checkpoint.with_suffix(".json")
    try:
        status = path.stat()
        return _read(path, status.st_mtime_ns, status.st_ino)
    except (OSError, ValueError):
        return None


@lru_cache(maxsize=64)  # a meta file holds all pieces of its tokenizer and is read often
def _read(path: Path, mtime_ns: int, inode: int) -> CheckpointMeta:
    return CheckpointMeta.read(path)


def _serial(meta: CheckpointMeta | None) -> int | None:
    return None if meta is None else meta.serial


def _find(run_dir: Path, name: str) -> Checkpoint:
    """Return the listed checkpoint of that name; a path is never accepted."""
    for each in list_checkpoints(run_dir):
        if each.name == name:
            return each
    raise UserError(GONE.format(name=name))


def _folder_for(trash: Path, stem: str) -> Path:
    """Create a new folder in the trash for a checkpoint."""
    trash.mkdir(exist_ok=True)
    wanted = trash / f"{time.strftime('%Y%m%d_%H%M%S')}_{stem}"
    folder = first_free(lambda n: wanted if n == 1 else wanted.with_name(f"{wanted.name}_{n}"))
    folder.mkdir()
    return folder
