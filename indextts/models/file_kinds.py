"""What stands in a file that is not what its name says: a web page saved as gpt.pth, a cut-off download."""

from pathlib import Path

NUM_BYTES_READ = 512
LFS_POINTER = b"version https://git-lfs"
ZIP = b"PK\x03\x04"
WEB_PAGE = (b"<!doctype html", b"<html", b"<?xml")


def kind_of_wrong_file(path: Path) -> str:
    """Return in a few words what a file is instead of weights, for a sentence.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        start = file.read(NUM_BYTES_READ)
    if not start:
        return "it is empty"
    if start.startswith(LFS_POINTER):
        return "it is a git-LFS pointer, which stands for the real file"
    if start.lstrip().lower().startswith(WEB_PAGE):
        return "it is a web page"
    if start.startswith(ZIP):
        return "it is cut off, its end is missing"
    text = start.decode("utf-8", errors="replace")
    if len(start) > 20 and all(char.isprintable() or char.isspace() for char in text):
        return f"it is a text that begins with {text.split(chr(10))[0][:40]!r}"
    return "it is of another format, or cut off"
