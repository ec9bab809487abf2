"""The end of a log, with the text that a terminal would show; logs may have any size."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

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
    """The last lines of a log, oldest first."""

    lines: list[str]
    has_more: bool  # the log has, or may have, older lines
    num_searched: int  # number of bytes that were searched


def tail(path: Path, max_lines: int = 200) -> str:
    """Return the last lines of a log as plain text, see `read_end`; "" if there is no file."""
    return "\n".join(read_end(path, max_lines).lines)


def read_end(path: Path, max_lines: int, *, wanted: str = "", max_bytes: int = MAX_TAIL_BYTES) -> Lines:
    """Return the last lines of a log that contain `wanted`, ignoring case; none if there is no file.

    Carriage returns overwrite the line, as in a terminal. Escape sequences and control characters are
    removed, and a line is truncated to 2,000 characters. At most the last `max_bytes` are read.
    """
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            start = file.seek(max(0, size - max_bytes))
            content = file.read(size - start)
    except OSError:
        return Lines([], False, 0)
    lines = content.removesuffix(b"\n").split(b"\n") if content else []
    if start and len(lines) > 1:  # the first may begin before `start`
        start += len(lines.pop(0)) + 1
    wanted, found, num_left = wanted.casefold(), list[str](), len(lines)
    while num_left and len(found) < max_lines:
        num_left -= 1
        text = _plain(lines[num_left])
        if wanted in text.casefold():
            found.append(text)
    left = start + sum(len(line) + 1 for line in lines[:num_left])
    return Lines(found[::-1], left > 0, size - left)


def _plain(line: bytes) -> str:
    """Return the final state of a line in a terminal."""
    state = line.rstrip(b"\r").rpartition(b"\r")[2]
    text = state[:MAX_LINE_BYTES].decode(errors="replace")
    if text.isprintable():  # true for most lines, and fast
        return text[:MAX_LINE_CHARS]
    return CONTROL_CHARACTER.sub("", ESCAPE_SEQUENCE.sub("", text))[:MAX_LINE_CHARS]
