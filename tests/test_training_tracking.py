"""Tests of indextts/training/tracking.py with the real packages: Trackio local, Weights & Biases offline."""

import json
import logging
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from indextts.training.tracking import Tracker, start_tracker
from tests.killed_program import kill_when
from tests.tiny_run import TinyRun


def train_in_three_processes(tiny: TinyRun, tracker: str) -> list[dict[str, Any]]:
    """Train to step 4, to a kill at the save of step 8, and from there to step 12.

    Returns:
        The [Train] and [Val] lines of the first and the last process, because a kill may lose some.
    """
    flags: dict[str, Any] = {"tracker": tracker, "save_interval": 4}
    assert tiny.train(**flags, max_steps=4) == 0
    first = measured_lines(tiny)
    kill_when("'model_step8.' in str(_)", "trainers.train_gpt_v2", tiny.flags(resume="auto", max_steps=12))
    num_before = len((tiny.output / "metrics.jsonl").read_text().splitlines())
    assert tiny.train(resume="auto", max_steps=12) == 0
    return first + measured_lines(tiny, after=num_before)


def measured_lines(tiny: TinyRun, after: int = 0) -> list[dict[str, Any]]:
    lines = (tiny.output / "metrics.jsonl").read_text(encoding="utf-8").splitlines()[after:]
    return [line for line in map(json.loads, lines) if line["kind"] in ("train", "val")]


def as_tracked(line: dict[str, Any]) -> dict[str, float]:
    """Return the numbers of a line of metrics.jsonl under the names of TensorBoard."""
    others = ("kind", "part", "step", "epoch", "time")
    return {f"{line['kind']}/{name}": value for name, value in line.items() if name not in others}


@pytest.mark.long
@pytest.mark.slow
def test_a_resumed_run_is_one_run_of_trackio(tiny: TinyRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))  # before the first import, which reads it
    pytest.importorskip("trackio", reason="needs the extra trackers")
    from trackio import Api
    from trackio.sqlite_storage import SQLiteStorage

    lines = train_in_three_processes(tiny, "trackio")
    name = json.loads((tiny.output / "tracker.json").read_text())["name"]
    (run,) = Api().runs("indextts2")
    assert (run.name, run.config["learning_rate"]) == (name, 0.01)
    assert "tokenizer" not in run.config  # paths stay on this machine
    logged = [
        {key: value for key, value in entry.items() if key == "step" or "/" in key}
        for entry in SQLiteStorage.get_logs("indextts2", name)
    ]
    assert [line["step"] for line in lines if line["kind"] == "train"] == [2, 4, 8, 10, 12]
    for line in lines:
        assert {"step": line["step"], **as_tracked(line)} in logged


@pytest.mark.parametrize("tracker", ["trackio", "wandb"])
def test_a_missing_package_is_refused_with_the_line_that_installs_it(
    tiny: TinyRun, monkeypatch: pytest.MonkeyPatch, tracker: str
):
    monkeypatch.setitem(sys.modules, tracker, None)
    assert tiny.train(tracker=tracker) == 2
    assert f"--tracker {tracker}" in tiny.log
    assert "pip install -e '.[trackers]'" in tiny.log


def test_each_part_of_a_run_is_tracked_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    opened = []

    class Client(ModuleType):
        finish = None

        def init(self, **arguments: Any) -> SimpleNamespace:
            opened.append(arguments["name"])
            return SimpleNamespace(log=None)

    monkeypatch.setitem(sys.modules, "trackio", Client("trackio"))
    for part in (1, 2, 1):
        start_tracker("trackio", tmp_path, part, {})
    assert opened == [opened[0], f"{opened[0]}-part2", opened[0]]


def test_training_continues_without_a_tracker_that_fails(caplog: pytest.LogCaptureFixture):
    calls = []

    def fail(numbers: dict[str, Any], step: int) -> None:
        calls.append(step)
        raise ConnectionError("no route")

    tracker = Tracker("wandb", fail, lambda: calls.append(-1))
    tracker.log("train", 2, {"mel_loss": 1.0, "grad_norm": None})
    tracker.log("train", 4, {"mel_loss": 1.0})
    tracker.close()
    assert calls == [2]
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "no route" in record.getMessage()
