"""What only the owner of a run directory does: lock it, commit, publish, prune, mend what a kill left.

Each is a row of renames and links, of which every one is atomic. A kill between two leaves a state that
`repair` brings to its end when the next owner comes:

    commit        .tmp-X.pth, .tmp-X.json are written and synced; .tmp-X.pth -> X.pth; .tmp-X.json -> X.json
    step aside    X.pth -> X.partP.pth; X.json -> X.partP.json
    publish       latest.json is removed; X.pth is linked as latest.pth; X.json as latest.json
    prune         X.json -> .tmp-pruned-X.json; X.pth and then .tmp-pruned-X.json are removed
    set apart     X.json -> damaged-X.json; X.pth -> damaged-X.pth

So a meta file never stands beside another checkpoint than its own, and never alone but while one steps aside.
"""

import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from indextts.errors import DISK_FULL, DISK_FULL_ERRNOS, FOLDER_IN_USE, USER_MISTAKE, UserError
from indextts.runs.directory import LINKS, CheckpointMeta, checkpoint_path, checkpoints, verify_checkpoint
from indextts.system.digest import file_digest
from indextts.system.files import link_or_copy, sync, write_bytes
from indextts.system.processes import Process, is_alive, this_process

logger = logging.getLogger(__name__)

PRUNED = ".tmp-pruned-"


def prepare(run_dir: Path) -> None:
    """Make the folder with its lock file, which nobody holds by that.

    Raises:
        UserError: it cannot be done.
    """
    with _said_of(run_dir):
        run_dir.mkdir(parents=True, exist_ok=True)
        (run_dir / ".lock").open("a").close()


def is_training(run_dir: Path) -> bool:
    """Return whether a trainer that owns the folder lives; takes no lock, which a start would find taken."""
    try:
        return _owner_lives(str(run_dir / ".lock"))
    except OSError:
        return False


@contextmanager
def run_lock(run_dir: Path) -> Iterator[None]:
    """Hold the folder's lock, after mending what an interrupted owner left; see that it can be written.

    The kernel frees the lock when the process ends, however it ends, so that it cannot be stale. Where the
    file system has no locks, the owner's identity in the file decides (number, start and boot).

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
            is_free = not _owner_lives(lock.name)
        if not is_free:
            raise UserError(
                f"{run_dir} belongs to a running trainer (process {_owner(lock.name) or 'unknown'}); "
                "stop it first, or choose another --output-dir",
                FOLDER_IN_USE,
            )
        with _said_of(run_dir):
            os.register_at_fork(after_in_child=lock.close)  # a data worker that hangs must not keep it
            lock.truncate(0)
            lock.write(this_process().to_json() + "\n")
            lock.flush()
            repair(run_dir)
            probe = run_dir / ".tmp-probe"
            write_bytes(probe, b"probe")
            probe.unlink()
            sync(run_dir)
        yield


def repair(run_dir: Path) -> None:
    """Bring to its end what a kill interrupted, and sweep the rest; only the owner may."""
    for aside in run_dir.glob(".tmp-model_step*.json"):
        _finish_commit(aside)
    for moved in run_dir.glob("model_step*.part*.pth"):
        _finish_stepping_aside(moved)
    for pruned in run_dir.glob(f"{PRUNED}*.json"):
        _finish_removing(pruned)
    for damaged in run_dir.glob("damaged-model_step*.json"):
        _finish_setting_apart(damaged)
    for leftover in run_dir.glob(".tmp-*"):
        leftover.unlink(missing_ok=True)
    numbered = [(path, meta) for path, meta in checkpoints(run_dir) if _is_numbered(path) and path.is_file()]
    best = [(path, meta) for path, meta in numbered if meta.is_best]
    for found, link in ((numbered, "latest.pth"), (best, "best.pth")):
        if found and found[0][1].serial > _serial(run_dir / link):
            publish(found[0][0], run_dir / link)


def commit(aside: Path, meta: CheckpointMeta) -> Path:
    """Give a checkpoint that was written and synced as `aside` its name; return its path.

    A checkpoint of another part of the run, or a file of another program, that has the name already is
    renamed first.
    """
    path = checkpoint_path(aside.parent, meta.step)
    meta_aside = path.with_name(f".tmp-{path.stem}.json")
    _make_way(path, meta.part)
    meta.write(meta_aside)
    aside.replace(path)
    meta_aside.replace(path.with_suffix(".json"))
    sync(path.parent)
    return path


def publish(checkpoint: Path, link: Path) -> None:
    """Make `link` (latest.pth or best.pth) and its meta file those of `checkpoint`."""
    if link.is_file() and not link.with_suffix(".json").exists() and not _is_ours(link):
        _rename_foreign(link)
    link.with_suffix(".json").unlink(missing_ok=True)  # never the meta file of another checkpoint beside it
    link_or_copy(checkpoint, link)
    link_or_copy(checkpoint.with_suffix(".json"), link.with_suffix(".json"))
    sync(link.parent)


def prune(run_dir: Path, keep: int, part: int) -> list[str]:
    """Delete this part's checkpoints but the `keep` newest, the best and the pinned; return their names.

    Only files of the pattern `model_step{N}.pth` with a meta file of this part are touched: what another part
    or another program wrote stays. Nothing is deleted unless the newest is read again and found whole.
    """
    present = checkpoints(run_dir)
    best_serial = next((meta.serial for path, meta in present if path.name == "best.pth"), None)
    own = [
        (path, meta)
        for path, meta in present
        if path == checkpoint_path(run_dir, meta.step) and meta.part == part and path.is_file()
    ]
    spare = [
        path
        for path, meta in own[keep:]
        if meta.serial != best_serial and not path.with_suffix(".pinned").exists()
    ]
    if not spare:
        return []
    try:
        verify_checkpoint(own[0][0])
    except ValueError as problem:
        logger.warning("No checkpoint is removed: the newest is not whole (%s)", problem)
        return []
    for path in spare:
        aside = path.with_name(f"{PRUNED}{path.stem}.json")
        path.with_suffix(".json").replace(aside)
        _finish_removing(aside)
    return [path.name for path in spare]


def quarantine(damaged: Path) -> Path:
    """Rename a damaged checkpoint, so that it counts no more but can be looked at; return the new path."""
    renamed = damaged.with_name(f"damaged-{damaged.name}")
    for source in (damaged.with_suffix(".json"), damaged):
        if source.exists():
            source.replace(renamed.with_suffix(source.suffix))
    sync(damaged.parent)
    return renamed


@contextmanager
def _said_of(run_dir: Path) -> Iterator[None]:
    """Make a UserError of what the system refuses."""
    try:
        yield
    except OSError as error:
        is_full = error.errno in DISK_FULL_ERRNOS
        raise UserError(
            f"--output-dir {run_dir} cannot be written ({error.strerror}); "
            + ("make room on its disk" if is_full else "choose a folder you may write to"),
            DISK_FULL if is_full else USER_MISTAKE,
        ) from None


def _finish_commit(aside: Path) -> None:
    """Rename the meta file if its checkpoint has its name already; else the save never took place."""
    path = aside.with_name(aside.name.removeprefix(".tmp-")).with_suffix(".pth")
    if path.with_name(f".tmp-{path.name}").exists() or not path.is_file():
        return
    try:
        meta = CheckpointMeta.read(aside)
    except ValueError:
        return
    if path.stat().st_size == meta.num_bytes and file_digest(path) == meta.digest:
        aside.replace(path.with_suffix(".json"))


def _finish_removing(aside: Path) -> None:
    """Remove the checkpoint whose meta file is already aside, and then that one."""
    path = aside.with_name(aside.name.removeprefix(PRUNED)).with_suffix(".pth")
    if not path.with_suffix(".json").exists():  # else a later save has the name
        path.unlink(missing_ok=True)
    aside.unlink()


def _finish_setting_apart(damaged: Path) -> None:
    """Rename the checkpoint whose meta file is already renamed."""
    path = damaged.with_name(damaged.name.removeprefix("damaged-")).with_suffix(".pth")
    if path.is_file() and not path.with_suffix(".json").exists() and not damaged.with_suffix(".pth").exists():
        path.replace(damaged.with_suffix(".pth"))


def _make_way(path: Path, part: int) -> None:
    """Rename what has the name `path` and is not this part's own."""
    if not path.exists():
        return
    try:
        old = CheckpointMeta.read(path.with_suffix(".json"))
    except ValueError:
        _rename_foreign(path)
        return
    if old.part == part:
        return
    renamed = path.with_name(f"{path.stem}.part{old.part}.pth")
    for suffix in (".pinned", ".pth", ".json"):
        if path.with_suffix(suffix).exists():
            path.with_suffix(suffix).replace(renamed.with_suffix(suffix))
    logger.info("%s of run part %d is now %s", path.name, old.part, renamed.name)


def _finish_stepping_aside(moved: Path) -> None:
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


def _rename_foreign(path: Path) -> None:
    """Rename a checkpoint that this run did not write; it is never replaced."""
    number = 1
    renamed = path.with_name(f"{path.stem}.foreign.pth")
    while renamed.exists():
        number += 1
        renamed = path.with_name(f"{path.stem}.foreign{number}.pth")
    path.replace(renamed)
    logger.info("%s has no meta file, so this run did not write it; it is now %s", path.name, renamed.name)


def _is_ours(link: Path) -> bool:
    """Return whether `link` is one of the folder's checkpoints, whose meta file a kill kept from it."""
    numbered = [(path, meta) for path, meta in checkpoints(link.parent) if path.is_file()]
    if any(link.samefile(path) for path, _ in numbered):
        return True
    of_its_size = [meta for _, meta in numbered if meta.num_bytes == link.stat().st_size]
    return bool(of_its_size) and file_digest(link) in [meta.digest for meta in of_its_size]


def _is_numbered(path: Path) -> bool:
    return path.name not in LINKS


def _serial(link: Path) -> int:
    try:
        return CheckpointMeta.read(link.with_suffix(".json")).serial
    except ValueError:
        return 0


def _owner(lock: str) -> int | None:
    """Return the process number that the lock file names."""
    try:
        return Process.from_json(Path(lock).read_bytes()).pid
    except ValueError:
        return None


def _owner_lives(lock: str) -> bool:
    try:
        return is_alive(Process.from_json(Path(lock).read_bytes()))
    except ValueError:
        return False
