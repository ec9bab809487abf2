"""File names and ids of what is imported: safe on any file system, the same at each import."""

import hashlib
import re
from pathlib import Path

# Lower case only: on some file systems A.wav and a.wav are one file.
_SAFE_NAME = re.compile(r"[a-z0-9_][a-z0-9_.-]{0,99}")
_SAFE_SUFFIX = re.compile(r"\.[a-z0-9]{1,8}")
_DIGEST_CHARS = 8


def file_name(id: str, suffix: str) -> str:
    """Return a name that is safe everywhere and differs for every id, whatever else is imported."""
    suffix = safe_suffix(suffix)
    if _SAFE_NAME.fullmatch(id):
        return id + suffix
    readable = re.sub(r"[^a-z0-9_]+", "_", id.lower())[:80]
    return f"{readable}-{hashlib.sha256(id.encode()).hexdigest()[:16]}{suffix}"


def safe_suffix(suffix: str) -> str:
    """Return the suffix of a file in lower case, "" for a strange one."""
    return suffix.lower() if _SAFE_SUFFIX.fullmatch(suffix.lower()) else ""


def distinct(id: str, sha256: str) -> str:
    """Return another id for a recording whose own is taken by a different recording."""
    return f"{id}-{sha256[:_DIGEST_CHARS]}"


def cut_id(recording: str, start_s: float) -> str:
    """Return the id of a clip that begins at `start_s` of a recording: they sort as they are spoken."""
    return f"{recording}_{round(1000 * start_s):09d}"


def source_name(source: Path, output_dir: Path) -> str:
    """Return what a source is called in the journal: relative in a project, which may be moved."""
    project = output_dir.resolve().parent
    source = source.resolve()
    return str(source.relative_to(project)) if source.is_relative_to(project) else str(source)
