"""The end of a log, with the text that a terminal would show; logs may have any size."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

BLOCK_BYTES = 64 * 1024
MAX_TAIL_BYTES = 1024 * 1024
MAX_LINE_CHARS = 2000
MAX_LINE_BYTES = 8 * MAX_LINE_CHARS  # including escape sequences

ESCAPE_SEQUENCE = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]"  # colours, cursor
    r"|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)"  # window titles, links
    r"|[ -/]*[0-~])"
)
CONTROL_CHARACTER = re.compile(
    "[\x00-\x08\x0a-\x1f\x7f-\x9f"  # all except the tab
    "\u200e\u200f\u202a-\u202e\u2066-\u2069]"  # these reorder the displayed text
)


@dataclass(frozen=True)
class Lines:
    """The last lines of a log, oldest first.

    Args:
        has_more: the log has, or may have, older lines.
        num_searched: number of bytes that were searched.
    """

    lines: list[str]
    has_more: bool
    num_searched: int


def tail(path: Path, max_lines: int = 200) -> str:
    """Return the last lines of a log as plain text, see `read_end`; "" if there is no file."""
    return "\n".join(read_end(path, max_lines).lines)


def read_end(path: Path, max_lines: int, *, wanted: str = "", max_bytes: int = MAX_TAIL_BYTES) -> Lines:
    """Return the last lines of a log that contain `wanted`, ignoring case; none if there is no file.

    Carriage returns overwrite the line, as in a terminal. Escape sequences and control characters are
    removed, and a line is truncated to 2,000 characters. At most the last `max_bytes` are read.
    """
    wanted = wanted.casefold()
    found: list[str] = []
    try:
        with path.open("rb") as file:
            size = left = file.seek(0, os.SEEK_END)
            for line, before in _lines_backwards(file.fileno(), size, max_bytes):
                text, left = _plain(line), before
                if wanted in text.casefold():
                    found.append(text)
                    if len(found) == max_lines:
                        break
    except OSError:
        return Lines([], False, 0)
    return Lines(found[::-1], left > 0, size - left)


def _lines_backwards(file: int, size: int, max_bytes: int) -> Iterator[tuple[bytes, int]]:
    """Yield the lines from the last to the first, each with the number of bytes before it.

    A line that starts before the last `max_bytes` is left out, unless it is the only one.
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
    """Return the final state of a line in a terminal."""
    state = line.rstrip(b"\r").rpartition(b"\r")[2]
    text = state[:MAX_LINE_BYTES].decode(errors="replace")
    if text.isprintable():  # true for most lines, and fast
        return text[:MAX_LINE_CHARS]
    return CONTROL_CHARACTER.sub("", ESCAPE_SEQUENCE.sub("", text))[:MAX_LINE_CHARS]
