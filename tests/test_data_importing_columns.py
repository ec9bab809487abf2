"""Tests of indextts/data/importing/columns.py: no wrong column is read silently."""

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from indextts.data.importing.columns import decide_columns
from indextts.errors import UserError
from tests import import_cases
from tests.import_cases import rows, tones, write
from tests.import_sources import manifest_lines, run_import

TEXTS = [*import_cases.TEXTS, "ውሃ ጠጣሁ እኔ።", "ልጁ ሮጠ ወደ ቤት።"]
ENGLISH = ["peace to the world", "how are you, well?", "the sun is out today", "I read the book"]
ENGLISH += ["see you tomorrow, he said", "she made coffee", "I drank some water", "the boy ran to the house"]
TIGRINYA = ["ሰላም ንዓለም ይኹን።", "ከመይ ኣለኻ ሓወይ?", "ሎሚ ጸሓይ ወጺኣ።", "መጽሓፍ ኣንቢበ ኣለኹ።"]
TIGRINYA += ["ጽባሕ ክንራኸብ ኢና።", "ማይ ሰትየ ኣነ።", "ቡን ኣፍሊሓ ንሳ።", "እቲ ቆልዓ ንገዛ ጎይዩ።"]
AMHARIC_NAMES = ["አልማዝ", "በቀለ ወልዴ"] * 4
WORDSPACED = [text.replace(" ", "፡") for text in TEXTS]
CODES = [f"c{number}" for number in range(8)]
PATHS = [f"wavs/{number}.wav" for number in range(8)]
IDS = [str(number) for number in range(8)]
SPEAKERS = ["es_m1", "es_f2"] * 4
GENDERS = ["male", "female"] * 4
TWO_TEXTS = "columns 1 .* and 2 .* could be the text"
SECONDS = [f"{1 + number / 7:.3f}" for number in range(8)]


def decided(*columns: Sequence[str], header: str = "", chosen: str = "", language: str = "am") -> list[str]:
    """Return the names of the columns of a table; "header" behind them if it has one."""
    rows = [list(row) for row in zip(*columns, strict=True)]
    rows = [header.split(","), *rows] if header else rows

    def exists(value: str) -> bool:
        return value in PATHS or value in IDS

    found = decide_columns(rows, exists, language=language, chosen=chosen)
    if found.problem:
        raise UserError(found.problem)
    return [*found.names, *(["header"] if found.has_header else [])]


@pytest.mark.parametrize(
    ("columns", "header", "expected"),
    [
        ((PATHS, TEXTS, GENDERS), "file_name,normalized_text,gender", "audio text - header"),
        ((PATHS, TEXTS, ENGLISH), "file_name,text_am,text_en", "audio text - header"),
        ((PATHS, ENGLISH, TEXTS), "file_name,text_en,text_am", "audio - text header"),
        ((IDS, TEXTS, SPEAKERS), "", "audio text speaker"),
        ((PATHS, SPEAKERS, TEXTS), "", "audio speaker text"),
        ((PATHS, TEXTS, GENDERS), "", "audio text -"),
        ((PATHS, TEXTS, SECONDS), "", "audio text -"),
        ((TEXTS, PATHS), "", "text audio"),
        ((PATHS, IDS, TEXTS), "", "audio - text"),
        ((SPEAKERS, IDS, TEXTS), "who,which,what", "- audio text header"),
        ((PATHS, [text.split()[0] for text in TEXTS]), "", "audio text"),
        ((PATHS, ["ሰላም"] * 8), "", "audio text"),
        ((PATHS, TEXTS, [""] * 8), "", "audio text -"),
        ((PATHS, TEXTS, [*TEXTS[:4], *[""] * 4]), "", "audio text spoken"),
        ((PATHS, TEXTS, AMHARIC_NAMES), "", "audio text speaker"),
        ((SPEAKERS, PATHS, TEXTS), "speaker,recording,text", "speaker audio text header"),
        ((CODES, PATHS, TEXTS), "id,recording_file,text", "id audio text header"),
        ((IDS, TEXTS), "id,text", "id text header"),
    ],
)
def test_columns_are_decided_by_header_and_content(
    columns: tuple[list[str], ...], header: str, expected: str
):
    assert [name or "-" for name in decided(*columns, header=header)] == expected.split()


@pytest.mark.parametrize(
    ("columns", "header", "problem"),
    [
        (
            (PATHS, TEXTS, TEXTS[::-1]),
            "file,first,second",
            "columns first .* and second .* could be the text",
        ),
        ((PATHS, TEXTS, TIGRINYA), "", TWO_TEXTS),
        ((PATHS, SPEAKERS, SPEAKERS[::-1], TEXTS), "", "columns 1 .* and 2 .* could be the speaker"),
        ((PATHS, SPEAKERS, GENDERS), "", "no column could be the text"),
        ((TEXTS, SPEAKERS, GENDERS), "", "no column could be the recording"),
        ((PATHS, PATHS[::-1], TEXTS), "", "columns 0 .* and 1 .* could be the recording"),
        ((PATHS, ENGLISH, AMHARIC_NAMES), "file_name,text,narrator_am", "no column could be the text"),
        ((PATHS, TEXTS, [" ነው።", " አለ።"] * 4), "", TWO_TEXTS),
        ((PATHS, WORDSPACED, [text[::-1] for text in WORDSPACED]), "", TWO_TEXTS),
        ((SPEAKERS, CODES, TEXTS), "speaker,clip_name,text", "no column could be the recording"),
    ],
)
def test_a_table_without_exactly_one_likely_reading_is_refused(
    columns: tuple[list[str], ...], header: str, problem: str
):
    with pytest.raises(UserError, match=f"{problem}.*pass --columns"):
        decided(*columns, header=header)


def test_columns_can_be_named_by_hand():
    table = (PATHS, TEXTS, TEXTS[::-1])
    assert decided(*table, chosen="audio=0,text=2") == ["audio", "", "text"]
    assert decided(*table, header="file,one,two", chosen="audio=file, text=One")[:2] == ["audio", "text"]
    wrong = {
        "audio=0": "name audio and text",
        "audio=0,text=3": "has no column 3",
        "audio=0,text=three": "has no column three",
        "audio=0,txt=1": "'txt=1' is not NAME=COLUMN",
        "audio": "'audio' is not NAME=COLUMN",
        "audio=0,text=1,text=2": "'text=2' is not NAME=COLUMN",
        "audio=0,text=0": "column 0 has two uses, audio and text",
        f"audio=0,text={'9' * 5000}": "has no column 999",
    }
    for chosen, problem in wrong.items():
        with pytest.raises(UserError, match=re.escape(problem)):
            decided(*table, chosen=chosen)


def test_a_first_row_of_another_width_does_not_prevent_a_choice():
    rows = [["what", "which", "who", "more"], *([*row, "x"] for row in zip(PATHS, TEXTS, strict=True))]
    found = decide_columns(rows, lambda value: value in PATHS, language="am", chosen="audio=0,text=1")
    assert found.names == ("audio", "text", "", "")


def test_a_language_of_another_script_reads_its_own_text():
    assert decided(PATHS, ENGLISH, SPEAKERS, language="en") == ["audio", "text", "speaker"]


def test_an_import_prints_its_reading_and_keeps_the_columns_of_the_answer(tmp_path, caplog):
    lines = ["file_name,first,second", *rows(",", PATHS, TEXTS, TEXTS[::-1])]
    folder = write(tmp_path / "in", tones(*PATHS) | {"list.csv": lines})
    with pytest.raises(UserError, match=f"{re.escape(str(folder))}: list.csv: columns .* could be the text"):
        run_import(folder, tmp_path / "out", speaker="s")
    with caplog.at_level("INFO"):
        run_import(folder, tmp_path / "out", speaker="s", columns="audio=0,text=second")
    shown = f"file_name as audio (wavs/0.wav), first not read ({TEXTS[0]}), second as text ({TEXTS[-1]})"
    assert shown in caplog.text
    texts = [line["text"] for line in manifest_lines(tmp_path / "out")]
    assert texts == TEXTS[::-1]
    run_import(folder, tmp_path / "out", speaker="s")  # the answer is kept
    assert [line["text"] for line in manifest_lines(tmp_path / "out")] == texts
    with pytest.raises(UserError, match="could be the text"):
        run_import(folder, tmp_path / "out", speaker="s", columns="auto")


@pytest.mark.parametrize("header", ["path,text", "file,amharic"])
def test_unquoted_commas_in_texts_never_shorten_them(tmp_path: Path, header: str):
    texts = [TEXTS[0], *(f"{text}, ይላል አበበ" for text in TEXTS[1:])]
    folder = write(tmp_path / "in", tones(*PATHS) | {"list.csv": [header, *rows(",", PATHS, texts)]})
    if header == "path,text":
        run_import(folder, tmp_path / "out", speaker="s")
        assert [line["text"] for line in manifest_lines(tmp_path / "out")] == TEXTS[:1]
    else:
        with pytest.raises(UserError, match=r"list\.csv: the first row has 2 columns, but most rows have 3"):
            run_import(folder, tmp_path / "out", speaker="s")


def test_columns_of_a_layout_without_tables_are_refused(tmp_path: Path):
    row = ["0", "0.wav", TEXTS[0], TEXTS[0], "", "3200", "FEMALE"]
    folder = write(tmp_path / "in", {"audio/train/0.wav": 0, "train.tsv": "\t".join(row)})
    with pytest.raises(UserError, match=r"--columns .* layout is fleurs; pass --layout table"):
        run_import(folder, tmp_path / "out", speaker="s", columns="audio=1,text=2")
