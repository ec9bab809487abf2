"""Tests of parquet.py: rows, their names, unusable recordings, repeated imports."""

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from indextts.data.importing import parquet
from indextts.data.importing.items import Embedded, Location, Rejection, Row
from indextts.data.importing.parquet import AudioReader
from indextts.errors import UserError
from tests.import_sources import (
    ids,
    manifest_lines,
    rejected,
    run_import,
    snapshot,
    tone_bytes,
    write_parquet,
    write_tone,
)

TEXT = "ሰላም ለዓለም፣ ደህና ነህ?"


def rows(first: int, last: int, **columns: list[Any]) -> dict[str, list[Any]]:
    """Return columns of rows whose recordings, paths and texts have the number of the row."""
    numbers = range(first, last)
    return {
        "audio": [{"bytes": tone_bytes(200 + n), "path": f"c{n}.flac"} for n in numbers],
        "text": [f"{TEXT} {n}" for n in numbers],
        "speaker_id": ["s"] * len(numbers),
        **columns,
    }


def test_the_file_of_a_recording_has_the_bytes_of_its_row_and_their_suffix(tmp_path, caplog):
    contents = [tone_bytes(200), tone_bytes(210, kind="WAV"), tone_bytes(220, kind="OGG")]
    paths = ["c0.flac", "c1.flac", None]  # the second is wrong
    audio = [{"bytes": content, "path": path} for content, path in zip(contents, paths, strict=True)]
    write_parquet(tmp_path / "in/data/train-0.parquet", rows(0, 3, audio=audio))
    with caplog.at_level("INFO"):
        run_import(tmp_path / "in", tmp_path / "out", link=True)  # rows are never linked
    assert f"audio as audio (c0.flac), text as text ({TEXT} 0), speaker_id as speaker (s)" in caplog.text
    lines = manifest_lines(tmp_path / "out")
    assert [line["audio"] for line in lines] == ["audio/c0.flac", "audio/c1.wav", "audio/train-0-000002.ogg"]
    assert [(tmp_path / "out" / line["audio"]).read_bytes() for line in lines] == contents
    assert [line["duration"] for line in lines] == [0.2] * 3


def test_a_second_import_reads_no_audio(tmp_path, monkeypatch):
    source = write_parquet(tmp_path / "in/train.parquet", rows(0, 5)).parent
    run_import(source, tmp_path / "out")
    before = snapshot(tmp_path / "out")

    def fails(*_: object) -> None:
        raise AssertionError("reads audio")

    monkeypatch.setattr(AudioReader, "read", fails)
    assert run_import(source, tmp_path / "out").num_unchanged == 5
    assert snapshot(tmp_path / "out") == before


@pytest.mark.parametrize("path", ["c{}.flac", "audio.flac", None])
def test_another_shard_adds_its_rows_although_it_renames_the_others(tmp_path, path):
    def shard(first: int, last: int) -> dict[str, list[Any]]:
        named = [path and path.format(n) for n in range(first, last)]
        contents = [tone_bytes(200 + n) for n in range(first, last)]
        audio = [{"bytes": content, "path": name} for content, name in zip(contents, named, strict=True)]
        return rows(first, last, audio=audio)

    for number in range(2):
        write_parquet(tmp_path / f"in/train-0000{number}-of-00002.parquet", shard(3 * number, 3 * number + 3))
    run_import(tmp_path / "in", tmp_path / "out")
    before = manifest_lines(tmp_path / "out")
    for number in range(2):
        old = tmp_path / f"in/train-0000{number}-of-00002.parquet"
        old.rename(old.with_name(f"train-0000{number}-of-00003.parquet"))
    write_parquet(tmp_path / "in/train-00002-of-00003.parquet", shard(6, 8))
    result = run_import(tmp_path / "in", tmp_path / "out")
    assert (result.num_added, result.num_changed, result.num_unchanged) == (2, 0, 6)
    after = manifest_lines(tmp_path / "out")
    assert (after[:6], len({line["id"] for line in after})) == (before, 8)
    assert [(tmp_path / "out" / line["audio"]).read_bytes() for line in after] == [
        tone_bytes(200 + number) for number in range(8)
    ]


def test_rows_with_the_same_id_are_different_recordings(tmp_path):
    """As in FLEURS, where the id is that of the sentence."""
    write_parquet(tmp_path / "in/train.parquet", rows(0, 4, id=[7, 7, 8, 8]))
    run_import(tmp_path / "in", tmp_path / "out")
    found = ids(tmp_path / "out")
    assert [id[:2] for id in found] == ["7", "7-", "8", "8-"]
    assert len(set(found)) == 4
    same_path = [{"bytes": tone_bytes(300 + n), "path": "audio.wav"} for n in range(3)]
    write_parquet(tmp_path / "same/train.parquet", rows(0, 3, audio=same_path))
    run_import(tmp_path / "same", tmp_path / "out2")
    assert len(set(ids(tmp_path / "out2"))) == 3


def test_unusable_rows_are_listed_with_their_file_and_number(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(parquet, "MAX_AUDIO_BYTES", 30_000)
    columns = rows(0, 8, language=["am"] * 7 + ["ti"])
    columns["audio"][1] = {"bytes": b"no audio", "path": "c1.wav"}
    columns["audio"][2] = None
    columns["text"][3] = "  "
    columns["text"][4] = None
    columns["audio"][5] = {"bytes": None, "path": "elsewhere.wav"}
    columns["audio"][6]["bytes"] += bytes(30_000)
    write_parquet(tmp_path / "in/data/x.parquet", columns)
    run_import(tmp_path / "in", tmp_path / "out")
    assert ids(tmp_path / "out") == ["c0", "c7"]
    assert "several languages" in caplog.text
    assert sorted(rejected(tmp_path / "out"), key=str) == [
        ("data/x.parquet", 2, "unreadable_audio"),
        ("data/x.parquet", 3, "missing_audio"),
        ("data/x.parquet", 4, "empty_text"),
        ("data/x.parquet", 5, "empty_text"),
        ("data/x.parquet", 6, "missing_audio"),
        ("data/x.parquet", 7, "unreadable_audio"),
    ]
    assert not list((tmp_path / "out/audio").glob(".part-*"))


def test_rows_without_bytes_are_recordings_beside_the_file(tmp_path):
    columns = rows(0, 4)
    for number in (1, 2):
        columns["audio"][number]["bytes"] = None
    write_tone(tmp_path / "in/clips/c1.flac", 500, 0.3)
    write_parquet(tmp_path / "in/train.parquet", columns)
    run_import(tmp_path / "in", tmp_path / "out")
    assert ids(tmp_path / "out") == ["c0", "c1", "c3"]
    assert rejected(tmp_path / "out") == [("train.parquet", 3, "missing_audio")]


def test_a_text_in_another_encoding_is_one_rejection(tmp_path):
    path = write_parquet(tmp_path / "in/train.parquet", rows(0, 3))
    table = pq.read_table(path)
    texts = pa.array([b"caf\xe9 au lait", *(f"{TEXT} {n}".encode() for n in (1, 2))])
    pq.write_table(table.set_column(1, "text", texts.cast(pa.binary()).view(pa.string())), path)
    run_import(path, tmp_path / "out")
    assert ids(tmp_path / "out") == ["c1", "c2"]
    assert rejected(tmp_path / "out") == [("train.parquet", 1, "encoding")]


def test_a_file_without_texts_is_one_rejection(tmp_path):
    write_parquet(tmp_path / "in/amh-train-0.parquet", rows(0, 2))
    columns = rows(2, 9) | {"text": pa.array([None] * 7, pa.string())}
    write_parquet(tmp_path / "in/amh-unlabeled-0.parquet", columns)
    run_import(tmp_path / "in", tmp_path / "out")
    assert ids(tmp_path / "out") == ["c0", "c1"]
    assert rejected(tmp_path / "out") == [("amh-unlabeled-0.parquet", None, "no_text")]


@pytest.mark.parametrize("damage", ["truncated", "no parquet", "empty", "half a page"])
def test_a_corrupt_file_is_rejected_and_the_others_are_imported(tmp_path, damage):
    write_parquet(tmp_path / "in/a.parquet", rows(0, 4))
    path = write_parquet(tmp_path / "in/b.parquet", rows(4, 8))
    content = path.read_bytes()
    place = pq.ParquetFile(path).metadata.row_group(0).column(0).dictionary_page_offset
    changed = {
        "truncated": content[:-100],
        "no parquet": b"<html>" * 100,
        "empty": b"",
        "half a page": content[:place] + b"\xff" * 80 + content[place + 80 :],
    }
    path.write_bytes(changed[damage])
    run_import(tmp_path / "in", tmp_path / "out")
    assert ids(tmp_path / "out")[:4] == ["c0", "c1", "c2", "c3"]
    found = rejected(tmp_path / "out")
    assert {(file, code) for file, _, code in found} == {("b.parquet", "broken_file")}
    if damage == "half a page":  # only its row group
        assert ids(tmp_path / "out")[4:] == ["c6", "c7"]
        assert [line for _, line, _ in found] == [1, 2]
    else:
        with pytest.raises(UserError, match=r"1 broken_file.*parquet") as caught:
            run_import(path, tmp_path / "out2", speaker="s")
        assert caught.value.exit_status == 1
        assert "\n" not in str(caught.value)


def row_of(path: Path, row: int) -> Row:
    return Row(Location(path, row + 1), audio=path, embedded=Embedded("audio", row))


def test_a_long_value_of_many_rows_is_one_rejection_each(tmp_path):
    """It is stored once."""
    texts = pa.DictionaryArray.from_arrays(pa.array([0] + [1] * 1_999), ["ሰላም", "x" * 60_000])
    table = pa.table({"audio": ["a.wav"] * 2_000, "text": texts})
    pq.write_table(table, tmp_path / "train.parquet", store_schema=False)  # read as text, not as indices
    write_tone(tmp_path / "a.wav")
    columns = "audio=audio,text=text"
    run_import(tmp_path / "train.parquet", tmp_path / "out", speaker="s", columns=columns)
    assert len(ids(tmp_path / "out")) == 1
    assert Counter(code for *_, code in rejected(tmp_path / "out")) == {"line_too_long": 1_999}


def test_texts_that_unpack_to_much_more_than_the_file_are_not_read(tmp_path):
    columns = {"audio": ["a.wav"] * 16_000, "text": [f"{'ሰላም ' * 1400} {n}" for n in range(16_000)]}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet", compression="zstd", use_dictionary=["audio"])
    write_tone(tmp_path / "a.wav")
    with pytest.raises(UserError, match=r"\(1 broken_file"):
        run_import(tmp_path / "a.parquet", tmp_path / "out", speaker="s")


def test_audio_of_much_more_bytes_than_the_file_is_not_read(tmp_path):
    content = tone_bytes() + bytes(30 * 2**20)
    write_parquet(tmp_path / "a.parquet", {"audio": [{"bytes": content, "path": "a.flac"}] * 8}, 8)
    assert (tmp_path / "a.parquet").stat().st_size < 2 * 2**20
    reader = AudioReader()
    found = []
    for row in range(8):
        read = reader.read(row_of(tmp_path / "a.parquet", row))
        found.append(read.code if isinstance(read, Rejection) else len(read[0]) - len(content))
    assert found == [0] * 6 + ["broken_file"] * 2
