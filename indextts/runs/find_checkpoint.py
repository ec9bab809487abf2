"""Which checkpoint `--resume` means: the newest that is whole, or the one that was named. No torch here.

Reading and hashing gigabytes takes as long as importing torch, so the trainer does both at once.
"""

import logging
from pathlib import Path

from indextts.commands.train import Train
from indextts.errors import RESUME_REFUSED, UserError
from indextts.runs.directory import (
    CheckpointMeta,
    checkpoint_files,
    checkpoints,
    verify_checkpoint,
)
from indextts.runs.owner import publish, quarantine

logger = logging.getLogger(__name__)


def find_checkpoint(command: Train, *, may_change: bool = True) -> Path | None:
    """Return the checkpoint that `--resume` means, verified; None to start from the base.

    Args:
        may_change: set apart what is damaged and newer than the one returned; only the folder's owner may.

    Raises:
        UserError: with status 2 if the path does not exist, or a new run would go into a folder that has
            checkpoints; with status 3 if what is there cannot be used.
    """
    folder = command.output_dir
    present = checkpoint_files(folder)
    if command.resume == "auto":
        return _newest_whole(folder, may_change) if present else None
    if command.resume:
        path = Path(command.resume)
        if not path.is_file():
            raise UserError(
                f"Resume checkpoint not found: {path}; {_what_exists(path.parent)}; "
                "'auto' takes the newest of --output-dir"
            )
        _require_whole(path)
        return path
    if present:
        raise UserError(
            f"{folder} already has checkpoints, as {present[-1].name}; go on with --resume auto, "
            "or choose another --output-dir"
        )
    return None


def _newest_whole(folder: Path, may_change: bool) -> Path:
    """Return the newest checkpoint of `folder` whose digest holds; damaged ones are named and set apart."""
    damaged: list[tuple[Path, CheckpointMeta]] = []
    present = checkpoints(folder)
    for path, meta in present:
        try:
            verify_checkpoint(path)
        except ValueError as problem:
            logger.warning("Checkpoint left out: %s", problem)
            damaged.append((path, meta))
            continue
        if damaged and damaged[0][1].serial != meta.serial:  # else it is another copy of the same
            logger.warning(
                "Going back from step %d to step %d, the newest that is whole", damaged[0][1].step, meta.step
            )
        if damaged and may_change:
            for bad, _ in damaged:
                quarantine(bad)
            publish(path, folder / "latest.pth")
        unknown = _of_unknown_age(folder, [path for path, _ in present])
        if unknown:
            logger.warning(
                "Left out, their meta files cannot be read: %s; they may be newer than step %d of %s",
                ", ".join(unknown),
                meta.step,
                path.name,
            )
        logger.info("Auto-resume: found checkpoint at %s", path)
        return path
    foreign = _newest_foreign(folder)
    if foreign is not None and not damaged:
        logger.warning("%s has no meta file: its digest could not be checked", foreign)
        logger.info("Auto-resume: found checkpoint at %s", foreign)
        return foreign
    raise UserError(
        f"Resume failed: none of the checkpoints in {folder} can be used; "
        "put a good copy there, or start anew in another --output-dir",
        RESUME_REFUSED,
    )


def _of_unknown_age(folder: Path, readable: list[Path]) -> list[str]:
    """Return the names of the checkpoints whose meta files are there and cannot be read."""
    return [
        path.name
        for path in sorted(folder.glob("model_step*.pth"))
        if path not in readable and path.with_suffix(".json").exists()
    ]


def _newest_foreign(folder: Path) -> Path | None:
    """Return latest.pth, or the highest step, of the files that have no meta file: another program's.

    Symbolic links are not followed: they may lead out of the folder.
    """

    def step(path: Path) -> int:
        number = path.stem.removeprefix("model_step")
        return int(number) if number.isdecimal() else -1

    latest = folder / "latest.pth"
    numbered = sorted(folder.glob("model_step*.pth"), key=step)
    candidates = [*numbered, latest]
    plain = [path for path in candidates if path.is_file() and not path.is_symlink()]
    without_meta = [path for path in plain if not path.with_suffix(".json").exists()]
    return without_meta[-1] if without_meta else None


def _require_whole(path: Path) -> None:
    """Raise a UserError if the file is not what its meta file says; one without a meta file passes."""
    if not path.with_suffix(".json").is_file():
        logger.warning("%s has no meta file: its digest could not be checked", path)
        return
    try:
        verify_checkpoint(path)
    except ValueError as problem:
        raise UserError(
            f"Resume failed: {problem}; take another checkpoint, or --resume auto", RESUME_REFUSED
        ) from None


def _what_exists(folder: Path) -> str:
    names = [path.name for path in checkpoint_files(folder)]
    return f"in {folder} there are: {', '.join(names)}" if names else f"{folder} has no checkpoints"
