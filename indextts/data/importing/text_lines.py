"""Read lines of text files in any Unicode encoding, with any line ends, and possibly corrupt.

A file may be UTF-8, or UTF-16 with a byte order mark; a table also of a Windows code page. Memory is bounded
for any content: a line that is too long is skipped in pieces. The lines of an Excel workbook are the rows of
a sheet with tabs, its cells as Excel shows them.
"""

import codecs
import logging
import re
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

from openpyxl import load_workbook

from indextts.data.importing.archive import max_unpacked_bytes
from indextts.data.importing.headers import column_of, is_known_header
from indextts.data.importing.items import CONTROL, Location, Rejection, check_line, filled, shown_value
from indextts.text.languages import find_language

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
# Windows code pages, as spreadsheets save them on many machines; a tie is decided for the first.
_CODE_PAGES = [f"cp{number}" for number in (1252, 1250, 1251, 1256, 1254, 1253, 1255, 1257, 1258, 874)]
_HEAD_ROWS, _MAX_ROWS, _MAX_COLUMNS = 200, 2**20, 1000  # a file may claim any number of both


def text_lines(path: Path, language: str = "") -> Iterator[tuple[Location, str | Rejection]]:
    """Yield the lines without line ends, with their place; a single rejection for a binary file.

    Args:
        language: of the texts, to find the Windows code page of a file that is not UTF-8; "" for none.
    """
    if path.suffix.lower() == ".xlsx":
        yield from _sheet_lines(path)
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
    if language and not _CONTROL_BYTES.search(head) and (page := _code_page(head, language)):
        return page
    decoded = head[:_HEAD_BYTES].decode("utf-8", errors="replace")  # its last character may be incomplete
    return None if len(CONTROL.findall(decoded)) > 1 + _MAX_CONTROL_SHARE * len(decoded) else "utf-8"


def _code_page(content: bytes, language: str) -> str | None:
    """Return the code page in which most bytes are letters of a language; None for UTF-8, or if most are not.

    A few invalid bytes among characters of UTF-8 belong to single lines of a file in UTF-8.
    """
    num_valid = sum(char > "\x7f" for char in content.decode("utf-8", errors="ignore"))
    num_invalid = content.decode("utf-8", errors="replace").count("\ufffd")
    if not num_invalid or num_valid >= num_invalid:
        return None
    letters = frozenset("".join(find_language(language).letters).casefold())
    texts = {page: content.decode(page, errors="replace").casefold() for page in _CODE_PAGES}
    found = {
        page: [char for char in text if char > "\x7f" and char.isalpha()] for page, text in texts.items()
    }
    num_known = {page: sum(char in letters for char in chars) for page, chars in found.items()}
    best = max(_CODE_PAGES, key=num_known.__getitem__)
    return best if 2 * num_known[best] >= len(found[best]) else None


def log_code_page(path: Path, language: str) -> None:
    """Warn of a table that is read in a Windows code page, and of sheets that are not read."""
    if path.suffix.lower() == ".xlsx":
        next(_sheet_lines(path, is_logged=True), None)
    encoding = encoding_of(path, language) or ""
    if encoding.startswith("cp"):
        page = f"Windows-{encoding[2:]}"
        logger.warning("%s: not UTF-8, read as %s; check its texts, or save it as UTF-8", path, page)


def _sheet_lines(path: Path, *, is_logged: bool = False) -> Iterator[tuple[Location, str | Rejection]]:
    """Yield the rows of the first sheet whose header names texts, else of the first with columns."""
    warnings.filterwarnings("ignore", module="openpyxl")  # of styles and forms
    try:
        with zipfile.ZipFile(path) as file:
            if sum(member.file_size for member in file.infolist()) > max_unpacked_bytes(path.stat().st_size):
                raise ValueError("it unpacks to many times its size")
        with closing(load_workbook(path, read_only=True, data_only=True, keep_links=False)) as book:
            heads = [(sheet, list(islice(_rows(sheet), _HEAD_ROWS))) for sheet in book.worksheets]
            heads = [(sheet, head) for sheet, head in heads if any(len(row) > 1 for row in head)]
            if not heads:
                raise ValueError("no sheet has two columns")
            texts = [any("text" in map(column_of, row) for row in head[:9]) for _, head in heads]
            sheet, head = heads.pop(texts.index(True) if any(texts) else 0)
            if is_logged and (unread := ", ".join(other.title for other, _ in heads)):
                logger.warning("%s: sheets not read: %s; save each as its own file", path, unread)
            width = max(map(len, head))
            first = next((n for n, row in enumerate(head[:9]) if is_known_header(row)), 0)  # below titles
            for number, row in islice(enumerate(_rows(sheet), start=1), first, None):
                where = Location(path, number)
                yield where, check_line(where, "\t".join(row + [""] * (width - len(row))))
    except Exception as error:  # noqa: BLE001 - openpyxl raises any for a broken file
        why = str(error).partition("\n")[0]
        reason = f"not read ({why}); save it again without a password, or its sheet as CSV in UTF-8"
        yield Location(path), Rejection(Location(path), "broken_file", reason)


def _rows(sheet: Any) -> Iterator[list[str]]:
    """Yield the rows without the empty cells at their ends."""
    sheet.reset_dimensions()  # some programs write wrong ones
    for cells in islice(sheet.iter_rows(max_col=_MAX_COLUMNS), _MAX_ROWS):
        row = [_shown(cell.value, cell.number_format or "") for cell in cells]
        yield row[: max((number for number, value in enumerate(row, start=1) if filled(value)), default=0)]


def _shown(value: object, form: str) -> str:
    """Return the value of a cell as in a table with tabs."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        shown = shown_value(float(f"{value:.15g}") if isinstance(value, float) else value)
        return shown if form.strip("0") else shown.zfill(len(form))  # 0001, of the format 0000
    shown = "" if value is None else str(value).removesuffix(" 00:00:00").replace("_x000D_", " ")
    quoted = " ".join(shown.split()).replace('"', '""')
    return f'"{quoted}"' if '"' in quoted else quoted
