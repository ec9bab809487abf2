import asyncio
import io
import json
import math
import random
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gradio as gr
import pytest

from indextts.project import Project
from indextts.run_dir import read_metrics
from indextts.webui import charts
from indextts.webui.charts import (
    MAX_LINES,
    MAX_POINTS,
    MetricsReader,
    MetricsReaders,
    curves,
    decimate,
    for_plot,
    loss_frame,
    progress,
    resumes,
)
from indextts.webui.tabs import monitor


def start(step: int, *, part: int = 1, time: float = 0.0, total_steps: int = 1_000) -> dict[str, Any]:
    return {
        "kind": "start",
        "part": part,
        "step": step,
        "epoch": 0,
        "total_steps": total_steps,
        "time": time,
    }


def point(step: int, loss: float | None = 1.0, *, kind: str = "train", part: int = 1, time: float = 0.0):
    line = {"kind": kind, "part": part, "step": step, "epoch": 2, "text_loss": loss, "mel_loss": loss}
    rates = {"lr": 1e-4, "tokens_per_second": 1480.4} if kind == "train" else {}
    return {**line, "mel_top1": 0.5, **rates, "time": time}


def write(path: Path, lines: list[dict[str, Any]]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "metrics.jsonl"


def random_writing(rng: random.Random) -> bytes:
    """What processes write that are killed in mid-line, and that replay steps or begin a new part."""
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


@pytest.mark.parametrize("seed", range(40))
def test_the_reader_returns_what_read_metrics_returns_wherever_the_writing_stands(file: Path, seed: int):
    rng = random.Random(seed)
    content, reader = random_writing(rng), MetricsReader(file)
    cuts = sorted({rng.randint(0, len(content)) for _ in range(8)} | {len(content)})
    for cut in cuts:
        file.write_bytes(content[:cut])
        assert reader.read() == read_metrics(file)


def test_a_replaced_a_cut_and_a_removed_file_are_read_anew(file: Path):
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
    assert (reader.read(), reader.version()) == ([], "absent")


def test_a_line_without_end_is_passed_over_in_pieces(file: Path, monkeypatch):
    monkeypatch.setattr(charts, "BLOCK_BYTES", 1_000)
    file.write_bytes(b"x" * 4_500 + b"\n")
    write(file, [point(1)])
    assert MetricsReader(file).read() == [point(1)]


class CountingFile(io.FileIO):
    """A file that counts the bytes taken from the disk."""

    num_bytes = 0

    def readinto(self, buffer: Any) -> int:
        count = super().readinto(buffer) or 0
        CountingFile.num_bytes += count
        return count


class CountingPath(type(Path())):  # type: ignore[misc]
    def open(self, *_: Any, **__: Any) -> Any:
        return io.BufferedReader(CountingFile(str(self)))


def test_of_a_file_of_100_000_lines_only_the_new_bytes_are_read_and_memory_is_bounded(tmp_path: Path):
    file = CountingPath(tmp_path / "metrics.jsonl")
    lines = [point(step) for step in range(1, 100_001)]
    Path(file).write_text("".join(json.dumps(line) + "\n" for line in lines))
    reader = MetricsReader(file)
    kept = reader.read()
    assert MAX_LINES // 2 <= len(kept) <= MAX_LINES
    assert CountingFile.num_bytes > 10_000_000

    CountingFile.num_bytes = 0
    with Path(file).open("a") as appended:
        appended.write(json.dumps(point(100_001)) + "\n")
    assert reader.read()[-1]["step"] == 100_001
    assert CountingFile.num_bytes < 2 * io.DEFAULT_BUFFER_SIZE


def test_thinning_keeps_starts_and_the_newest_line_of_each_kind(file: Path, monkeypatch):
    monkeypatch.setattr(charts, "MAX_LINES", 40)
    write(file, [start(0)])
    write(file, [point(step, kind=kind) for step in range(1, 41) for kind in ("train", "val")])
    kept = [(line["kind"], line["step"]) for line in MetricsReader(file).read()]
    assert len(kept) == 41
    assert kept[0] == ("start", 0)
    assert kept[-2:] == [("train", 40), ("val", 40)]


def test_only_the_runs_looked_at_last_keep_a_reader(tmp_path: Path):
    readers = MetricsReaders()
    first = readers.of(tmp_path / "0")
    assert readers.of(tmp_path / "0") is first
    for number in range(1, charts.MAX_RUNS + 1):
        readers.of(tmp_path / str(number))
    assert readers.of(tmp_path / "0") is not first


def test_an_absent_file_gives_an_empty_frame_of_the_right_types(tmp_path: Path):
    frame = loss_frame(tmp_path, ("text_loss",))
    assert frame.empty
    assert [str(dtype) for dtype in frame.dtypes] == ["float64", "float64", "str"]


def test_curves_are_named_and_hold_no_gaps(tmp_path: Path, file: Path):
    write(file, [point(0, 3.0, kind="val"), point(1, 2.0), point(2, None), point(3, math.nan), point(4, 1.0)])
    with file.open("a") as appended:
        appended.write('{"kind": "train", "part": 1, "step": 5, "text_lo')
    frame = loss_frame(tmp_path, ("text_loss", "lr"))
    assert frame.values.tolist() == [
        [1.0, 2.0, "training text loss"],
        [4.0, 1.0, "training text loss"],
        [0.0, 3.0, "validation text loss"],
        *([float(step), 1e-4, "training learning rate"] for step in range(1, 5)),
    ]


def test_the_newest_part_is_drawn_and_older_ones_where_asked_for():
    lines = [point(1, 5.0), point(2, 4.0), point(1, 3.0, part=2)]
    assert curves(lines, ("mel_loss",)).values.tolist() == [[1.0, 3.0, "training mel loss"]]
    assert curves(lines, ("mel_loss",), all_parts=True).values.tolist() == [
        [1.0, 3.0, "training mel loss"],
        [1.0, 5.0, "training mel loss (part 1)"],
        [2.0, 4.0, "training mel loss (part 1)"],
    ]


def test_what_lies_after_the_step_of_a_resume_is_not_drawn_until_it_is_made_again():
    lines = [start(0), point(10), point(20), point(30, 9.0), start(20), point(25)]
    assert curves(lines, ("text_loss",))["step"].tolist() == [10.0, 20.0, 25.0]
    assert resumes(lines) == [20]
    assert resumes([*lines, start(10)]) == [10]
    assert resumes([*lines, start(0, part=2)]) == []
    assert resumes([]) == []


@pytest.mark.parametrize("count", [0, 1, 2, MAX_POINTS, MAX_POINTS + 1, 1_999, 100_000])
def test_decimation_keeps_both_ends_and_at_most_1_000_points(count: int):
    points = [(float(step), 2.0 * step) for step in range(count)]
    few = decimate(points)
    assert len(few) == min(count, MAX_POINTS)
    assert few[:1] == points[:1]
    assert few[-1:] == points[-1:]
    assert all(step < later for (step, _), (later, _) in pairwise(few))
    assert all(value == pytest.approx(2 * step) for step, value in few)


def test_a_plot_names_its_series_and_marks_resumes_with_gaps_between():
    frame = for_plot(curves([point(1, 1.0), point(2, 4.0)], ("text_loss",)), ["training text loss"], [2])
    assert frame["step"].tolist()[1:] == [1.0, 2.0, 2.0, 2.0, 2.0]
    assert frame["value"].tolist()[1:-1] == [1.0, 4.0, 1.0, 4.0]
    assert math.isnan(frame["value"].iloc[0])
    assert math.isnan(frame["value"].iloc[-1])
    assert frame["series"].unique().tolist() == ["training text loss", "resumed"]


def test_the_time_left_comes_from_the_steps_since_this_start(tmp_path: Path, file: Path):
    write(file, [start(0, time=0), point(100, time=10), point(110, time=11)])
    write(file, [start(100, time=5_000, total_steps=236), point(110, time=5_100), point(120, time=5_110)])
    now = progress(tmp_path, now=5_116)
    assert (now.step, now.total_steps, now.epoch, now.seconds_left) == (120, 236, 2, 110)
    assert str(now) == "step 120 of 236, epoch 2, 1,480 tokens/s, about 2 min left"


def test_before_there_is_a_pace_no_time_is_promised(tmp_path: Path, file: Path):
    assert str(progress(tmp_path, now=0)) == "no numbers yet; they come with the first steps of a training"
    write(file, [start(100, time=10), point(100, kind="val", time=12)])
    assert str(progress(tmp_path, now=13)) == "step 100 of 1,000, epoch 2"
    assert progress(tmp_path, now=13).text_loss is None


def test_a_silent_run_is_stale_and_an_ended_one_says_how(tmp_path: Path, file: Path):
    write(file, [start(0, time=0), point(10, time=10), point(20, time=20)])
    assert not progress(tmp_path, now=70).is_stale
    assert str(progress(tmp_path, now=320)).endswith("1,480 tokens/s, nothing new for 5 min")
    exit_file = tmp_path / "exit.json"
    exit_file.write_text(json.dumps({"status": 143, "reason": "stopped", "time": 21}))
    assert str(progress(tmp_path, now=320)).endswith("1,480 tokens/s, stopped")
    write(file, [start(20, time=300)])
    assert progress(tmp_path, now=320).ended is None


@pytest.fixture
def tab(tmp_path: Path) -> gr.Blocks:
    """The tab alone, with the project "one" in a folder of that name."""

    async def build() -> gr.Blocks:  # without a running loop Gradio makes its own and never closes it
        with gr.Blocks(analytics_enabled=False) as demo:
            project, timer = gr.Dropdown(["one"], value="one"), gr.Timer(1)
            page = SimpleNamespace(demo=demo, project=project, timer=timer)
            page.find_project = lambda name: Project(tmp_path / name)
            monitor.lay_out(page)
        return demo

    return asyncio.run(build())


def test_the_tab_keeps_no_connection_open_and_publishes_no_endpoint(tab: gr.Blocks):
    config = tab.get_config_file()
    assert config["connect_heartbeat"] is False
    assert config["dependencies"]
    for dependency in config["dependencies"]:
        assert dependency["api_visibility"] != "public"
        assert dependency["trigger_mode"] == "once"
        assert dependency["show_progress"] == "hidden"


def test_the_tab_draws_only_what_is_new(tab: gr.Blocks, tmp_path: Path):
    draw = next(function.fn for function in tab.fns.values())
    run_dir = tmp_path / "one/training_output"
    run_dir.mkdir(parents=True)
    write(run_dir / "metrics.jsonl", [point(1), start(1), point(2)])
    (run_dir / "exit.json").write_text('{"status": 0, "reason": "finished", "time": 1}')

    text, *frames, notes, version = draw("one", "", "")
    assert text == "step 2 of 1,000, epoch 2, 1,480 tokens/s, finished"
    assert notes == "Resumed at step 1."
    assert len(frames) == 4
    assert draw("one", text, version) == [gr.skip()] * 7
    write(run_dir / "metrics.jsonl", [point(3)])
    assert draw("one", text, version)[0].startswith("step 3")
