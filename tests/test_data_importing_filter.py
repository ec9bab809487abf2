"""Tests of --max-hours and --speakers: which recordings an import leaves out, and what a later one does."""

from pathlib import Path

import pytest

from indextts.errors import UserError
from tests.import_sources import ids, run_import, snapshot, write_tone

HOUR_S = 3600
SPEAKERS = ["almaz", "bekele", "chala"]


def table(folder: Path, first: int = 0, last: int = 9) -> Path:
    """Write recordings of 0.5 s by three speakers in turn, and their table."""
    rows = ["path,text,speaker"]
    for number in range(first, last):
        write_tone(folder / f"wavs/c{number}.wav", 200 + number)
        rows.append(f"c{number},ሰላም ለዓለም {number},{SPEAKERS[number % 3]}")
    (folder / "metadata.csv").write_text("\n".join(rows), encoding="utf-8")
    return folder


def test_the_first_recordings_are_imported_until_they_reach_the_hours(tmp_path, caplog):
    source = table(tmp_path / "in")
    (source / "wavs/c0.wav").write_bytes(b"no audio")  # does not count
    with caplog.at_level("INFO"):
        run_import(source, tmp_path / "out", max_hours=1.6 / HOUR_S)
    assert ids(tmp_path / "out") == ["c1", "c2", "c3", "c4"]
    assert "left out 4 recordings because of --max-hours" in caplog.text
    before = snapshot(tmp_path / "out")
    assert run_import(source, tmp_path / "out", max_hours=1.6 / HOUR_S).num_unchanged == 4
    assert snapshot(tmp_path / "out") == before
    result = run_import(source, tmp_path / "out", max_hours=3 / HOUR_S)
    assert (result.num_added, result.num_unchanged) == (2, 4)
    assert ids(tmp_path / "out") == [f"c{number}" for number in range(1, 7)]
    assert not list((tmp_path / "out/audio").glob(".part-*"))


def test_the_hours_are_those_of_all_sources_and_fewer_remove_nothing(tmp_path):
    sources = [table(tmp_path / "a", 0, 3), table(tmp_path / "b", 3, 6), table(tmp_path / "c", 6, 9)]
    run_import(sources, tmp_path / "out", max_hours=2 / HOUR_S)
    assert ids(tmp_path / "out") == ["c0", "c1", "c2", "c3"]
    assert run_import(sources, tmp_path / "out").num_added == 5
    result = run_import(sources, tmp_path / "out", max_hours=1 / HOUR_S, prune=True)
    assert (result.num_utterances, result.num_pruned) == (9, 0)


def test_only_the_recordings_of_the_named_speakers_are_imported(tmp_path, caplog):
    source = table(tmp_path / "in")
    with caplog.at_level("INFO"):
        run_import(source, tmp_path / "out", speakers=["bekele", "chala"])
    assert ids(tmp_path / "out") == ["c1", "c2", "c4", "c5", "c7", "c8"]
    assert "left out 3 recordings because of --speakers" in caplog.text
    result = run_import(source, tmp_path / "out", speakers=["almaz"], max_hours=1 / HOUR_S)
    assert (result.num_utterances, result.num_added, result.num_unchanged) == (8, 2, 0)
    assert ids(tmp_path / "out") == [f"c{number}" for number in range(6)] + ["c7", "c8"]


def test_an_unknown_speaker_is_an_error_that_names_some_that_exist(tmp_path):
    with pytest.raises(UserError, match=r"--speakers nobody: .* 3 speakers: almaz, bekele, chala"):
        run_import(table(tmp_path / "in"), tmp_path / "out", speakers=["almaz", "nobody"])
    assert not (tmp_path / "out/manifest.jsonl").exists()
