"""Tests of indextts/data/importing/table_preview.py: the columns of an import, without importing."""

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from indextts.commands.data import ImportLayout
from indextts.data.importing.archive import HEAD_BYTES, MAX_HEADS
from indextts.data.importing.table_preview import MAX_COLUMNS, MAX_TABLES, SourcePreview, preview_source
from indextts.errors import UserError
from tests import import_cases
from tests.import_cases import rows, tones, write
from tests.import_sources import manifest_lines, run_import

TEXTS = import_cases.TEXTS[:4]
OTHERS = TEXTS[::-1]
ENGLISH = ["peace to all", "how are you", "the sun is out", "I read the book"]
PATHS = [f"wavs/{number}.wav" for number in range(4)]
SPEAKERS = ["almaz", "bekele"] * 2


def table(*columns: list[str], header: str = "") -> str:
    return "\n".join([*([header] if header else []), *rows(",", *columns)])


AMBIGUOUS = table(PATHS, TEXTS, OTHERS, header="file_name,first,second")


def write_source(folder: Path, files: Mapping[str, str], *, is_zip: bool = False) -> Path:
    """Write tables, and four recordings in wavs/ beside them, into a folder or a zip archive."""
    if is_zip:
        with zipfile.ZipFile(folder / "talks.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            for path in PATHS:
                archive.writestr(f"set/{path}", b"RIFF")
            for name, text in files.items():
                archive.writestr(f"set/{name}", text)
        return folder / "talks.zip"
    return write(folder / "set", {**tones(*PATHS), **files})


def preview(
    source: Path, *, columns: str = "", layout: ImportLayout = "auto", allowed: list[Path] | None = None
) -> SourcePreview:
    return preview_source(source, layout, language="am", columns=columns, allowed=allowed or [])


def uses(found: SourcePreview) -> list[Any]:
    """Return the uses of the columns of each table, with a question mark for a candidate."""
    return [
        [f"{column.candidate_for}?" if column.candidate_for else column.use for column in each.columns]
        for each in found.tables
    ]


@pytest.mark.parametrize("is_zip", [True, False])
@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (table(PATHS, TEXTS, SPEAKERS, header="path,sentence,client_id"), "audio text speaker"),
        (table(PATHS, TEXTS, ENGLISH, header="file_name,text_am,text_en"), "audio text -"),
        (table(PATHS, SPEAKERS, TEXTS), "audio speaker text"),
        (table([str(number) for number in range(4)], TEXTS), "audio text"),
    ],
)
def test_the_columns_are_those_of_the_import(tmp_path: Path, is_zip: bool, content: str, expected: str):
    source = write_source(tmp_path, {"list.csv": content}, is_zip=is_zip)
    found = preview(source)
    assert [[use or "-" for use in each] for each in uses(found)] == [expected.split()]
    [each] = found.tables
    assert (found.layout, each.is_decided, found.undecided) == ("table", True, [])
    assert each.files == (("set/list.csv" if is_zip else "list.csv"),)
    if not is_zip:
        run_import(source, tmp_path / "out", speaker="s")
        imported = {line["text"] for line in manifest_lines(tmp_path / "out")}
        [texts] = [column.samples for column in each.columns if column.use == "text"]
        assert set(texts) <= imported


@pytest.mark.parametrize("is_zip", [True, False])
def test_equally_likely_columns_are_candidates(tmp_path: Path, is_zip: bool):
    source = write_source(tmp_path, {"list.csv": AMBIGUOUS}, is_zip=is_zip)
    found = preview(source)
    assert uses(found) == [["audio", "text?", "text?"]]
    assert [each.missing for each in found.undecided] == [("text",)]
    choice = found.tables[0].choice([(0, "audio"), (2, "text")])
    assert choice == "audio=file_name,text=second"
    resolved = preview(source, columns=choice)
    assert uses(resolved) == [["audio", "", "text"]]
    assert resolved.undecided == []


def test_columns_without_a_usable_name_are_chosen_by_number(tmp_path: Path):
    content = table(PATHS, TEXTS, OTHERS, OTHERS, OTHERS, header='file_name,7,"a,b",c,C')
    [each] = preview(write_source(tmp_path, {"list.csv": content})).tables
    uses = [(0, "audio"), (1, "text"), (2, "id"), (3, "spoken"), (4, "speaker")]
    assert each.choice(uses) == "audio=file_name,text=1,id=2,spoken=c,speaker=4"
    with_header = table(PATHS, TEXTS, OTHERS, header="")
    [each] = preview(write_source(tmp_path, {"list.csv": with_header})).tables
    assert each.choice([(0, "audio"), (2, "text")]) == "audio=0,text=2"


@pytest.mark.parametrize(
    ("columns", "missing", "has_problem"),
    [
        ("audio=file_name", ("text",), False),
        ("audio=file_name,text=third", ("text",), True),
        ("text=", ("text",), True),
    ],
)
def test_a_wrong_choice_is_a_problem_beside_the_columns(
    tmp_path: Path, columns: str, missing: tuple[str, ...], has_problem: bool
):
    [each] = preview(write_source(tmp_path, {"list.csv": AMBIGUOUS}), columns=columns).undecided
    assert each.missing == missing
    assert bool(each.problem) == has_problem
    assert len(each.columns) == 3


def test_a_table_of_other_facts_is_left_out_beside_a_better_one(tmp_path: Path):
    facts = "id,gender,age,region\nalmaz,female,30,Gondar\nbekele,male,31,Gondar"
    tables = {"speakers.csv": facts, "train.csv": table(PATHS, TEXTS, header="path,text")}
    source = write_source(tmp_path, tables)
    found = preview(source)
    assert [each.is_other for each in found.tables] == [True, False]
    assert found.undecided == []
    (source / "train.csv").unlink()
    assert [each.files for each in preview(source).undecided] == [("speakers.csv",)]


def test_tables_with_the_same_columns_are_shown_once(tmp_path: Path):
    content = table(PATHS, TEXTS, header="path,text")
    files = {f"part{number:02}.csv": content for number in range(MAX_TABLES + 3)}
    found = preview(write_source(tmp_path, files))
    assert [len(each.files) for each in found.tables] == [MAX_TABLES]
    assert found.num_more == 3


@pytest.mark.parametrize(
    ("files", "layout", "num_tables"),
    [
        ({"manifest.jsonl": json.dumps({"audio": "wavs/0.wav", "text": TEXTS[0], "x": 1})}, "jsonl", 1),
        ({"manifest.jsonl": "{broken"}, "jsonl", 0),
        ({"0.txt": TEXTS[0]}, "files", 0),
        ({"validated.tsv": "client_id\tpath\tsentence\nc\t0.wav\tሰላም"}, "common-voice", 1),
    ],
)
@pytest.mark.parametrize("is_zip", [True, False])
def test_only_tables_and_json_are_shown(
    tmp_path: Path, files: dict[str, str], layout: str, num_tables: int, is_zip: bool
):
    found = preview(write_source(tmp_path, files, is_zip=is_zip))
    assert (found.layout, len(found.tables), found.undecided) == (layout, num_tables, [])
    assert found.has_choice == (layout in ("common-voice", "jsonl"))


def test_a_recording_outside_the_allowed_folders_is_not_found(tmp_path: Path):
    names = [str(tmp_path / f"outside/o{number}") for number in range(4)]
    write(tmp_path, {f"outside/o{number}.wav": b"RIFF" for number in range(4)})
    source = write_source(tmp_path, {"list.csv": table(TEXTS, ["x", "y"] * 2, names)})
    assert uses(preview(source, allowed=[source])) != uses(preview(source))
    assert uses(preview(source)) == [["text", "speaker", "audio"]]


HOSTILE = {
    "a line without end": "a" * 3_000_000,
    "a line of delimiters": "," * 3_000_000,
    "quotes": '"' * 1_000_000,
    "many columns": "\n".join(",".join(f"a{n}" for n in range(5000)) for _ in range(20)),
    "long rows": "\n".join(",".join(f"ሰላም ለዓለም {n}" * 40 for n in range(MAX_COLUMNS)) for _ in range(200)),
    "binary": "".join(map(chr, range(256))) * 4000,
    "nothing": "",
    "other paths": "\n".join(f"{'../' * n}etc/passwd,{'x' * 300},ሰላም ለዓለም {n}" for n in range(50)),
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize(("name", "is_zip"), [("list.csv", True), ("manifest.jsonl", False)])
def test_a_hostile_table_gives_a_small_preview(tmp_path: Path, content: str, name: str, is_zip: bool):
    found = preview(write_source(tmp_path, {name: content}, is_zip=is_zip))
    for each in found.tables:
        assert len(each.columns) <= MAX_COLUMNS
        assert max((len(text) for column in each.columns for text in column.samples), default=0) <= 80
        assert len(each.problem) < 1000


def test_an_archive_is_read_only_at_its_head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    bomb = "\n".join([AMBIGUOUS, "a" * 40_000_000])
    files = {f"part{number:03}.csv": bomb if number == 0 else AMBIGUOUS for number in range(MAX_HEADS + 20)}
    written: list[int] = []
    write = Path.write_bytes

    def noted(path: Path, content: bytes) -> int:
        written.append(len(content))
        return write(path, content)

    source = write_source(tmp_path, files, is_zip=True)
    monkeypatch.setattr(Path, "write_bytes", noted)
    assert uses(preview(source)) == [["audio", "text?", "text?"]]
    assert len(written) == MAX_HEADS
    assert max(written) <= HEAD_BYTES


@pytest.mark.parametrize("content", [b"not a zip", None])
def test_a_corrupt_archive_or_one_that_leads_outside_is_refused(tmp_path: Path, content: bytes | None):
    source = write_source(tmp_path, {"../out.csv": AMBIGUOUS}, is_zip=True)
    if content is not None:
        source.write_bytes(content)
    with pytest.raises(UserError, match=r"talks\.zip"):
        preview(source)


def test_the_facts_of_the_first_rows_are_those_of_the_import(tmp_path: Path):
    texts = ["[noise] ሰላም ለዓለም።", "Speaker 1: ደህና ነህ?", "[ሳቅ]", "ዛሬ [ተሰጥቶታል] ነው።"]
    content = table(
        [*PATHS[:3], "wavs/missing.wav"], texts, ["almaz", "", "bekele", "bekele"], ["0"] * 4, ["0.1"] * 4
    )
    header = "path,text,speaker,start,end"
    source = write_source(tmp_path, {"a.csv": f"{header}\n{content}", "b.csv": f"{header}\n{content}"})
    [found] = preview(source).tables
    assert {fact: count for fact, count in found.facts.items() if fact[0] != "unusable"} == {
        ("rows", ""): 8,
        ("found", "as named"): 4,
        ("spans", ""): 4,
        ("speakers", "almaz"): 2,
        ("speakers", ""): 2,
        ("noise", "[noise]"): 2,
        ("noise", "[ሳቅ]"): 2,
        ("labels", "Speaker 1:"): 2,
    }
    assert sorted(count for (fact, _), count in found.facts.items() if fact == "unusable") == [2, 2]
    kept = preview_source(source, "auto", language="am", columns="", allowed=[], keep=["noise", "labels"])
    assert not {"noise", "labels"} & {fact for fact, _ in kept.tables[0].facts}
    assert not preview(write_source(tmp_path / "x", {"a.csv": AMBIGUOUS})).tables[0].facts
