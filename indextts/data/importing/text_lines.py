"""Read lines of text files in any Unicode encoding, with any line ends, and possibly corrupt.

A file may be UTF-8, or UTF-16 with a byte order mark; a table also of a Windows code page. Memory is bounded
for any content: a line that is too long is skipped in pieces.
"""

import codecs
import logging
import re
from collections.abc import Iterator
from pathlib import Path

from indextts.data.importing.items import CONTROL, Location, Rejection, check_line
from indextts.data.importing.sheets import sheet_lines
from indextts.text.code_pages import code_page

logger = logging.getLogger(__name__)

MAX_LINE_CHARS = 100_000

_SKIPPED_CHARS = 2**20  # of a long line, at a time
_HEAD_BYTES = 8192
_MAX_CONTROL_SHARE = 0.3  # of the head; above, the file is binary, below, single lines are invalid
_SAMPLED_BYTES = 2**20  # whose letters decide the code page
_CONTROL_BYTES = re.compile(rb"[\x00-\x08\x0b\x0e-\x1f]")
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16, whose mark is a prefix of it
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def text_lines(path: Path, language: str = "") -> Iterator[tuple[Location, str | Rejection]]:
    """Yield the lines without line ends, with their place; a single rejection for a binary file.

    Args:
        language: of the texts, to find the Windows code page of a file that is not UTF-8; "" for none.

    Raises:
        OSError: the file cannot be read.
    """
    if path.suffix.lower() == ".xlsx":
        yield from sheet_lines(path)
        return
    encoding = encoding_of(path, language)
    if encoding is None:
        where = Location(path, 1)
        reason = "not a text in UTF-8, or UTF-16 with a byte order mark; save it as UTF-8"
        yield where, Rejection(where, "not_text", reason)
        return
    with path.open(encoding=encoding, errors="replace") as file:
        number = 0
        while line := file.readline(MAX_LINE_CHARS + 1):
            number += 1
            where = Location(path, number)
            if len(line) > MAX_LINE_CHARS and not line.endswith("\n"):
                reason = f"a line of more than {MAX_LINE_CHARS:,} characters; check that this is a text file"
                yield where, Rejection(where, "line_too_long", reason)
                # after the yield, so that a caller that stops here does not wait for it
                while (piece := file.readline(_SKIPPED_CHARS)) and not piece.endswith("\n"):
                    pass
            else:
                # A NUL at the start is the rest of a UTF-16 line end: only the line before is corrupt.
                yield where, check_line(where, line.rstrip("\n").lstrip("\ufeff\0"))


def encoding_of(path: Path, language: str = "") -> str | None:
    """Return the encoding of the file; None if its start is not text."""
    with path.open("rb") as file:
        head = file.read(_SAMPLED_BYTES if language else _HEAD_BYTES)
    for mark, encoding in _BYTE_ORDER_MARKS:
        if head.startswith(mark):
            return encoding
    if language and not _CONTROL_BYTES.search(head) and (page := code_page(head, language)):
        return page
    decoded = head[:_HEAD_BYTES].decode("utf-8", errors="replace")  # its last character may be incomplete
    return None if len(CONTROL.findall(decoded)) > 1 + _MAX_CONTROL_SHARE * len(decoded) else "utf-8"


def log_code_page(path: Path, language: str) -> None:
    """Warn of a table that is read in a Windows code page, and of sheets that are not read."""
    if path.suffix.lower() == ".xlsx":
        next(sheet_lines(path, is_logged=True), None)
    encoding = encoding_of(path, language) or ""
    if encoding.startswith("cp"):
        page = f"Windows-{encoding[2:]}"
        logger.warning("%s: not UTF-8, read as %s; check its texts, or save it as UTF-8", path, page)
