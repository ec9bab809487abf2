"""Find and verify the checkpoint that `--resume` names: the newest valid one, or a given file. No torch.

Reading and hashing gigabytes takes as long as importing torch, so the trainer does both at the same time.
"""

import logging
from pathlib import Path

from indextts.commands.train import Train
from indextts.errors import RESUME_REFUSED, UserError
from indextts.runs.directory import (
    CheckpointMeta,
    checkpoint_files,
    checkpoints,
    read_embedded_meta,
    read_meta,
    verify_checkpoint,
)
from indextts.runs.owner import publish, quarantine, restore_metas
from indextts.system.amounts import counted

logger = logging.getLogger(__name__)


def find_checkpoint(command: Train, *, may_change: bool = True) -> Path | None:
    """Return the verified checkpoint that `--resume` names; None to start from the base checkpoint.

    Args:
        may_change: write missing meta files, and quarantine corrupt checkpoints that are newer than the
            returned one; only for the owner of the folder.

    Raises:
        UserError: with status 2 if the path does not exist, or if a new run would start in a folder that has
            checkpoints; with status 3 if the checkpoints cannot be used.
    """
    folder = command.output_dir
    present = checkpoint_files(folder)
    if command.resume and present and may_change:
        restore_metas(folder)
    if command.resume == "auto":
        return _newest_valid(folder, may_change) if present else None
    if command.resume:
        path = Path(command.resume)
        if not path.is_file():
            raise UserError(
                f"Resume checkpoint not found: {path}; {_existing_names(path.parent)}; "
                "--resume auto uses the newest checkpoint of --output-dir"
            )
        _require_valid(path)
        return path
    if present:
        raise UserError(
            f"{folder} already has checkpoints, such as {present[-1].name}; resume with --resume auto, "
            "or choose another --output-dir"
        )
    return None


def _newest_valid(folder: Path, may_change: bool) -> Path:
    """Return the newest checkpoint of `folder` whose digest matches; log and quarantine corrupt ones."""
    corrupt: list[tuple[Path, CheckpointMeta]] = []
    present = checkpoints(folder)
    for path, meta in present:
        try:
            verify_checkpoint(path)
        except ValueError as problem:
            logger.warning("Skipped a corrupt checkpoint: %s", problem)
            corrupt.append((path, meta))
            continue
        if corrupt and corrupt[0][1].serial != meta.serial:  # otherwise it is another copy of the same save
            logger.warning(
                "Falling back from step %d to step %d, the newest valid checkpoint",
                corrupt[0][1].step,
                meta.step,
            )
        if corrupt and may_change:
            for bad, _ in corrupt:
                quarantine(bad)
            publish(path, folder / "latest.pth")
        _log_passed_over(folder, path, meta)
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


def _log_passed_over(folder: Path, taken: Path, meta: CheckpointMeta) -> None:
    """Log the files that look like checkpoints and have no readable meta, with the reason for each."""
    problems = []
    names = ("model_step*.pth", "latest*.pth", "best*.pth")
    for path in sorted({path for name in names for path in folder.glob(name)}):
        try:
            read_meta(path)
        except ValueError as problem:
            problems.append(f"{path.name} ({problem})")
    if problems:
        logger.warning(
            "Skipped %s that may be newer than step %d of %s: %s",
            counted(len(problems), "file"),
            meta.step,
            taken.name,
            "; ".join(problems),
        )


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


def _require_valid(path: Path) -> None:
    """Raise a UserError if the file is corrupt; a file of another program cannot be verified and passes."""
    if not path.with_suffix(".json").exists() and not _has_record(path):
        logger.warning("%s has no meta file, so its digest was not verified", path)
        return
    try:
        verify_checkpoint(path)
    except ValueError as problem:
        raise UserError(
            f"Resume failed: {problem}; choose another checkpoint, or use --resume auto", RESUME_REFUSED
        ) from None


def _has_record(path: Path) -> bool:
    try:
        read_embedded_meta(path)
    except ValueError:
        return False
    return True


def _existing_names(folder: Path) -> str:
    names = [path.name for path in checkpoint_files(folder)]
    return f"{folder} has {', '.join(names)}" if names else f"{folder} has no checkpoints"
