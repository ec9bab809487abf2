"""The end of a log of any size, as a terminal shows it."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

BLOCK_BYTES = 64 * 1024
MAX_TAIL_BYTES = 1024 * 1024
MAX_LINE_CHARS = 2000
MAX_LINE_BYTES = 8 * MAX_LINE_CHARS  # escape sequences among them

ESCAPE_SEQUENCE = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]"  # colours, cursor
    r"|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)"  # window titles, links
    r"|[ -/]*[0-~])"
)
CONTROL_CHARACTER = re.compile(
    "[\x00-\x08\x0a-\x1f\x7f-\x9f"  # all but the tab
    "\u200e\u200f\u202a-\u202e\u2066-\u2069]"  # these make a line read otherwise than it is
)


@dataclass(frozen=True)
class Lines:
    """The last lines of a log, oldest first.

    Args:
        has_more: the log has older lines, or may have.
        num_searched: bytes that were looked through.
    """

    lines: list[str]
    has_more: bool
    num_searched: int


def tail(path: Path, max_lines: int = 200) -> str:
    """Return the last lines of a log as plain text; "" if there is no file. See `read_end`."""
    return "\n".join(read_end(path, max_lines).lines)


def read_end(path: Path, max_lines: int, *, wanted: str = "", max_bytes: int = MAX_TAIL_BYTES) -> Lines:
    """Return the last lines of a log that contain `wanted`, in whatever case; none if there is no file.

    Of a line that was rewritten with carriage returns the last state counts. Escape sequences and control
    characters are gone, a line is cut at 2,000 characters. At most `max_bytes` are read, from the end on,
    whatever the size.
    """
    wanted = wanted.casefold()
    found: list[str] = []
    try:
        with path.open("rb") as file:
            size = left = file.seek(0, os.SEEK_END)
            for line, before in _from_the_end(file.fileno(), size, max_bytes):
                text, left = _plain(line), before
                if wanted in text.casefold():
                    found.append(text)
                    if len(found) == max_lines:
                        break
    except OSError:
        return Lines([], False, 0)
    return Lines(found[::-1], left > 0, size - left)


def _from_the_end(file: int, size: int, max_bytes: int) -> Iterator[tuple[bytes, int]]:
    """Yield the lines from the last to the first, each with the number of bytes before it.

    A line that began before the last `max_bytes` is left out, unless there is no other.
    """
    lowest = max(0, size - max_bytes)
    start = size - 1 if size and os.pread(file, 1, size - 1) == b"\n" else size
    unfinished, num_lines = b"", 0
    while start > lowest:
        num_bytes = min(BLOCK_BYTES, start - lowest)
        start -= num_bytes
        block = os.pread(file, num_bytes, start) + unfinished
        unfinished, *lines = block.split(b"\n")
        before = start + len(block)
        for line in reversed(lines):
            before -= len(line) + 1
            num_lines += 1
            yield line, before + 1
    if size and (start == 0 or num_lines == 0):
        yield unfinished, start


def _plain(line: bytes) -> str:
    """Return what a terminal shows of a line in the end."""
    state = line.rstrip(b"\r").rpartition(b"\r")[2]
    text = state[:MAX_LINE_BYTES].decode(errors="replace")
    if text.isprintable():  # most lines, and soon told
        return text[:MAX_LINE_CHARS]
    return CONTROL_CHARACTER.sub("", ESCAPE_SEQUENCE.sub("", text))[:MAX_LINE_CHARS]
