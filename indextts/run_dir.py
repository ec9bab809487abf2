"""THE RUN DIRECTORY: what a run leaves behind. No torch here.

    OUTPUT_DIR/
      config.json            the whole command with defaults, versions, git commit, run part
      model_step{N}.pth      a checkpoint, torch.load(weights_only=True); its keys: indextts/checkpoint.py
      model_step{N}.json     its meta, written last: a checkpoint without it does not count
      model_step{N}.part{P}.pth/.json   a checkpoint of part P whose name a later part used again
      latest.pth latest.json            the newest checkpoint, by serial (hard links, or copies)
      best.pth   best.json              the one with the lowest validation mel loss
      tokenizer.model        the tokenizer of the run
      metrics.jsonl          one JSON object a line; of a step replayed after a resume the later counts
      train.log              what a person reads
      logs/run_{time}/       TensorBoard
      exit.json              how the last process ended
      .lock                  held by the running trainer

A run has parts: part 1 from the base checkpoint; a new part when the vocabulary changed or an older
checkpoint was resumed. Every save has a serial number that only grows: "newest" means serial, never step.
"""

import fcntl
import hashlib
import json
import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from indextts.errors import FOLDER_IN_USE, UserError

logger = logging.getLogger(__name__)

META_FORMAT = 1


@dataclass(frozen=True)
class CheckpointMeta:
    """The `.json` beside a checkpoint.

    Args:
        samples_done: samples of the epoch that are done, in the order of the epoch.
        part: run part, from 1.
        num_bytes, sha256: of the `.pth`.
    """

    step: int
    epoch: int
    samples_done: int
    batch_idx: int
    serial: int
    part: int
    tokenizer_fingerprint: str
    tokenizer_size: int
    settings: dict[str, Any]
    losses: dict[str, float]
    num_bytes: int
    sha256: str
    format_version: int = META_FORMAT

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return the meta file at `path`.

        Raises:
            ValueError: it is not one; the message says why.
        """
        try:
            fields = json.loads(path.read_text(encoding="utf-8"))
            meta = cls(**fields)
        except (OSError, ValueError, TypeError) as error:
            raise ValueError(f"{path.name}: {error}") from None
        if meta.format_version != META_FORMAT:
            raise ValueError(f"{path.name}: format {meta.format_version}, this program knows {META_FORMAT}")
        return meta


def checkpoint_path(run_dir: Path, step: int) -> Path:
    return run_dir / f"model_step{step}.pth"


def verify_checkpoint(path: Path) -> CheckpointMeta:
    """Return the meta of the checkpoint at `path` after comparing its size and digest.

    Raises:
        ValueError: the checkpoint or its meta file is missing or damaged; the message says what.
    """
    meta = CheckpointMeta.read(path.with_suffix(".json"))
    if not path.is_file():
        raise ValueError(f"{path.name} is missing")
    if path.stat().st_size != meta.num_bytes:
        raise ValueError(f"{path.name}: {path.stat().st_size} bytes, its meta file says {meta.num_bytes}")
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != meta.sha256:
        raise ValueError(f"{path.name}: sha256 differs from its meta file, the file is damaged")
    return meta


def checkpoints(run_dir: Path) -> list[tuple[Path, CheckpointMeta]]:
    """Return the committed checkpoints with their metas, newest serial first; nothing is verified."""
    found = []
    for meta_path in [*run_dir.glob("model_step*.json"), run_dir / "latest.json", run_dir / "best.json"]:
        if meta_path.is_symlink() or not meta_path.is_file():
            continue
        try:
            found.append((meta_path.with_suffix(".pth"), CheckpointMeta.read(meta_path)))
        except ValueError as error:
            logger.warning("Not a checkpoint's meta file: %s", error)
    # of one serial: latest.pth first, it is what people know
    return sorted(found, key=lambda item: (-item[1].serial, item[0].name != "latest.pth", item[0].name))


def checkpoint_files(run_dir: Path) -> list[Path]:
    """Return every checkpoint file of the folder, committed or not, for messages."""
    return sorted([*run_dir.glob("model_step*.pth"), *run_dir.glob("latest.pth"), *run_dir.glob("best.pth")])


def prune(run_dir: Path, keep: int, part: int) -> list[str]:
    """Delete this part's checkpoints but the `keep` newest and the best; return the names deleted.

    Only files of the pattern `model_step{N}.pth` with a meta file of this part are touched: what another part
    or another program wrote stays.
    """
    best_serial = next((m.serial for path, m in checkpoints(run_dir) if path.name == "best.pth"), None)
    own = [
        (path, meta)
        for path, meta in checkpoints(run_dir)
        if path.name == checkpoint_path(run_dir, meta.step).name and meta.part == part
    ]
    removed = []
    for path, meta in own[keep:]:
        if meta.serial == best_serial:
            continue
        path.with_suffix(".json").unlink()  # first: without it the file no longer counts
        path.unlink(missing_ok=True)
        removed.append(path.name)
    return removed


def link_as(source: Path, target: Path) -> None:
    """Make `target` the same file as `source` and replace what was there in one step.

    A hard link where the file system can, else a copy.
    """
    aside = target.with_name(f".tmp-{target.name}")
    aside.unlink(missing_ok=True)
    try:
        os.link(source.resolve(), aside)  # not a symbolic link, which may be relative to its own folder
    except OSError:
        shutil.copy2(source, aside)  # with its time, by which the pipeline notices a change
        sync_file(aside)
    aside.replace(target)
    aside.unlink(missing_ok=True)  # rename keeps both names when they already are the same file


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write `content` aside, sync it and rename it to `path`."""
    write_bytes(path, (json.dumps(content, ensure_ascii=False, indent=1) + "\n").encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Write `content` aside, sync it and rename it to `path`."""
    aside = path.with_name(f".tmp-{path.name}")
    aside.write_bytes(content)
    sync_file(aside)
    aside.replace(path)


def write_meta(path: Path, meta: CheckpointMeta) -> None:
    write_json(path, asdict(meta))


def sync_file(path: Path) -> None:
    """Force a file's bytes, or a folder's names, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def prepare(run_dir: Path) -> None:
    """Make the folder and see that it can be written.

    Raises:
        UserError: the folder cannot be made or written.
    """
    probe = run_dir / ".tmp-probe"
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        raise UserError(
            f"--output-dir {run_dir} cannot be written ({error.strerror}); choose a folder you may write to"
        ) from None


@contextmanager
def owned(run_dir: Path) -> Iterator[None]:
    """Hold the folder's lock and sweep what an interrupted save left.

    The kernel frees the lock when the process ends, however it ends.

    Raises:
        UserError: with status 5 if another trainer holds it.
    """
    with (run_dir / ".lock").open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            raise UserError(
                f"{run_dir} belongs to a running trainer (process {lock.read().strip() or 'unknown'}); "
                "stop it first, or choose another --output-dir",
                FOLDER_IN_USE,
            ) from None
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        for leftover in run_dir.glob(".tmp-*"):
            leftover.unlink(missing_ok=True)
        yield


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a metrics.jsonl in the order of writing; of one step of a part the last counts.

    A line that is not whole JSON, as a kill leaves it, is skipped.
    """
    lines: dict[tuple[Any, ...], dict[str, Any]] = {}
    for text in path.read_text(encoding="utf-8").splitlines():
        try:
            line = json.loads(text)
        except ValueError:
            continue
        key = (line.get("part"), line.get("kind"), line.get("step"))
        lines.pop(key, None)
        lines[key] = line
    return list(lines.values())
