"""Find and verify the checkpoint that `--resume` names: the newest valid one, or a given file. No torch.

Reading and hashing gigabytes takes as long as importing torch, so the trainer does both at the same time. A
checkpoint that lost its `.json` has the same record inside, which torch reads: the caller passes `recover`
(`indextts.models.checkpoint.recover_meta`).
"""

import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from indextts.errors import RESUME_REFUSED, UserError
from indextts.runs.directory import (
    LINKS,
    CheckpointMeta,
    checkpoint_files,
    checkpoints,
    files_without_meta,
    read_meta,
    verify_checkpoint,
)
from indextts.runs.owner import publish, publish_newest, quarantine, write_meta
from indextts.system.amounts import counted

logger = logging.getLogger(__name__)

# Returns the meta of a file from its record, with an empty digest if a checksum in the file differs; None if
# another program wrote it; raises ValueError with the reason if it has no readable record.
Recover = Callable[[Path], CheckpointMeta | None]


def find_checkpoint(resume: str, folder: Path, recover: Recover, *, may_change: bool = True) -> Path | None:
    """Return the verified checkpoint that `--resume` names; None to start from the base checkpoint.

    Args:
        may_change: write missing meta files, and quarantine corrupt checkpoints that are newer than the
            returned one; only for the owner of the folder.

    Raises:
        UserError: with status 2 if the path does not exist, or if a new run would start in a folder that has
            checkpoints; with status 3 if the checkpoints cannot be used.
    """
    if not resume:
        if present := checkpoint_files(folder):
            raise UserError(
                f"{folder} already has checkpoints, such as {present[-1].name}; resume with --resume auto, "
                "or choose another --output-dir"
            )
        return None
    if resume == "auto":
        return _newest_valid(folder, recover, may_change) if checkpoint_files(folder) else None
    path = named_checkpoint(resume)
    if may_change:
        _recovered(folder, recover, may_change)
    _require_valid(path, recover)
    return path


def named_checkpoint(resume: str) -> Path:
    """Return the file that `--resume PATH` names; raise a UserError if there is none."""
    path = Path(resume)
    if not path.is_file():
        names = [other.name for other in checkpoint_files(path.parent)]
        has = f"{path.parent} has {', '.join(names) or 'no checkpoints'}"
        raise UserError(
            f"Resume checkpoint not found: {path}; {has}; "
            "--resume auto uses the newest checkpoint of --output-dir"
        )
    return path


def _newest_valid(folder: Path, recover: Recover, may_change: bool) -> Path:
    """Return the newest checkpoint of `folder` whose digest matches; log and quarantine corrupt ones."""
    recovered, problems = _recovered(folder, recover, may_change)
    found = {**dict(checkpoints(folder)), **recovered}
    corrupt: list[Path] = []
    waiting = sorted(found, key=lambda path: -found[path].serial)  # a stable sort: links come last
    while waiting:
        path = waiting.pop(0)
        try:
            meta = recovered.get(path) or _verified(path, recover)
            _require_digest(path, meta)
            if meta.serial < found[path].serial:  # an older one was copied over this link: at its turn
                found[path] = recovered[path] = meta
                if may_change:
                    write_meta(path, meta)
                waiting = sorted([path, *waiting], key=lambda path: -found[path].serial)
                continue
        except ValueError as problem:
            logger.warning("Skipped a corrupt checkpoint: %s", problem)
            corrupt.append(path)
            continue
        if corrupt and found[corrupt[0]].serial != meta.serial:  # else it is another copy of the same save
            logger.warning(
                "Falling back from step %d to step %d, the newest valid checkpoint",
                found[corrupt[0]].step,
                meta.step,
            )
        if corrupt and may_change:
            for bad in corrupt:
                quarantine(bad)
            if path != folder / "latest.pth":
                publish(path, folder / "latest.pth")
        if problems:
            logger.warning(
                "Skipped %s that may be newer than step %d of %s: %s",
                counted(len(problems), "file"),
                meta.step,
                path.name,
                "; ".join(problems),
            )
        logger.info("Auto-resume: found checkpoint at %s", path)
        return path
    foreign = _newest_foreign(folder)
    if foreign is not None and not corrupt:
        logger.warning("%s has no meta file, so its digest was not verified", foreign)
        logger.info("Auto-resume: found checkpoint at %s", foreign)
        return foreign
    raise UserError(
        f"Resume failed: {folder} has no valid checkpoint; copy a valid one there, or start a new run "
        "in another --output-dir",
        RESUME_REFUSED,
    )


def _recovered(
    folder: Path, recover: Recover, may_change: bool
) -> tuple[dict[Path, CheckpointMeta], list[str]]:
    """Return the metas of files that lost theirs, and why others are no checkpoints of this program."""
    metas: dict[Path, CheckpointMeta] = {}
    problems = []
    listed = dict(checkpoints(folder))
    for path in files_without_meta(folder):
        try:
            meta = recover(path)
            problem = f"{path.name} has no meta record: another program wrote it"
        except ValueError as error:
            meta, problem = None, str(error)
        known = listed.get(path)
        if known is not None and (meta is None or meta.serial == known.serial):
            continue  # its meta file is its own, and the digest decides
        if meta is None:
            problems.append(problem)
            continue
        metas[path] = meta
        if may_change and meta.digest:
            write_meta(path, meta)
    if metas and may_change:
        publish_newest(folder)
    return metas, problems


def _verified(path: Path, recover: Recover) -> CheckpointMeta:
    """Return the verified meta; of the record inside if a link was replaced without its meta file."""
    try:
        return verify_checkpoint(path)
    except ValueError as problem:
        meta = None
        if path.name in LINKS and path.is_file():
            with suppress(ValueError):
                meta = recover(path)
        if meta is None or not meta.digest or meta.serial == read_meta(path).serial:
            raise problem
        return meta


def _require_digest(path: Path, meta: CheckpointMeta) -> None:
    if not meta.digest:
        raise ValueError(f"{path.name} is corrupt: a checksum in the file differs")


def _newest_foreign(folder: Path) -> Path | None:
    """Return latest.pth, or the highest step, of the checkpoints of other programs (without meta files)."""

    def step(path: Path) -> int:
        number = path.stem.removeprefix("model_step")
        return int(number) if number.isdecimal() else -1

    latest = folder / "latest.pth"
    numbered = sorted(folder.glob("model_step*.pth"), key=step)
    files = [path for path in (*numbered, latest) if path.is_file()]
    without_meta = [path for path in files if not path.with_suffix(".json").exists()]
    return without_meta[-1] if without_meta else None


def _require_valid(path: Path, recover: Recover) -> None:
    """Raise a UserError if the file is corrupt; a file of another program cannot be verified and passes."""
    try:
        read_meta(path)
        has_meta = True
    except ValueError:
        has_meta = False
    try:
        if has_meta:
            _verified(path, recover)
        elif (meta := recover(path)) is None:
            logger.warning("%s has no meta file, so its digest was not verified", path)
        else:
            _require_digest(path, meta)
    except ValueError as problem:
        raise UserError(
            f"Resume failed: {problem}; choose another checkpoint, or use --resume auto", RESUME_REFUSED
        ) from None
