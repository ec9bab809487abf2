"""Operations of the owner of a run directory: lock, commit, publish, prune, make room, quarantine, repair.

Each is a sequence of atomic renames and links. If a kill interrupts it, `repair` completes it when the next
owner takes the lock:

    commit        .tmp-X.pth, .tmp-X.json are written and synced; .tmp-X.pth -> X.pth; .tmp-X.json -> X.json
    step aside    X.pth -> X.partP.pth; X.json -> X.partP.json
    publish       latest.json -> .tmp-old-latest.json; X.pth is linked as latest.pth; X.json as latest.json
    prune         X.json -> .tmp-pruned-X.json; X.pth and then .tmp-pruned-X.json are removed
    make room     as prune; where latest.pth was deleted, the checkpoint that stays is published
    quarantine    X.json -> damaged-X.json; X.pth -> damaged-X.pth

So a meta file is never next to the wrong checkpoint, and never alone except while its checkpoint steps aside.
A checkpoint that is still without a meta file after the repair lost it elsewhere, for example on the way from
another machine; a resume reads the record in the checkpoint, and `write_meta` writes the file.
"""

import fcntl
import json
import logging
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from indextts.errors import FOLDER_IN_USE, UserError, disk_errors
from indextts.runs.directory import (
    BEST,
    LINKS,
    PRUNED,
    QUARANTINED,
    CheckpointMeta,
    checkpoint_path,
    checkpoints,
    is_half_removed,
    read_meta,
    verify_checkpoint,
)
from indextts.system.digest import file_digest
from indextts.system.files import first_free, link_or_copy, read_object, sync, write_bytes
from indextts.system.processes import Process, is_alive, this_process

logger = logging.getLogger(__name__)

OWNER_TIMEOUT_S = 1.0


def prepare(run_dir: Path) -> None:
    """Create the folder and its lock file, without taking the lock.

    Raises:
        UserError: the folder cannot be written.
    """
    with disk_errors(f"--output-dir {run_dir}"):
        run_dir.mkdir(parents=True, exist_ok=True)
        (run_dir / ".lock").open("a").close()


def is_training(run_dir: Path) -> bool:
    """Return whether a running trainer owns the folder; takes no lock, so it never blocks a trainer."""
    return _is_owned(_owner(run_dir / ".lock"))


@contextmanager
def run_lock(run_dir: Path) -> Iterator[None]:
    """Hold the lock of the folder; repair what an interrupted owner left and check that files can be written.

    The kernel frees the lock when the process ends for any reason, so it is never stale. On a file system
    without locks, the owner recorded in the file decides (pid, start time and boot).

    Raises:
        UserError: with status 5 if another trainer holds it, 4 if its disk is full, 2 if files cannot be
            written, synced and renamed there.
    """
    with (run_dir / ".lock").open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_free = True
        except BlockingIOError:
            is_free = False
        except OSError:  # a network file system without locks
            is_free = not _is_owned(_owner(run_dir / ".lock"))
        if not is_free:
            owner = _owner_soon(run_dir / ".lock")
            raise UserError(
                f"{run_dir} is in use by a running trainer (process {owner.pid if owner else 'unknown'}); "
                "stop that trainer, or choose another --output-dir",
                FOLDER_IN_USE,
            )
        with disk_errors(f"--output-dir {run_dir}"):
            os.register_at_fork(after_in_child=lock.close)  # a hanging data worker must not keep it
            lock.truncate(0)
            lock.write(json.dumps(asdict(this_process())) + "\n")
            lock.flush()
            repair(run_dir)
            probe = run_dir / ".tmp-probe"
            write_bytes(probe, b"probe")
            probe.unlink()
            sync(run_dir)
        yield


def repair(run_dir: Path) -> None:
    """Complete interrupted operations and remove temporary files; only for the owner."""
    for aside in run_dir.glob(".tmp-model_step*.json"):
        _finish_commit(aside)
    for moved in run_dir.glob("model_step*.part*.pth"):
        _finish_step_aside(moved)
    for pruned in run_dir.glob(f"{PRUNED}*.json"):
        _finish_prune(pruned)
    for quarantined in run_dir.glob(f"{QUARANTINED}*.json"):
        _finish_quarantine(quarantined)
    publish_newest(run_dir)
    for leftover in run_dir.glob(".tmp-*"):
        leftover.unlink(missing_ok=True)


def write_meta(path: Path, meta: CheckpointMeta) -> None:
    """Write the meta file of a checkpoint that lost it; only for the owner, after `repair`.

    Raises:
        UserError: the folder cannot be written.
    """
    with disk_errors(f"--output-dir {path.parent}"):
        meta.write(path.with_suffix(".json"))
    logger.warning(
        "%s (step %d) had no meta file; verified its checksums and wrote %s",
        path.name,
        meta.step,
        path.with_suffix(".json").name,
    )


def publish_newest(run_dir: Path) -> None:
    """Link the newest and the best checkpoints, if the link is older."""
    numbered = [
        (path, meta) for path, meta in checkpoints(run_dir) if path.name not in LINKS and path.is_file()
    ]
    best = {link: [item for item in numbered if getattr(item[1], field)] for link, field in BEST.items()}
    with disk_errors(f"--output-dir {run_dir}"):
        for link, found in {"latest.pth": numbered, **best}.items():
            if found and _is_older(run_dir / link, found[0][1]):
                publish(found[0][0], run_dir / link)


def _is_older(link: Path, meta: CheckpointMeta) -> bool:
    """Return whether the checkpoint of `meta` replaces the one at `link`."""
    try:
        return read_meta(link).serial < meta.serial
    except ValueError:
        return not _may_be_newer(link)


def _may_be_newer(link: Path) -> bool:
    """Return whether a link without a meta file may be a newer checkpoint, copied here without its meta file.

    It is not if an interrupted `publish` removed the meta file, or if it is one of the numbered files.
    """
    numbered = [path for path in link.parent.glob("model_step*.pth") if path.is_file()]
    is_link = link.is_file() and any(map(link.samefile, numbered))
    return link.is_file() and not is_link and not _aside(link).exists()


def _aside(link: Path) -> Path:
    return link.with_name(f".tmp-old-{link.stem}.json")


def commit(aside: Path, meta: CheckpointMeta) -> Path:
    """Rename the checkpoint that was written and synced as `aside` to its final name; return its path.

    A file that already has this name is renamed first if it belongs to another part of the run or to another
    program.
    """
    path = checkpoint_path(aside.parent, meta.step)
    meta_aside = path.with_name(f".tmp-{path.stem}.json")
    _step_aside(path, meta.part)
    meta.write(meta_aside)
    aside.replace(path)
    meta_aside.replace(path.with_suffix(".json"))
    sync(path.parent)
    return path


def publish(checkpoint: Path, link: Path) -> None:
    """Link `checkpoint` and its meta file as `link`, one of LINKS.

    If a person deletes the checkpoint meanwhile, the link stays as a kill would leave it: the next save, or
    the repair at the next start, links another one.
    """
    meta_path, aside = link.with_suffix(".json"), _aside(link)
    if meta_path.exists():
        meta_path.replace(aside)  # never next to another checkpoint
    elif _may_be_newer(link):
        _rename_foreign(link, "it has no meta file")
    own_meta = checkpoint.with_suffix(".json")
    try:
        link_or_copy(checkpoint, link)
        link_or_copy(own_meta, meta_path)
    except FileNotFoundError:
        if checkpoint.exists() and own_meta.exists():
            raise
        logger.warning("%s was deleted while it was linked as %s", checkpoint.name, link.name)
        return
    aside.unlink(missing_ok=True)
    sync(link.parent)


def prune(run_dir: Path, keep: int, part: int) -> list[str]:
    """Delete checkpoints of this part except the `keep` newest, the best and the pinned; return their names.

    Only `model_step{N}.pth` files with a meta file of this part are deleted, never those of other parts or
    other programs, and only after the digest of the newest checkpoint was verified.
    """
    own, needed = _own_and_needed(run_dir, part)
    spare = [path for path in own[keep:] if path not in needed]
    if spare and _verified(own[:1]):
        _delete(spare)
        return [path.name for path in spare]
    return []


def make_room(run_dir: Path, num_bytes: int, keep: int, part: int) -> bool:
    """Delete the oldest checkpoints of this part until `num_bytes` are freed, before the next save.

    The best, the pinned and one valid checkpoint stay. Nothing is deleted if that frees too little.

    Args:
        keep: as for `prune`; fewer checkpoints stay only where the space is needed, with a warning.
    """
    own, needed = _own_and_needed(run_dir, part)
    spare = [path for path in own if path not in needed and not path.is_symlink()]  # a link holds no space
    if spare == own:
        spare = own[1:]
    chosen: list[Path] = []
    freed = 0
    for path in reversed(spare):
        if freed < num_bytes:
            chosen.append(path)
            freed += path.stat().st_size
    if freed < num_bytes:
        return False
    stays = _verified([path for path in own if path not in chosen])
    if stays is None:
        return False
    latest = run_dir / "latest.pth"
    loses_latest = own[0] in chosen and latest.with_suffix(".json").exists()
    if loses_latest:  # first: a link to a deleted checkpoint would hold its space
        latest.with_suffix(".json").unlink(missing_ok=True)
        latest.unlink(missing_ok=True)
    _delete(chosen)
    if loses_latest:
        publish(stays, latest)
    surplus = own[max(keep - 1, 0) :]  # what `prune` would delete after the save
    logger.log(
        logging.INFO if set(chosen) <= set(surplus) else logging.WARNING,
        "The disk is full: deleted %s to make room for the next checkpoint%s; %s stays",
        ", ".join(path.name for path in chosen),
        "" if set(chosen) <= set(surplus) else f", more than --keep-checkpoints {keep} asks for",
        stays.name,
    )
    return True


def quarantine(corrupt: Path) -> Path:
    """Rename a corrupt checkpoint so that no resume uses it; return the new path."""
    renamed = corrupt.with_name(f"{QUARANTINED}{corrupt.name}")
    for source in (corrupt.with_suffix(".json"), corrupt):
        if source.exists():
            source.replace(renamed.with_suffix(source.suffix))
    sync(corrupt.parent)
    return renamed


def _own_and_needed(run_dir: Path, part: int) -> tuple[list[Path], list[Path]]:
    """Return the numbered checkpoints of this part, newest first, and of these the best and the pinned."""
    present = checkpoints(run_dir)
    best = {meta.serial for path, meta in present if path.name in BEST}
    own = [
        (path, meta)
        for path, meta in present
        if path == checkpoint_path(run_dir, meta.step) and meta.part == part and path.is_file()
    ]
    needed = [path for path, meta in own if meta.serial in best or path.with_suffix(".pinned").exists()]
    return [path for path, _ in own], needed


def _verified(paths: Sequence[Path]) -> Path | None:
    """Return the first valid checkpoint of `paths`; log if there is none."""
    for path in paths:
        try:
            verify_checkpoint(path)
        except ValueError as problem:
            logger.warning("%s; it does not count as a checkpoint that stays", problem)
        else:
            return path
    return None


def _delete(paths: Sequence[Path]) -> None:
    for path in paths:
        aside = path.with_name(f"{PRUNED}{path.stem}.json")
        path.with_suffix(".json").replace(aside)
        _finish_prune(aside)


def _finish_commit(aside: Path) -> None:
    """Rename the meta file if its checkpoint has its final name; otherwise the save was never committed."""
    path = aside.with_name(aside.name.removeprefix(".tmp-")).with_suffix(".pth")
    if path.with_name(f".tmp-{path.name}").exists() or not path.is_file():
        return
    try:
        meta = CheckpointMeta.read(aside)
    except ValueError:
        return
    if path.stat().st_size == meta.num_bytes and file_digest(path) == meta.digest:
        aside.replace(path.with_suffix(".json"))


def _finish_prune(aside: Path) -> None:
    """Delete the checkpoint whose meta file is already set aside, then that meta file."""
    path = aside.with_name(aside.name.removeprefix(PRUNED)).with_suffix(".pth")
    if not path.with_suffix(".json").exists():  # otherwise a later save has this name
        path.unlink(missing_ok=True)
    aside.unlink()


def _finish_quarantine(meta_path: Path) -> None:
    """Rename the checkpoint whose meta file is already renamed."""
    renamed = meta_path.with_suffix(".pth")
    path = renamed.with_name(renamed.name.removeprefix(QUARANTINED))
    if is_half_removed(path):
        path.replace(renamed)


def _step_aside(path: Path, part: int) -> None:
    """Rename the file at `path` unless it belongs to this part of the run."""
    if not path.exists():
        return
    try:
        old = read_meta(path)
    except ValueError as problem:
        _rename_foreign(path, str(problem))
        return
    if old.part == part:
        return
    renamed = path.with_name(f"{path.stem}.part{old.part}.pth")
    for suffix in (".pinned", ".pth", ".json"):
        if path.with_suffix(suffix).exists():
            path.with_suffix(suffix).replace(renamed.with_suffix(suffix))
    logger.info("%s of run part %d renamed to %s", path.name, old.part, renamed.name)


def _finish_step_aside(moved: Path) -> None:
    """Rename the meta file whose checkpoint is already renamed."""
    stem, part = moved.stem.rsplit(".part", 1)
    meta_path = moved.with_name(f"{stem}.json")
    if moved.with_suffix(".json").exists() or not meta_path.exists():
        return
    try:
        meta = CheckpointMeta.read(meta_path)
    except ValueError:
        return
    if str(meta.part) == part and not moved.with_name(f"{stem}.pth").exists():
        meta_path.replace(moved.with_suffix(".json"))


def _rename_foreign(path: Path, problem: str) -> None:
    """Rename a checkpoint that this program did not write, or cannot read; it is never replaced."""
    renamed = first_free(lambda n: path.with_name(f"{path.stem}.foreign{n if n > 1 else ''}.pth"))
    path.replace(renamed)
    logger.info("%s renamed to %s: %s", path.name, renamed.name, problem)


def _owner(lock: Path) -> Process | None:
    """Return the process recorded in the lock file, None if there is none."""
    return Process.recorded(read_object(lock))


def _owner_soon(lock: Path) -> Process | None:
    """Return the owner; waits for a trainer that has just taken the lock to write who it is."""
    deadline = time.monotonic() + OWNER_TIMEOUT_S
    while not _is_owned(owner := _owner(lock)) and time.monotonic() < deadline:
        time.sleep(0.01)
    return owner


def _is_owned(owner: Process | None) -> bool:
    return owner is not None and is_alive(owner)
