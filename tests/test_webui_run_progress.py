"""Tests of indextts/webui/run_progress.py: metrics and progress of a run, and of a job that writes a log."""

import io
import json
import random
from pathlib import Path

import pytest

from indextts.data import progress as counting
from indextts.runs.directory import read_metrics
from indextts.webui import run_progress
from indextts.webui.preprocess.tab import DOING
from indextts.webui.run_progress import MAX_LINES, MetricsReader, Progress, bar_of, progress_of
from tests.checkpoint_files import save
from tests.metrics_lines import point, start, write
from tests.running_jobs import bytes_read_so_far


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "metrics.jsonl"


def progress(run_dir: Path, now: float) -> Progress:
    return progress_of(MetricsReader(run_dir / "metrics.jsonl").read(), run_dir, now)


def test_the_time_left_comes_from_the_steps_since_this_start(tmp_path: Path, file: Path):
    write(file, [start(0, time=0), point(100, time=10), point(110, time=11)])
    write(file, [start(100, time=5_000, total_steps=236), point(110, time=5_100), point(120, time=5_110)])
    now = progress(tmp_path, now=5_116)
    assert (now.step, now.total_steps, now.seconds_left) == (120, 236, 110)
    assert (now.epoch, now.saved_step, now.tokens_per_second) == (3, None, 1480.4)


def test_the_saved_step_is_that_of_the_newest_complete_checkpoint_of_this_part(tmp_path: Path, file: Path):
    write(file, [start(0), point(230)])
    assert progress(tmp_path, now=0).saved_step is None
    save(tmp_path, 100, serial=1)
    save(tmp_path, 200, serial=2)
    (tmp_path / "model_step230.pth").write_bytes(b"")  # being written
    now = progress(tmp_path, now=0)
    assert (now.step, now.saved_step) == (230, 200)
    assert "200" in now.saved_text
    write(file, [start(0, part=2), point(10, part=2)])
    assert progress(tmp_path, now=0).saved_step is None


def test_a_silent_run_is_stale_and_an_ended_run_shows_its_outcome(tmp_path: Path, file: Path):
    write(file, [start(0, time=0), point(10, time=10), point(20, time=20)])
    assert not progress(tmp_path, now=70).is_stale
    now = progress(tmp_path, now=320)
    assert (now.is_stale, now.silent_s, now.ended) == (True, 300, None)
    exit_file = tmp_path / "exit.json"
    exit_file.write_text(json.dumps({"status": 143, "reason": "stopped", "time": 21}))
    now = progress(tmp_path, now=320)
    assert (now.is_stale, now.seconds_left, now.ended) == (False, None, "stopped")
    write(file, [start(20, time=300)])
    assert progress(tmp_path, now=320).ended is None


@pytest.mark.parametrize("half", ["", "{", '{"reason": "finished"}', "[]", '{"time": "x", "reason": 1}'])
def test_a_truncated_exit_file_does_not_end_a_run(tmp_path: Path, file: Path, half: str):
    write(file, [start(0, time=0), point(10, time=10)])
    (tmp_path / "exit.json").write_text(half)
    assert progress(tmp_path, now=11).ended is None


def test_the_bar_counts_the_clips_of_the_current_activity(monkeypatch, caplog):
    monkeypatch.setattr(counting, "SECONDS_BETWEEN_LINES", 0.0)
    caplog.set_level("INFO")
    lines = []
    for activity, done, total in (("Checking recordings", 2, 3), ("Encoding", 450, 900)):
        counter = counting.Progress(activity, total, 2.0 * total)
        for _ in range(done):
            counter.advance(2.0)
        lines.append(f"[Info] {caplog.messages[-1]}")
    assert ">Checking recordings: 2 of 3 clips, " in bar_of(lines[0], DOING)
    html = bar_of("\n".join([*lines, "[Info] Other: 1/2 clips, fast"]), DOING)
    assert 'aria-valuenow="50"' in html
    assert ">Encoding: 450 of 900 clips, " in html
    assert bar_of("", DOING) == ""
    assert "<b>" not in bar_of("Encoding: 1/2 clips, <b>", DOING)


def random_writing(rng: random.Random) -> bytes:
    """Output of processes that are killed within a line, replay steps, or begin a new part."""
    content, part = b"", 1
    for _ in range(rng.randint(1, 5)):
        step = rng.randrange(20)
        part += rng.random() < 0.3
        lines = [start(step, part=part)]
        for later in range(step + 1, step + rng.randint(1, 15)):
            lines += [point(later, rng.random(), part=part), point(later, None, kind="val", part=part)]
        text = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
        content += text[: rng.randint(1, len(text))]
        if not content.endswith(b"\n"):
            content += b"\n"
    return content[: rng.randint(1, len(content))]


@pytest.mark.parametrize("seed", range(10))
def test_the_reader_matches_read_metrics_during_writing(file: Path, seed: int):
    rng = random.Random(seed)
    content, reader = random_writing(rng), MetricsReader(file)
    cuts = sorted({rng.randint(0, len(content)) for _ in range(8)} | {len(content)})
    for cut in cuts:
        file.write_bytes(content[:cut])
        assert reader.read() == read_metrics(file)


def test_a_replaced_truncated_or_removed_file_is_read_again(file: Path):
    reader = MetricsReader(file)
    assert reader.read() == []
    write(file, [point(step) for step in range(1, 9)])
    assert len(reader.read()) == 8
    file.write_bytes(b"")
    assert reader.read() == []
    write(file, [point(step, 2.0) for step in range(1, 20)])  # same inode, now longer than it was
    assert reader.read() == read_metrics(file)
    other = file.with_name("other")
    write(other, [point(step, 3.0) for step in range(1, 30)])
    other.replace(file)
    assert reader.read() == read_metrics(file)
    file.unlink()
    assert reader.read() == []


def test_of_100_000_lines_only_new_bytes_are_read_and_memory_is_bounded(file: Path):
    write(file, [point(step) for step in range(1, 100_001)])
    reader = MetricsReader(file)
    assert MAX_LINES // 2 <= len(reader.read()) <= MAX_LINES
    write(file, [point(100_001)])
    before = bytes_read_so_far()
    assert reader.read()[-1]["step"] == 100_001
    assert bytes_read_so_far() - before < 3 * io.DEFAULT_BUFFER_SIZE


def test_thinning_keeps_starts_and_the_newest_line_of_each_kind(file: Path, monkeypatch):
    monkeypatch.setattr(run_progress, "MAX_LINES", 40)
    write(file, [start(0)])
    write(file, [point(step, kind=kind) for step in range(1, 41) for kind in ("train", "val")])
    kept = [(line["kind"], line["step"]) for line in MetricsReader(file).read()]
    assert len(kept) == 41
    assert kept[0] == ("start", 0)
    assert kept[-2:] == [("train", 40), ("val", 40)]
