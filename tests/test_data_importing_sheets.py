"""Tests of tables in Excel workbooks."""

import datetime
import zipfile
from pathlib import Path
from typing import Any

import openpyxl
import pytest

from indextts.data.importing.table_preview import preview_source
from indextts.data.importing.text_lines import text_lines
from indextts.errors import UserError
from tests.import_sources import manifest_lines, rejected, run_import, write_tone

TEXTS = ['ሰላም "ለዓለም"።', "እንዴት ነህ፣ ደህና?", "ዛሬ ፀሐይ ወጣች።"]
HEADER = ["Audio File", "Transcription (am)", "Speaker Name"]
IDS = ["0001", "0002", "0003"]
PLAIN = [[f"{name}.wav", text, "almaz"] for name, text in zip(IDS, TEXTS, strict=True)]
NUMBERED = [[number, text, 7] for number, text in enumerate(TEXTS, start=1)]
SPEAKERS = [["Speaker ID", "Gender"], ["almaz", "f"], ["kebede", "m"]]
GONE = [["4.wav", TEXTS[0], "almaz"], ["0001.wav", None, "almaz"]]


def write_book(path: Path, sheets: dict[str, list[list[Any]]], form: str = "") -> Path:
    """Write a workbook; `form` is the format of the numbers."""
    book = openpyxl.Workbook()
    book.remove(book.active)
    for title, rows in sheets.items():
        sheet = book.create_sheet(title)
        for row in rows:
            sheet.append(row)
        for cell in (cell for row in sheet for cell in row if form and isinstance(cell.value, int)):
            cell.number_format = form
    path.parent.mkdir(parents=True, exist_ok=True)
    book.save(path)
    return path


BOOKS: dict[str, dict[str, list[list[Any]]]] = {
    "a header in messy names": {"Sheet1": [HEADER, *PLAIN]},
    "lost zeros": {"Sheet1": [["ID", "Text", "Speaker"], *NUMBERED]},
    "no header": {"Sheet1": PLAIN},
    "a title, and empty rows": {
        "Sheet1": [["My data set"], [], HEADER, PLAIN[0], [], *PLAIN[1:], [None, " ", None]]
    },
    "two sheets": {"Speakers": SPEAKERS, "Clips": [HEADER, *PLAIN], "x": []},
    "unusable rows": {"Sheet1": [HEADER, *PLAIN, *GONE]},
    "missing values": {"Sheet1": [[*HEADER, "Notes"], *([*row, "#REF!"] for row in PLAIN)]},
}
REASONS = {"unusable rows": [("set.xlsx", 5, "missing_audio"), ("set.xlsx", 6, "empty_text")]}


@pytest.mark.parametrize("kind", BOOKS)
def test_a_workbook_is_read_as_a_table(tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture):
    sheets = BOOKS[kind]
    ids, speaker = (["1", "2", "3"], "7") if kind == "lost zeros" else (IDS, "almaz")
    source = tmp_path / "in"
    for number, name in enumerate(IDS):
        write_tone(source / f"wavs/{name}.wav", 200 + number, 0.3)
    write_book(source / "set.xlsx", sheets)
    (source / "~$set.xlsx").write_bytes(b"of Excel, while it is open")
    with caplog.at_level("WARNING"):
        run_import(source, tmp_path / "out")
    found = [(line["id"], line["text"], line["speaker"]) for line in manifest_lines(tmp_path / "out")]
    assert found == [(id, text, speaker) for id, text in zip(ids, TEXTS, strict=True)]
    assert rejected(tmp_path / "out") == REASONS.get(kind, [])
    assert ("sheets not read: Speakers" in caplog.text) == (len(sheets) > 1)
    table = preview_source(source, "auto", language="am", columns="", allowed=[source]).tables[0]
    assert [column.use for column in table.columns][1:3] == ["text", "speaker"]


def test_cells_are_read_as_excel_shows_them(tmp_path: Path):
    values = [7, 1.2e12, 0.1 + 0.2, 3.0, datetime.datetime(2024, 5, 1), datetime.time(0, 1, 2), 'say "x"']
    path = write_book(tmp_path / "x.xlsx", {"a": [[*values, "a\tb\nc", None, True]]}, form="0000")
    (_, line), *_ = text_lines(path)
    assert line == '0007\t1200000000000\t0.3\t3\t2024-05-01\t00:01:02\t"say ""x"""\ta b c\t\tTrue'


@pytest.mark.parametrize("kind", ["text", "password", "zip", "cut", "bomb", "one column"])
def test_a_broken_workbook_is_one_rejection(tmp_path: Path, kind: str):
    path = write_book(tmp_path / "x.xlsx", {"a": [["a"], ["b"]] if kind == "one column" else PLAIN})
    content = path.read_bytes()
    if kind in ("text", "password", "cut"):
        broken = {"text": b"a,b\n", "password": b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(512)}
        path.write_bytes(broken.get(kind, content[:-800]))
    elif kind in ("zip", "bomb"):
        with zipfile.ZipFile(path, "w" if kind == "zip" else "a", zipfile.ZIP_DEFLATED) as file:
            file.writestr("x.xml", bytes(1000 if kind == "zip" else 210 * 2**20))
    with pytest.raises(UserError, match=r"rejected\.jsonl"):
        run_import(path, tmp_path / "out")
    assert rejected(tmp_path / "out") == [("x.xlsx", None, "broken_file")]
