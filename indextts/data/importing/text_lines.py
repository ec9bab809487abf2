"""Read lines of text files in any Unicode encoding, with any line ends, and possibly corrupt.

A file may be UTF-8 or UTF-16, with or without a byte order mark. Memory is bounded for any content: a line
that is too long is skipped in pieces.
"""

import codecs
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from indextts.text.languages import scripts_of

MAX_LINE_CHARS = 100_000
MAX_TEXT_CHARS = 20_000  # of a clip: minutes of speech are some hundreds
TEXT_TOO_LONG = "text_too_long"

_SKIPPED_CHARS = 2**20  # of a long line, at a time
_HEAD_BYTES = 8192
_MAX_CONTROL_SHARE = 0.3  # of the head; above, the file is binary, below, single lines are invalid
_MIN_USUAL_SHARE = 0.9  # of UTF-16 decoded with the correct byte order
_UNUSUAL = ("Hani", "Zzzz")  # the latter is unassigned
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16, whose mark is a prefix of it
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_CONTROL = re.compile("[\x00-\x08\x0b\x0e-\x1f\x7f\ufffd]")


@dataclass(frozen=True, slots=True)
class BadText:
    """Reason to reject a line or a file as text, with a code of items.py."""

    code: str
    reason: str


def text_lines(path: Path) -> Iterator[tuple[int, str | BadText]]:
    """Yield the lines without line ends, numbered from 1; a single BadText for a binary file.

    Raises:
        OSError: the file cannot be read.
    """
    encoding = _encoding(path)
    if encoding is None:
        yield 1, BadText("not_text", "not a text in UTF-8 or UTF-16; save it as UTF-8")
        return
    with path.open(encoding=encoding, errors="replace") as file:
        number = 0
        while line := file.readline(MAX_LINE_CHARS + 1):
            number += 1
            if len(line) > MAX_LINE_CHARS and not line.endswith("\n"):
                reason = f"a line of more than {MAX_LINE_CHARS:,} characters; check that this is a text file"
                yield number, BadText("line_too_long", reason)
                _skip_line(file)  # after the yield, so that a caller that stops here does not wait for it
            else:
                # A NUL at the start is the rest of a UTF-16 line end: only the line before is corrupt.
                yield number, check_line(line.rstrip("\n").lstrip("\ufeff\0"))


def check_line(text: str) -> str | BadText:
    """Return the line, or a BadText if it has invalid characters."""
    if "\ufffd" in text:
        return BadText("encoding", "some bytes do not match the encoding of the file; save it as UTF-8")
    if _CONTROL.search(text):
        return BadText("not_text", "control characters in the text; remove them")
    return text


def read_text(path: Path) -> str | BadText:
    """Return the text of a small file, its lines joined by spaces.

    Raises:
        OSError: the file cannot be read.
    """
    parts: list[str] = []
    num_chars = 0
    for _, line in text_lines(path):
        if isinstance(line, BadText):
            return line
        num_chars += len(line)
        if num_chars > MAX_TEXT_CHARS:
            reason = f"more than {MAX_TEXT_CHARS:,} characters, too many for the text of a clip; split it"
            return BadText(TEXT_TOO_LONG, reason)
        parts += line.split()
    return " ".join(parts)


def _skip_line(file: TextIO) -> None:
    while (piece := file.readline(_SKIPPED_CHARS)) and not piece.endswith("\n"):
        pass


def _encoding(path: Path) -> str | None:
    """Return the encoding of the file; None if its start is not text."""
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    for mark, encoding in _BYTE_ORDER_MARKS:
        if head.startswith(mark):
            return encoding
    unmarked = _utf16_without_mark(head) if b"\0" in head else None
    if unmarked is not None:
        return unmarked
    return None if _is_binary(head.decode("utf-8", errors="replace")) else "utf-8"


def _utf16_without_mark(head: bytes) -> str | None:
    """Return the UTF-16 encoding of a text without a mark in ASCII and one other script, or None.

    Another encoding, read as UTF-16, gives mainly Chinese characters, so these do not count.
    """
    even = head[: len(head) // 2 * 2]
    for encoding in ("utf-16-le", "utf-16-be"):
        decoded = even.decode(encoding, errors="replace")
        usual = sum(char.isascii() and (char.isprintable() or char.isspace()) for char in decoded)
        scripts = Counter(script for char in decoded if not char.isascii() for script in scripts_of(char))
        usual += max((count for script, count in scripts.items() if script not in _UNUSUAL), default=0)
        if usual > _MIN_USUAL_SHARE * len(decoded):
            return encoding
    return None


def _is_binary(decoded: str) -> bool:
    """Return whether the head is not text; its last character may be incomplete."""
    return len(_CONTROL.findall(decoded)) > 1 + _MAX_CONTROL_SHARE * len(decoded)
