"""Read a sheet of an Excel workbook as the lines of a table with tabs, its cells as Excel shows them."""

import logging
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

from openpyxl import load_workbook

from indextts.data.importing.archive import max_unpacked_bytes
from indextts.data.importing.columns import column_of, is_known_header
from indextts.data.importing.items import Location, Rejection, check_line, filled, shown_value

logger = logging.getLogger(__name__)

_HEAD_ROWS, _MAX_ROWS, _MAX_COLUMNS = 200, 2**20, 1000  # a file may claim any number of both


def sheet_lines(path: Path, *, is_logged: bool = False) -> Iterator[tuple[Location, str | Rejection]]:
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
