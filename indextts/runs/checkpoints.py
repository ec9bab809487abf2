"""What a person does with the checkpoints of a run: list, pin, throw away; also beside a running trainer.

    OUTPUT_DIR/
      model_step{N}.pinned                     this checkpoint is never removed by the trainer
      trash/{time}_model_step{N}/model_step{N}.pth/.json   thrown away; moved back it is a checkpoint again

The trainer may save and remove checkpoints at any moment. The meta file is moved first, as the trainer does
when it removes one: whoever comes second finds it gone, and leaves the rest to the first. A checkpoint that
is needed (the newest, the best, a pinned one, the only one) is not thrown away.
"""

import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from indextts.errors import UserError
from indextts.runs.directory import LINKS, CheckpointMeta, checkpoint_files

TRASH = "trash"

GONE = "there is no checkpoint {name} any more; the training may have removed it meanwhile"
IS_LINK = "{name} is another name of a checkpoint; choose the one with a step in its name"
IS_PINNED = "{name} is pinned; unpin it first"
IS_LATEST = "{name} is the newest checkpoint, a resume goes on from it; delete it when a newer one is saved"
IS_BEST = (
    "{name} is the best checkpoint so far, best.pth is the same file; delete it when a better one is saved"
)
IS_ONLY = "{name} is the only whole checkpoint of this run; keep it to go on from"


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint as its files show it, without reading its weights.

    Args:
        step, epoch, part: None where there is no meta file.
        serial: grows with every save; 0 where there is no meta file.
        time: when it was written, unix time.
        is_complete: its meta file is there and its size is right; the digest is only read by a resume.
        is_latest, is_best: latest.pth, best.pth is this checkpoint.
    """

    name: str
    num_bytes: int
    time: float
    step: int | None = None
    epoch: int | None = None
    part: int | None = None
    serial: int = 0
    is_complete: bool = False
    is_pinned: bool = False
    is_latest: bool = False
    is_best: bool = False


def list_checkpoints(run_dir: Path) -> list[Checkpoint]:
    """Return the checkpoints of a run, the newest save first and what is not whole last.

    latest.pth and best.pth are no checkpoints of their own, unless theirs is not there under its number.
    """
    metas = {path: meta_of(path) for path in checkpoint_files(run_dir)}
    latest, best = (_serial(metas.get(run_dir / link)) for link in LINKS)
    numbered = {_serial(meta) for path, meta in metas.items() if path.name not in LINKS}
    found = []
    for path, meta in metas.items():
        if path.name in LINKS and (meta is None or meta.serial in numbered):
            continue
        try:
            status = path.stat()
        except FileNotFoundError:  # removed since it was listed
            continue
        listed = Checkpoint(path.name, status.st_size, status.st_mtime)
        if meta is not None:
            listed = Checkpoint(
                name=path.name,
                num_bytes=status.st_size,
                time=status.st_mtime,
                step=meta.step,
                epoch=meta.epoch,
                part=meta.part,
                serial=meta.serial,
                is_complete=status.st_size == meta.num_bytes and not path.name.startswith("damaged-"),
                is_pinned=path.with_suffix(".pinned").exists(),
                is_latest=meta.serial == latest,
                is_best=meta.serial == best,
            )
        found.append(listed)
    return sorted(found, key=lambda each: (not each.is_complete, -each.serial, each.name))


def validation_losses(lines: Iterable[Mapping[str, Any]]) -> dict[tuple[int, int], float]:
    """Return the validation mel loss by part and step, from the lines of metrics.jsonl."""
    return {
        (line["part"], line["step"]): line["mel_loss"]
        for line in lines
        if line.get("kind") == "val" and isinstance(line.get("mel_loss"), float)
    }


def pin(run_dir: Path, name: str, *, is_pinned: bool) -> None:
    """Keep a checkpoint from being removed, or no longer.

    Raises:
        UserError: there is no such checkpoint, or the folder cannot be written.
    """
    _find(run_dir, name)
    mark = (run_dir / name).with_suffix(".pinned")
    with _said_of(mark):
        if not is_pinned:
            mark.unlink(missing_ok=True)
            return
        mark.touch()
        if not (run_dir / name).exists():  # the trainer was faster
            mark.unlink(missing_ok=True)
            raise UserError(GONE.format(name=name))


def deletion_refusal(run_dir: Path, name: str) -> str:
    """Return why a checkpoint may not be thrown away; empty if it may.

    Raises:
        UserError: there is no such checkpoint.
    """
    chosen = _find(run_dir, name)
    whole = [each for each in list_checkpoints(run_dir) if each.is_complete]
    reasons = (
        (name in LINKS, IS_LINK),
        (chosen.is_pinned, IS_PINNED),
        (chosen.is_complete and len(whole) == 1, IS_ONLY),
        (chosen.is_latest or (chosen.is_complete and chosen.serial == whole[0].serial), IS_LATEST),
        (chosen.is_best, IS_BEST),
    )
    return next((reason.format(name=name) for holds, reason in reasons if holds), "")


def move_to_trash(run_dir: Path, name: str) -> Path:
    """Move a checkpoint to the trash; return its folder there.

    Raises:
        UserError: it is needed, is not there, or cannot be moved.
    """
    path, has_meta = run_dir / name, _find(run_dir, name).step is not None
    reason = deletion_refusal(run_dir, name)
    if reason:
        raise UserError(reason)
    with _said_of(path):
        chosen = path.stat()
        folder = _folder_for(run_dir / TRASH, path.stem)
        try:
            if has_meta:
                path.with_suffix(".json").replace(folder / f"{path.stem}.json")
            if path.stat().st_ino != chosen.st_ino:  # a new part of the run has just used the name
                raise FileNotFoundError(name)
            path.replace(folder / name)
        except FileNotFoundError:
            if not any(folder.iterdir()):
                folder.rmdir()
            raise UserError(GONE.format(name=name)) from None
    return folder


def bytes_in_trash(run_dir: Path) -> int:
    """Return what emptying the trash would free."""
    return sum(path.stat().st_size for path in (run_dir / TRASH).rglob("*") if path.is_file())


def empty_trash(run_dir: Path) -> int:
    """Remove what was thrown away; return how many bytes that freed.

    Raises:
        UserError: it cannot be removed.
    """
    freed = bytes_in_trash(run_dir)
    with _said_of(run_dir / TRASH):
        if (run_dir / TRASH).is_dir():
            shutil.rmtree(run_dir / TRASH)  # never follows a symbolic link
    return freed


def meta_of(checkpoint: Path) -> CheckpointMeta | None:
    """Return the meta of a checkpoint, None where there is none that can be read; kept until it changes."""
    path = checkpoint.with_suffix(".json")
    try:
        status = path.stat()
        return _read(path, status.st_mtime_ns, status.st_ino)
    except (OSError, ValueError):
        return None


@lru_cache(maxsize=64)  # a meta file holds all pieces of its tokenizer, and is asked for again and again
def _read(path: Path, mtime_ns: int, inode: int) -> CheckpointMeta:
    return CheckpointMeta.read(path)


def _serial(meta: CheckpointMeta | None) -> int | None:
    return None if meta is None else meta.serial


def _find(run_dir: Path, name: str) -> Checkpoint:
    """Return the checkpoint of that name: one that is listed, never a path.

    Raises:
        UserError: there is none.
    """
    for each in list_checkpoints(run_dir):
        if each.name == name:
            return each
    raise UserError(GONE.format(name=name))


def _folder_for(trash: Path, stem: str) -> Path:
    """Make a folder of its own for one checkpoint."""
    trash.mkdir(exist_ok=True)
    wanted = trash / f"{time.strftime('%Y%m%d_%H%M%S')}_{stem}"
    folder, number = wanted, 1
    while folder.exists():
        number += 1
        folder = wanted.with_name(f"{wanted.name}_{number}")
    folder.mkdir()
    return folder


@contextmanager
def _said_of(path: Path) -> Iterator[None]:
    """Make a UserError of what the system refuses."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{path.name}: {error.strerror}; look at the folder {path.parent}") from None
