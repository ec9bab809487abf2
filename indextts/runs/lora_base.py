"""The base checkpoint of a LoRA checkpoint: how a run keeps it, where it is searched, how it is recognised.

A LoRA checkpoint is useless without its base. A base that is a checkpoint of another run would be deleted or
replaced when that run goes on, so a run keeps such a file in its own folder, as `base-{digest}.pth`.
"""

import logging
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from indextts.errors import RESUME_REFUSED, UserError, disk_errors
from indextts.runs.directory import FileIdentity, identify, read_complete
from indextts.system.amounts import shown_size
from indextts.system.digest import PIECE_BYTES, file_digest
from indextts.system.files import link_or_copy
from indextts.system.messages import Message, as_is

logger = logging.getLogger(__name__)

PUBLISHED_FOLDER = Path("checkpoints")  # where the download puts the published files
DIGEST_CHARS = 16


def keep_base(path: Path, run_dir: Path) -> Path:
    """Return where the base of a LoRA run stays: `path`, or the run's own copy of another run's checkpoint.

    A base that is itself a LoRA checkpoint keeps its own base beside it.

    Raises:
        UserError: the copy cannot be written, or the base of the base is missing.
    """
    meta = None
    with suppress(ValueError):  # else it is no checkpoint, which a run may delete or replace
        meta = read_complete(path.resolve())
    if meta is None and not path.match(kept_name("?" * DIGEST_CHARS)):
        return path
    kept = run_dir / (path.name if meta is None else kept_name(meta.digest))
    if meta is not None and meta.settings.get("lora_rank"):
        inner = find_base(meta.base, path)
        if keep_base(inner, run_dir) == inner and str(inner.resolve()) != meta.base.path:
            _link(inner, run_dir / kept_name(meta.base.digest))
    if not _link(path, kept):
        return kept
    how = "a hard link" if kept.stat().st_ino == path.stat().st_ino else "a copy"
    logger.info(
        "%s belongs to a run, which may delete or replace it: %s of it (%s) stays with this run as %s",
        path,
        how,
        shown_size(kept.stat().st_size),
        kept,
    )
    return kept


def kept_name(digest: str) -> str:
    """Return the name of a base that a run keeps; a run may keep several."""
    return f"base-{digest[:DIGEST_CHARS]}.pth"


def _link(source: Path, target: Path) -> bool:
    """Make `target` the same file as `source`; return False if it exists, which has the same digest."""
    if target.exists():
        return False
    with disk_errors(target):
        link_or_copy(source, target)
    return True


def base_of_run(base: FileIdentity, path: Path, given: Path) -> Path:
    """Return the base of a resume: what the run of the checkpoint at `path` kept, or the given file."""
    recorded, name = Path(base.path), kept_name(base.digest)
    places = (path.parent / name, recorded) if recorded.name == name else ()
    return next((file for file in places if not _why_not(file, base, reads_content=False)), given)


def identify_base(
    path: Path, recorded: FileIdentity | None, *, reads_content: bool = True
) -> tuple[FileIdentity | None, Message]:
    """Return the identity of a base checkpoint, or None and the reason why it is not compared.

    A resume needs only the base of a LoRA run, so a missing file is no error.

    Args:
        recorded: by the run; a file with its path, size and time is not read, and one of another size is
            another file whatever its content, so its digest stays empty.
        reads_content: read a large file that was moved or modified.
    """
    try:
        status, place = path.stat(), str(path.resolve())
        if recorded is None:
            return identify(path), as_is("")
        if status.st_size != recorded.num_bytes:
            other = FileIdentity(path=place, num_bytes=status.st_size, mtime_ns=status.st_mtime_ns, digest="")
            return other, as_is("")
        is_untouched = (place, status.st_mtime_ns) == (recorded.path, recorded.mtime_ns)
        if reads_content or is_untouched or status.st_size <= PIECE_BYTES:
            return identify(path, [recorded]), as_is("")
        return None, Message("restore.base_moved")
    except FileNotFoundError:
        return None, Message("restore.base_absent")
    except OSError as error:
        return None, as_is(error.strerror or str(error))


def verified(file: Path, base: FileIdentity) -> FileIdentity:
    """Return the identity of `file` after verifying that it has the bytes of `base`; reads all of it.

    Raises:
        UserError: with status 3: it has other bytes, although size and time stamp were those of the base.
    """
    if file_digest(file) == base.digest:
        return base.model_copy(update={"path": str(file.resolve()), "mtime_ns": file.stat().st_mtime_ns})
    raise UserError(
        f"Resume failed: {file} has the size and the time of this run's base checkpoint but other content, "
        f"so it was damaged or replaced; put the file with the digest {base.digest[:16]} back",
        RESUME_REFUSED,
    )


def find_base(
    base: FileIdentity,
    path: Path,
    folders: Sequence[Path] = (),
    *,
    given: Path | None = None,
    reads_content: bool = True,
) -> Path:
    """Return the base checkpoint of the LoRA checkpoint at `path`, known by its size and digest.

    It is searched where the run had it, beside the checkpoint, in `folders`, and in `checkpoints/`; in a
    folder under its name, as `gpt.pth` and as a base that a run keeps.

    Args:
        base: as the checkpoint records it.
        folders: that this reader knows, such as the folder of the published files.
        given: --base-checkpoint of a resume, looked at first, and in its folder.
        reads_content: compare the digest, which may read the whole file; otherwise only the size.

    Raises:
        UserError: the base is in none of these places; the message names each.
    """
    recorded = Path(base.path)
    names = (recorded.name, "gpt.pth", kept_name(base.digest))
    first = [given] if given else []
    folders = (path.parent, *(file.parent for file in first), *folders, PUBLISHED_FOLDER)
    looked_at = []
    for file in dict.fromkeys([*first, recorded, *(folder / name for folder in folders for name in names)]):
        problem = _why_not(file, base, reads_content)
        if not problem:
            return file
        looked_at.append((file, problem))
    places = "; ".join(f"{file} ({problem}{_digest_of(file, reads_content)})" for file, problem in looked_at)
    raise UserError(
        f"{path}: a LoRA checkpoint, and its base ({recorded.name}, {base.num_bytes:,} bytes, digest "
        f"{base.digest[:16]}) is at none of these places: {places}; copy it to one of them, "
        "for example beside the checkpoint"
    )


def _digest_of(file: Path, reads_content: bool) -> str:
    """Return the digest of another file for a message; empty for a missing one, or if it must not be read."""
    try:
        return f", digest {file_digest(file)[:DIGEST_CHARS]}" if reads_content else ""
    except OSError:
        return ""


def _why_not(file: Path, base: FileIdentity, reads_content: bool) -> str:
    """Return why `file` is not the base; empty if it is."""
    if not file.is_file():
        return "missing"
    num_bytes = file.stat().st_size
    if num_bytes != base.num_bytes:
        return f"another file, of {num_bytes:,} bytes"
    if not reads_content:
        return ""
    try:
        is_same = file_digest(file) == base.digest  # not by its time stamp, which a damage may leave
    except OSError as error:
        return error.strerror or str(error)
    return "" if is_same else "another file of this size"
