"""Tests of indextts/data/importing/spans.py: a row of a long recording is the part at its times.

The recording has another pitch in each second, so that a clip of the wrong part shows.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from indextts.errors import UserError
from tests.import_cases import TEXTS, Files, objects, pitch_hz, write
from tests.import_sources import (
    manifest_lines,
    rejected,
    run_import,
    snapshot,
    write_media,
    write_parquet,
    write_tone,
)

NUMBERS = range(6)
STARTS, ENDS = [f"{n}.0" for n in NUMBERS], [f"{n + 1}.0" for n in NUMBERS]
PATHS = ["rec.wav"] * 6


def sweep(num_s: int = 6, rate_hz: int = 24_000) -> Any:
    times = np.arange(rate_hz) / rate_hz
    return np.concatenate([0.1 * np.sin(2 * np.pi * (200 + 10 * n) * times) for n in range(num_s)])


def write_recording(folder: Path, files: Files) -> Path:
    """Write rec.wav, and files beside it."""
    folder.mkdir()
    write(folder, files)
    soundfile.write(folder / "rec.wav", sweep(), 24_000)
    return folder


def table(header: str, *columns: Sequence[Any], delimiter: str = ",") -> str:
    lines = [delimiter.join(map(str, row)) for row in zip(*columns, strict=True)]
    return "\n".join([*([header.replace(",", delimiter)] if header else []), *lines]) + "\n"


def json_lines(**fields: Sequence[Any]) -> str:
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in objects(**fields))


def clocks(first: int) -> list[str]:
    return [f"0:00:0{n + first}.000" for n in NUMBERS]


def commas(first: int) -> list[str]:
    return [f"{n + first},0" for n in NUMBERS]


def milliseconds(first: int) -> list[int]:
    return [1000 * (n + first) for n in NUMBERS]


def seconds(first: int, unit: float = 1.0) -> list[Any]:
    return [unit * (n + first) for n in NUMBERS]


def spans(header: str, starts: Sequence[Any], ends: Sequence[Any], delimiter: str = ",") -> str:
    return table(f"path,{header},text" if header else "", PATHS, starts, ends, TEXTS, delimiter=delimiter)


FROM_MS, TO_MS = milliseconds(0), milliseconds(1)
NULLS = [None, *seconds(0)[1:]]
FRAMES = ["00:00:01:00", "00:00:02:20", "00:00:04:10"]
IDS = [f"u{n}" for n in NUMBERS]
TABLES: dict[str, tuple[str, str]] = {
    "start and end": ("x.csv", spans("start,end", STARTS, ENDS)),
    "begin and stop": ("x.csv", spans("begin,stop", STARTS, ENDS, ";")),
    "an offset and a length": ("x.list", spans("offset,dur", STARTS, [1.0] * 6, "|")),
    "milliseconds by the recording": ("x.csv", spans("start,end", FROM_MS, TO_MS)),
    "milliseconds by the header": ("x.csv", spans("Start (ms),End (ms)", FROM_MS, TO_MS)),
    "samples": ("x.csv", spans("start_sample,end_sample", seconds(0, 24e3), seconds(1, 24e3))),
    "clocks": ("x.csv", spans("start,end", clocks(0), clocks(1))),
    "seconds with s": ("x.csv", spans("start,end", [f"{s}s" for s in STARTS], [f"{s} s" for s in ENDS])),
    "decimal commas": ("x.csv", spans("start,end", commas(0), commas(1), ";")),
    "onset and offset": ("x.csv", spans("onset,offset", STARTS, ENDS)),
    "an end and a length": ("x.csv", table("path,start,end,dur,text", PATHS, STARTS, ENDS, "999999", TEXTS)),
    "ids of their own": ("x.csv", table("id,path,start,end,text", IDS, PATHS, STARTS, ENDS, TEXTS)),
    "the same id": ("x.csv", table("id,start,end,text", ["rec"] * 6, STARTS, ENDS, TEXTS)),
    "no header": ("x.txt", spans("", STARTS, ENDS, "|")),
    "no header, times last": ("x.csv", table("", PATHS, TEXTS, FROM_MS, TO_MS, delimiter="|")),
    "NeMo": ("x.json", json_lines(audio_filepath=PATHS, offset=seconds(0), duration=[1.0] * 6, text=TEXTS)),
    "JSON with null": ("x.jsonl", json_lines(audio=PATHS, text=TEXTS, offset=NULLS, duration=[1] * 6)),
}  # fmt: skip


@pytest.mark.parametrize("name", TABLES)
def test_each_row_is_the_cut_of_its_span(tmp_path: Path, name: str):
    folder, out = write_recording(tmp_path / "in", dict([TABLES[name]])), tmp_path / "out"
    run_import(folder, out, speaker="s")
    check_clips(out)
    before = snapshot(out)
    assert run_import(folder, out, speaker="s").num_unchanged == 6
    assert snapshot(out) == before


def test_without_a_header_spans_may_start_alike_and_one_may_be_wrong(tmp_path: Path):
    ends = [1.5, 2, 3, 4, 5, 6, 5, 6, 4, 3]
    texts = [f"{text} {n}" for n, text in enumerate([*TEXTS, *TEXTS[:4]])]
    content = table("", ["rec.wav"] * 10, [1, 1, 2, 2, 3, 4, 4, 4.5, 3.5, 3], ends, texts, delimiter="|")
    run_import(write_recording(tmp_path / "in", {"x.csv": content}), tmp_path / "out", speaker="s")
    assert len(manifest_lines(tmp_path / "out")) == 9
    assert rejected(tmp_path / "out") == [("x.csv", 10, "bad_time")]


def check_clips(out: Path) -> None:
    lines = manifest_lines(out)
    assert [line["text"] for line in lines] == TEXTS
    assert [pitch_hz(out / line["audio"]) for line in lines] == [200 + 10 * n for n in NUMBERS]
    assert [line["duration"] for line in lines] == pytest.approx([1.0] * 6, abs=0.01)
    assert {line["recording"] for line in lines} == {"rec"}


@pytest.mark.parametrize("has_bytes", [False, True])
def test_spans_of_parquet_are_cut(tmp_path: Path, has_bytes: bool):
    folder = write_recording(tmp_path / "in", {})
    content = (folder / "rec.wav").read_bytes() if has_bytes else None
    audio = [{"bytes": content, "path": "rec.wav"}] * 6
    times = {"start": seconds(0), "end": seconds(1)}
    write_parquet(folder / "x.parquet", {"audio": audio, "text": TEXTS, **times})
    run_import(folder, tmp_path / "out", speaker="s")
    check_clips(tmp_path / "out")


def test_spans_of_a_video_are_cut_by_columns(tmp_path: Path):
    folder = tmp_path / "in"
    write_media(folder / "rec.m4a", sweep().astype(np.float32), 24_000)
    content = table("", ["rec.m4a"] * 6, TEXTS, milliseconds(0), milliseconds(1), "abcdef", delimiter="|")
    (folder / "x.csv").write_text(content, encoding="utf-8")
    columns = "audio=0,text=1,start_ms=2,end_ms=3"
    run_import(folder, tmp_path / "out", speaker="s", columns=columns)
    assert [line["text"] for line in manifest_lines(tmp_path / "out")] == TEXTS
    assert {round(line["duration"], 1) for line in manifest_lines(tmp_path / "out")} == {1.0}


ENTIRE = {
    "a duration alone": {"duration": [1.5, 1.5]},
    "an offset of 0 and the duration": {"offset": [0, 0.0], "duration": [1.5, 1.48]},
    "the same in milliseconds": {"start": [0, 0], "end": [1500, 1500]},
    "times of the video that they were cut from": {"start": [90.25, 131.5], "end": [91.75, 133.0]},
    "no times": {"start": ["", None], "end": [None, "NaN"]},
    "a start alone": {"start": [0.5, 0.5]},
}


@pytest.mark.parametrize("name", ENTIRE)
def test_an_entire_recording_is_not_cut(tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture):
    folder, out = tmp_path / "in", tmp_path / "out"
    files = [write_tone(folder / f"c{n}.wav", 200 + 10 * n, 1.5) for n in range(2)]
    times = ENTIRE[name]
    content = json_lines(audio=["c0.wav", "c1.wav"], text=TEXTS[:2], **times)
    (folder / "x.jsonl").write_text(content, encoding="utf-8")
    run_import(folder, out, speaker="s")
    copies = [(out / line["audio"]).read_bytes() for line in manifest_lines(out)]
    assert copies == [file.read_bytes() for file in files]
    assert [line["id"] for line in manifest_lines(out)] == ["c0", "c1"]
    assert ("--columns audio=0,text=1,start=2,end=COLUMN" in caplog.text) == (name == "a start alone")


def test_times_that_are_no_span_are_rejected_with_their_lines(tmp_path: Path):
    out, times = tmp_path / "out", ["0,1", "2,1", "3,", "x,4", ",", "50,52", "5,6.3"]
    lines = [f"rec.wav,{span},{text}" for span, text in zip(times, [*TEXTS, "እሺ"], strict=True)]
    files = {"x.csv": ["path,start,end,text", *lines]}
    run_import(write_recording(tmp_path / "in", files), out, speaker="s")
    assert [line["duration"] for line in manifest_lines(out)] == [1.0, 1.0]
    assert rejected(out) == [("x.csv", line, "bad_time") for line in range(3, 8)]


@pytest.mark.parametrize(
    ("header", "starts", "ends", "problem"),
    [
        ("start,end", [100, 210], [200, 390], "2 of 2 .* seconds, 2 in milli.*=1,end_ms=2; .*,text=3$"),
        ("start,end", [900, 1000], [930, 1040], "seconds, milliseconds or samples.*--columns"),
        ("start_frame,end_frame", [1, 2], [3, 4], r"x\.csv: .*start_frame and end_frame.*--columns"),
        ("end,page", [3, 4], [1, 2], r"x\.csv: .*share recordings.*end .*--columns"),
        ("start_s,end_ms", [1, 2], [2000, 3000], r"x\.csv: .*one unit"),
        ("start,end", [0, 720_000, 1_520_000], [320_000, 1_040_000, 1_840_000], "samples"),
        ("start,dur", [0, 2, 4, 6], [1800] * 4, "0 of 4 .* seconds, 1 in.*start_ms=1,duration_ms=2"),
        ("start,end", FRAMES, FRAMES[1:] + FRAMES[:1], r"start and end may .*,start=1,end=2$"),
        ("x,segment", "abc", "def", r"line 2 and line 3 .*2 such rows.*text=3,start=COLUMN"),
        ("", [0, 3, 5], [1, 3, 6], r"line 1 and line 2 .*--columns audio=0,text=3,start=1,end=2"),
    ],
)
def test_times_that_cannot_be_decided_are_refused(
    tmp_path: Path, header: str, starts: list[int], ends: list[int], problem: str
):
    columns = ["rec.flac"] * len(starts), starts, ends, TEXTS[: len(starts)]
    content = table(f"path,{header},text" if header else "", *columns)
    folder = write(tmp_path / "in", {"x.csv": content})
    soundfile.write(folder / "rec.flac", np.zeros(400 * 8_000), 8_000)
    with pytest.raises(UserError, match=problem):
        run_import(folder, tmp_path / "out", speaker="s")


def test_rows_that_fit_one_unit_decide_for_the_others(tmp_path: Path):
    content = table("path,start,end,text", ["rec.flac"] * 2, [100, 200_000], [300, 201_500], TEXTS[:2])
    folder, out = write(tmp_path / "in", {"x.csv": content}), tmp_path / "out"
    soundfile.write(folder / "rec.flac", np.zeros(400 * 8_000), 8_000)
    run_import(folder, out, speaker="s")
    assert [line["duration"] for line in manifest_lines(out)] == [0.2, 1.5]


@pytest.mark.parametrize(
    ("header", "written", "is_named"),
    [
        ("duration", "0.98 1.0 4.0", True),
        ("Duration (ms)", "1000 1010 4000", True),
        ("length", "12 15 31", False),  # of the texts, in letters
        ("duration", "- - -", False),
    ],
)
def test_durations_of_a_table_are_compared_with_the_recordings(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, header: str, written: str, is_named: bool
):
    names = ["a.wav", "b.wav", "c.wav"]
    for name in names:
        write_tone(tmp_path / "source" / name, duration_s=1.0)
    content = table(f"audio,text,speaker,{header}", names, TEXTS[:3], ["a"] * 3, written.split())
    (tmp_path / "source/metadata.csv").write_text(content, encoding="utf-8")
    run_import(tmp_path / "source", tmp_path / "out")
    assert [line["duration"] for line in manifest_lines(tmp_path / "out")] == [1, 1, 1]
    found = [record.getMessage() for record in caplog.records if "wrong duration" in record.getMessage()]
    assert [("c.wav" in text, "by up to 3.00 s" in text) for text in found] == [(True, True)] * is_named
