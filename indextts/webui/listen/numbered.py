"""Numbered folders, one for each press of a button: 0001, 0002, ..."""

from pathlib import Path


def next_folder(parent: Path) -> Path:
    """Return the folder of the next press; nothing is made yet."""
    newest = max((int(folder.name) for folder in numbered(parent)), default=0)
    return parent / f"{newest + 1:04}"


def numbered(parent: Path) -> list[Path]:
    """Return the numbered folders, newest first; none where `parent` is not there."""
    if not parent.is_dir():
        return []
    found = [path for path in parent.iterdir() if path.name.isdecimal() and path.is_dir()]
    return sorted(found, key=lambda path: int(path.name), reverse=True)
