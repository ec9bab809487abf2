"""The base checkpoint of a LoRA checkpoint: where it is searched, and how it is recognised."""

from collections.abc import Sequence
from pathlib import Path

from indextts.errors import UserError
from indextts.runs.directory import FileIdentity, identify

PUBLISHED_FOLDER = Path("checkpoints")  # where the download puts the published files


def find_base(
    base: FileIdentity, path: Path, folders: Sequence[Path] = (), *, reads_content: bool = True
) -> Path:
    """Return the base checkpoint of the LoRA checkpoint at `path`, known by its size and digest.

    It is searched where the run had it, beside the checkpoint, in `folders`, and in `checkpoints/`; in a
    folder under its name and as `gpt.pth`.

    Args:
        base: as the checkpoint records it.
        folders: that this reader knows, such as the folder of the published files.
        reads_content: compare the digest, which may read the whole file; otherwise only the size.

    Raises:
        UserError: the base is in none of these places; the message names each.
    """
    recorded = Path(base.path)
    names = (recorded.name, "gpt.pth")
    inside = [folder / name for folder in (path.parent, *folders, PUBLISHED_FOLDER) for name in names]
    looked_at = []
    for file in dict.fromkeys([recorded, *inside]):
        problem = _why_not(file, base, reads_content)
        if not problem:
            return file
        looked_at.append(f"{file} ({problem})")
    raise UserError(
        f"{path}: a LoRA checkpoint, and its base ({recorded.name}, {base.num_bytes:,} bytes, digest "
        f"{base.digest[:16]}) is at none of these places: {'; '.join(looked_at)}; copy it to one of them, "
        "for example beside the checkpoint"
    )


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
        is_same = identify(file, known=[base]).digest == base.digest
    except OSError as error:
        return error.strerror or str(error)
    return "" if is_same else "another file of this size"
