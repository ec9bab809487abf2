import io
import json
import random
from pathlib import Path

import pytest

from indextts.runs.directory import read_metrics
from indextts.webui import metrics_reader
from indextts.webui.metrics_reader import MAX_LINES, MetricsReader
from tests.metrics_lines import point, start, write
from tests.running_jobs import bytes_read_so_far


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "metrics.jsonl"


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
    monkeypatch.setattr(metrics_reader, "MAX_LINES", 40)
    write(file, [start(0)])
    write(file, [point(step, kind=kind) for step in range(1, 41) for kind in ("train", "val")])
    kept = [(line["kind"], line["step"]) for line in MetricsReader(file).read()]
    assert len(kept) == 41
    assert kept[0] == ("start", 0)
    assert kept[-2:] == [("train", 40), ("val", 40)]
