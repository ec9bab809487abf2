"""Tests of tables as people have them: missing values, speakers, headers, quoting, encodings.

Each case is a data set and what its import gives, as in test_data_importing_all_layouts.py.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from indextts.errors import UserError
from tests.import_cases import (
    BOTH,
    NAMED,
    NAMES,
    PATHS,
    SPEAKERS,
    TEXTS,
    Case,
    check_import,
    json_lines,
    of,
    rows,
    table,
    tones,
    write,
)
from tests.import_sources import json_lines as read_lines
from tests.import_sources import manifest_lines, run_import

NUMBERS = ["0", "1"] * 3
MISSING = ["NULL", "#REF!", "nan", "N/A", "<NA>", "None"]


def speakers(*columns: Sequence[str], expected: Sequence[str] = ("0", "1"), **more: Any) -> Case:
    """Return the case of a list without a header whose speakers are numbers."""
    return Case(table("x.list", "|", "", *columns), of(NAMES), expected, **{**NAMED, **more})


def csv(header: str, *columns: Sequence[str], **more: Any) -> Case:
    return Case(table("x.csv", ",", header, *columns), of(NAMES), **more)


def written(content: str | bytes, *, name: str = "x.csv", **more: Any) -> Case:
    return Case({**tones(*PATHS), name: content}, of(NAMES), **more)


def lines(delimiter: str = ",", end: str = "\n") -> str:
    header = delimiter.join(["path", "text", "speaker"])
    return end.join([header, *rows(delimiter, PATHS, TEXTS, SPEAKERS)]) + end


def first(name: str, *texts: str, **more: Any) -> Case:
    """Return the case of a table whose lines have a recording of PATHS as {0}, {1} and so on."""
    return Case({**tones(*PATHS), name: "\n".join(texts).format(*PATHS) + "\n"}, **more)


def code_page(texts: Sequence[str], page: str, language: str) -> Case:
    content = "\r\n".join(rows(";", ["path", *PATHS], ["text", *texts])).encode(page)
    return Case({**tones(*PATHS), "x.csv": content}, of(NAMES, texts), flags={**S, "language": language})


def two(one: str, other: str, content: Sequence[Any], more: Sequence[Any], **given: Any) -> Case:
    return Case({**tones(*PATHS), one: content, other: more}, **given)


S = {"speaker": "s"}
QUOTED = [f'"{text}"' for text in TEXTS]
OTHER = TEXTS[::-1]
NUM_WORDS = [str(len(text.split())) for text in TEXTS]
NAN = float("nan")
PARQUET = {"path": PATHS, "text": [TEXTS[0], "NULL"] * 3, "speaker": [3.0, None] * 3}
LOST = ["???? ????"] * 5 + TEXTS[5:]
FRENCH = [
    "Ça va très bien",
    "L’été est là",
    "À Genève, déjà",
    "Où êtes-vous",
    "Noël en forêt",
    "Voilà ma sœur",
]
ARABIC = ["صباح الخير", "كيف حالك اليوم", "أين كتابي", "أشرب الماء", "هي تغني", "إلى اللقاء غدا"]
RECORDS = [{"audio": path, "text": text} for path, text in zip(PATHS, TEXTS, strict=True)]
LINES = rows(",", PATHS, TEXTS)
CASES = {
    "JSON lines under another name": Case(
        json_lines("x.txt", audio=PATHS, text=TEXTS), of(NAMES), source="x.txt"
    ),
    # --- missing values
    "no speaker called nan": csv(
        "path,text,speaker", PATHS, TEXTS, ["almaz", *MISSING[:5]], speakers=["almaz", "s"]
    ),
    "texts that are missing": Case(
        table("x.csv", ",", "path,text", PATHS, [TEXTS[0], *MISSING[1:]]),
        of(NAMES[:1]),
        rejected=[("x.csv", line, "empty_text") for line in range(3, 8)],
    ),
    "NaN and floats in JSON": Case(
        json_lines("x.jsonl", audio=PATHS, text=TEXTS, speaker=[1.0, NAN] * 3), of(NAMES), ["1", "s"]
    ),
    "missing values in parquet": Case(
        {**tones(*PATHS), "x.parquet": PARQUET},
        of(NAMES[::2], [TEXTS[0]] * 3),
        ["3"],
        rejected=[("x.parquet", line, "empty_text") for line in (2, 4, 6)],
        has_pitches=False,
    ),
    "a column without any value": csv("path,text,speaker", PATHS, TEXTS, ["nan"] * 6),
    # --- speakers that are numbers, and headers
    "a number at the end": speakers(PATHS, TEXTS, NUMBERS),
    "floats": speakers(PATHS, TEXTS, ["0.0", "1.0"] * 3),
    "numbers of words": speakers(PATHS, TEXTS, NUM_WORDS, expected=["s"], flags=S),
    "JSON numbers": Case(
        json_lines("x.jsonl", audio=PATHS, text=TEXTS, speaker=[3.0, 7] * 3), of(NAMES), ["3", "7"], **NAMED
    ),
    "blanks": csv("Audio File,Transcription (am),Speaker Name", PATHS, TEXTS, SPEAKERS, **BOTH),
    "camel case": csv("audioPath,rawText,speakerId", PATHS, TEXTS, SPEAKERS, **BOTH),
    "a user's number": csv("path,text,user_id", PATHS, TEXTS, NUMBERS, speakers=["0", "1"], **NAMED),
    "a reader, not the author": csv("path,author,text,reader", PATHS, "XYXYXY", TEXTS, SPEAKERS, **BOTH),
    "emotions": speakers(PATHS, TEXTS, ["happy", "sad"] * 3, expected=["s"], flags=S),
    # --- quoting and encodings
    "quotes in a table with tabs": written(
        "\n".join(rows("\t", ["path", *PATHS], ["text", *QUOTED])), name="x.tsv"
    ),
    "a tab in quotes": first(
        "x.tsv",
        "path\ttext",
        '{0}\t"ሰላም\tለዓለም ""ዛሬ"""',
        "{1}\tደህና ነው",
        texts=of(NAMES, ['ሰላም\tለዓለም "ዛሬ"', "ደህና ነው"]),
    ),
    "a bar in quotes": first(
        "x.csv",
        '{0}|"ሰላም|ለዓለም"|a',
        "{1}|ደህና ነው|a",
        texts=of(NAMES, ["ሰላም|ለዓለም", "ደህና ነው"]),
        speakers=["a"],
        **NAMED,
    ),
    "quotes that are text": first(
        "x.csv",
        '{0}|"ሰላም" አለ',
        '{1}|"ደህና ነው',
        '{2}|ነገ ነው"',
        texts=of(NAMES, ['"ሰላም" አለ', '"ደህና ነው', 'ነገ ነው"']),
    ),
    "Unicode text of Excel": written(lines("\t", "\r\n").encode("utf-16"), name="x.txt", **BOTH),
    "sep=;": written("sep=;\r\n" + lines(";", "\r\n"), **BOTH),
    "empty rows at the end": written(lines() + ",,\n" * 3 + '"","",""\n\n', **BOTH),
    "joined files": written("\n".join(["\ufeffpath,text", *LINES[:3], "\ufeffpath,text", *LINES[3:]])),
    "joined without a line end": written("\n".join([*LINES[:2], f"{LINES[2]}\ufeff{LINES[3]}", *LINES[4:]])),
    "Windows-1252": code_page(FRENCH, "cp1252", "fr"),
    "Windows-1256": code_page(ARABIC, "cp1256", "ar"),
    "no known code page": Case(
        {**tones(*PATHS), "x.csv": "path,text\n0.wav,你好世界今天天气很好".encode("gbk")},
        refusal="nothing is usable",
        flags={**S, "language": "zh"},
    ),
    "letters that were lost": Case(
        table("x.csv", ",", "path,text", PATHS, LOST),
        of(NAMES[5:], TEXTS[5:]),
        rejected=[("x.csv", line, "encoding") for line in range(2, 7)],
        has_pitches=False,
    ),
    "a recording that a mistake names twice": Case(
        table("x.csv", ",", "path,text", [*PATHS[:5], PATHS[0]], TEXTS),
        of(NAMES[:5], TEXTS[:5]),
        rejected=[("x.csv", 7, "duplicate")],
        flags=S,
        has_pitches=False,
    ),
    "an array in an object": Case(
        {**tones(*PATHS), "x.json": json.dumps({"version": 1, "data": RECORDS}, indent=1)}, of(NAMES)
    ),
    "objects over several lines": Case(
        {**tones(*PATHS), "x.jsonl": "\n".join(json.dumps(each, indent=1) for each in RECORDS)},
        refusal="jq -c",
    ),
    # --- two tables
    "a table by its name": two(
        "metadata.tsv",
        "wrong.tsv",
        rows("\t", ["file", *PATHS], ["text", *TEXTS]),
        rows("\t", ["file", *PATHS], ["text", *OTHER]),
        texts=of(NAMES),
    ),
    "other texts in a list": two(
        "a.csv",
        "b.csv",
        rows("|", PATHS, TEXTS),
        rows("|", PATHS, OTHER),
        refusal=r"a\.csv and b\.csv .*--source",
    ),
    "a table and its part": two(
        "all.csv",
        "val.csv",
        rows("|", PATHS, TEXTS),
        rows("|", PATHS[:2], TEXTS),
        texts=of(NAMES),
        rejected=[("val.csv", 1, "duplicate"), ("val.csv", 2, "duplicate")],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_table_is_read_right(tmp_path: Path, name: str):
    check_import(CASES[name], tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("x.csv", "path,text,text\n{0},ሰላም ነው,ደህና ነው\n", r"columns 1 and 2 .*--columns"),
        ("x.csv", "path;Speaker;speaker;text\n{0};a;b;ሰላም ነው\n", r"columns 1 and 2 .*--columns"),
        ("x.tsv", "file\ttext\tfile\n{0}\tሰላም ነው\t{1}\n", r"columns 0 and 2 .*--columns"),
        ("x.jsonl", '{{"audio": "{0}", "text": "ሰላም", "text": "ደህና"}}\n', "two fields are named text"),
    ],
)
def test_two_equal_headers_are_refused(tmp_path: Path, name: str, content: str, problem: str):
    write(tmp_path / "in", {**tones(*PATHS[:2]), name: content.format(*PATHS)})
    with pytest.raises(UserError, match=problem):
        run_import(tmp_path / "in", tmp_path / "out", speaker="s")


def test_ids_of_sentences_that_several_people_read_may_repeat(tmp_path: Path):
    said = [text for text in TEXTS[:3] for _ in range(2)]
    write(tmp_path / "in", table("x.csv", ",", "id,path,text,speaker", "001122", PATHS, said, SPEAKERS))
    run_import(tmp_path / "in", tmp_path / "out")
    found = manifest_lines(tmp_path / "out")
    assert sorted(line["text"] for line in found) == sorted(said)
    assert {"0", "1", "2"} < {line["id"] for line in found}
    assert run_import(tmp_path / "in", tmp_path / "out").num_unchanged == 6


def test_an_import_says_what_it_assumes(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    columns = PATHS, TEXTS, ["1", "01", "", "nan", "1", "7"]
    files = table("metadata.csv", ",", "path,text,speaker", *columns)
    write(tmp_path / "in", {**files, "other.csv": files["metadata.csv"]})
    with caplog.at_level("INFO"):
        run_import(tmp_path / "in", tmp_path / "out", speaker="s")
    assert "assigned speaker s to 2 recordings; 4 name a speaker" in caplog.text
    assert "01 and 1 count as different speakers" in caplog.text
    assert "not read: other.csv" in caplog.text


def test_the_split_and_the_licences_of_a_table_are_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    sides = ["train-other", "Train", "dev-clean", "evaluation", "test_b", "gold"]
    files = table("x.csv", ",", "path,text,Split,License", PATHS, TEXTS, sides, ["MIT", "CC-BY-4.0"] * 3)
    write(tmp_path / "in", files)
    out = tmp_path / "out"
    run_import(tmp_path / "in", out, speaker="s")
    found = manifest_lines(out)
    assert [line.get("split") for line in found] == ["train", "train", "val", "val", "test", None]
    assert [line["license"] for line in found] == ["MIT", "CC-BY-4.0"] * 3
    [source] = json.loads((out / "sources.json").read_text()).values()
    assert (source["name"], source["licence"]) == ("in", "CC-BY-4.0, MIT")
    lines = (tmp_path / "in/x.csv").read_text(encoding="utf-8").replace("MIT", "CC0")
    (tmp_path / "in/x.csv").write_text(lines, encoding="utf-8")
    run_import(tmp_path / "in", out, speaker="s")
    assert [line["license"] for line in read_lines(out / "manifest.jsonl")] == ["CC0", "CC-BY-4.0"] * 3
    [source] = json.loads((out / "sources.json").read_text()).values()
    assert source["licence"] == "CC-BY-4.0, CC0, MIT"
    assert "1 row with a split that is not known: gold" in caplog.text
