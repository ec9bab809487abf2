"""Lines of text files as people have them: any encoding of Unicode, any line ends, any damage.

A file may be UTF-8 or UTF-16, with or without a byte order mark. Memory is bounded whatever is in the file:
a line that is longer than a text can be is passed over in pieces.
"""

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

MAX_LINE_CHARS = 100_000
MAX_TEXT_CHARS = 20_000  # of a clip: minutes of speech are some hundreds

_PASSED_CHARS = 2**20  # in one piece of a line that is passed over
_HEAD_BYTES = 8192
_MAX_STRANGE_SHARE = (
    0.3  # of the first characters; above it the file is no text, below it single lines are bad
)
_MIN_USUAL_SHARE = 0.9  # of UTF-16 read in its byte order
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16, whose mark begins it
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_STRANGE = re.compile("[\x00-\x08\x0b\x0e-\x1f\x7f\ufffd]")
_USUAL = re.compile("[\\s\x20-\x7e\u1200-\u139f\u2d80-\u2ddf]")


@dataclass(frozen=True, slots=True)
class BadText:
    """Why a line or a file is no text; `code` is one of found.py."""

    code: str
    reason: str


def text_lines(path: Path) -> Iterator[tuple[int, str | BadText]]:
    """Yield the lines with their numbers, from 1, without line ends; of a binary file one BadText.

    Raises:
        OSError: the file cannot be read.
    """
    encoding = _encoding(path)
    if encoding is None:
        yield 1, BadText("not_text", "no text in UTF-8 or UTF-16, save it as UTF-8")
        return
    with path.open(encoding=encoding, errors="replace") as file:
        number = 0
        while line := file.readline(MAX_LINE_CHARS + 1):
            number += 1
            if len(line) > MAX_LINE_CHARS and not line.endswith("\n"):
                reason = f"a line of more than {MAX_LINE_CHARS:,} characters, probably not a text"
                yield number, BadText("line_too_long", reason)
                _pass_over_line(file)  # after that: who wants no more lines need not wait for it
            else:
                # A NUL at the start is the rest of a line end in UTF-16: only the line before is damaged.
                yield number, checked(line.rstrip("\n").lstrip("\ufeff\0"))


def checked(text: str) -> str | BadText:
    """Return a line as it is, or what is wrong with its characters."""
    if "\ufffd" in text:
        return BadText("encoding", "some bytes are not UTF-8, or not the file's encoding; save it as UTF-8")
    if _STRANGE.search(text):
        return BadText("not_text", "control characters in the text, remove them")
    return text


def whole_text(path: Path) -> str | BadText:
    """Return the text of a small file, its lines joined by blanks.

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
            return BadText("line_too_long", f"more than {MAX_TEXT_CHARS:,} characters, no text of one clip")
        parts += line.split()
    return " ".join(parts)


def _pass_over_line(file: TextIO) -> None:
    while (piece := file.readline(_PASSED_CHARS)) and not piece.endswith("\n"):
        pass


def _encoding(path: Path) -> str | None:
    """Return the codec that reads the file; None if its beginning is no text."""
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    for mark, encoding in _BYTE_ORDER_MARKS:
        if head.startswith(mark):
            return encoding
    unmarked = _without_mark(head) if b"\0" in head else None
    if unmarked is not None:
        return unmarked
    return None if _is_strange(head.decode("utf-8", errors="replace")) else "utf-8"


def _without_mark(head: bytes) -> str | None:
    """Return the byte order of UTF-16 without its mark: in the right one nearly all is ASCII or fidel."""
    even = head[: len(head) // 2 * 2]
    for encoding in ("utf-16-le", "utf-16-be"):
        decoded = even.decode(encoding, errors="replace")
        if len(_USUAL.findall(decoded)) > _MIN_USUAL_SHARE * len(decoded):
            return encoding
    return None


def _is_strange(decoded: str) -> bool:
    """True for what does not look like text; one character may be cut off at the end of the head."""
    return len(_STRANGE.findall(decoded)) > 1 + _MAX_STRANGE_SHARE * len(decoded)
