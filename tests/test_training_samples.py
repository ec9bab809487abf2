"""Tests of indextts/training/samples.py: samples do not change training."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest
import soundfile
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from indextts.projects.project import Project
from indextts.speech.synthesis.renderer import Segment
from indextts.speech.synthesis.segments import generate_segments
from indextts.training import run as run_module
from indextts.training import samples
from indextts.webui.monitor.tab import sample_folders, samples_html
from tests.speaking_run import make_speaking_project, trainer_flags
from tests.tiny_run import make_tiny_run
from trainers.train_gpt_v2 import main

FLAGS = {"max_steps": 6, "val_interval": 2, "save_interval": 6}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return make_speaking_project(tmp_path_factory.mktemp("samples"))


@pytest.fixture(scope="module")
def spoken(project: Project) -> Path:
    """A run that speaks at the validations of steps 0 and 4, and not at those of 2 and 6."""
    output = project.root / "spoken"
    assert main(trainer_flags(project, output_dir=output, sample_interval=4, **FLAGS)) == 0
    return output


@pytest.mark.long
def test_a_lora_run_in_float16_speaks_in_float32_and_keeps_its_frozen_matrices(
    project: Project, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(run_module, "autocast_dtype", lambda *_: torch.float16)
    finals = []
    for name, interval in (("half", 2), ("silent_half", 0)):
        output = project.root / name
        changes = {"sample_interval": interval, "max_steps": 4, "val_interval": 2, "lora_rank": 4}
        assert main(trainer_flags(project, output_dir=output, **changes)) == 0
        finals.append(torch.load(output / "latest.pth", weights_only=True)["model"])
    assert [folder.name for folder in sample_folders(project.root / "half")][:2] == [
        "part1_step0",
        "part1_step2",
    ]
    assert digests(finals[0]) == digests(finals[1])


def lines(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "spoken.jsonl").read_text("utf-8").splitlines()]


def test_samples_do_not_change_the_trained_weights(project: Project, spoken: Path):
    silent = project.root / "silent"
    assert main(trainer_flags(project, output_dir=silent, **FLAGS)) == 0
    assert not (silent / "samples").exists()
    models = [torch.load(run / "latest.pth", weights_only=True) for run in (spoken, silent)]
    for part in ("model", "optimizer"):
        first, second = (str(digests(model[part])) for model in models)
        assert first == second


def digests(value: object) -> object:
    if isinstance(value, torch.Tensor):
        return value.double().sum().item(), value.double().square().sum().item()
    if isinstance(value, dict):
        return {key: digests(item) for key, item in value.items()}
    return [digests(item) for item in value] if isinstance(value, list) else value


def test_the_same_sentences_are_synthesized_at_each_interval(project: Project, spoken: Path):
    first, second = folders = sample_folders(spoken)
    assert [folder.name for folder in folders] == ["part1_step0", "part1_step4"]
    assert [r["text"] for r in lines(first)] == [r["text"] for r in lines(second)]
    validation = {
        json.loads(line)["target_text"] for line in project.pairs("val").read_text("utf-8").splitlines()
    }
    assert {record["text"] for record in lines(first)} <= validation
    assert len(lines(first)) == 3
    for folder in folders:
        for record in lines(folder):
            assert record["file"] is None or soundfile.info(folder / record["file"]).samplerate == 24_000
    assert (lines(second)[0]["step"], lines(second)[0]["part"]) == (4, 1)


def test_samples_are_in_tensorboard_and_on_the_page(spoken: Path):
    [events] = (spoken / "logs").iterdir()
    board = EventAccumulator(str(events))
    board.Reload()
    heard = [r for folder in sample_folders(spoken) for r in lines(folder) if r["file"]]
    assert sum(len(board.Audio(tag)) for tag in board.Tags()["audio"]) == len(heard) > 0
    shown = samples_html(sample_folders(spoken))
    assert shown.count("<audio") == len(heard)
    assert "Step 4, " in shown


def test_a_stop_does_not_wait_for_the_samples(
    project: Project, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    caplog.set_level("INFO")

    def say_after_a_signal(*given: Any) -> list[tuple[Segment, ...]]:
        signal.raise_signal(signal.SIGTERM)
        return generate_segments(*given)

    monkeypatch.setattr(samples, "generate_segments", say_after_a_signal)
    output = project.root / "stopped"
    assert main(trainer_flags(project, output_dir=output, sample_interval=4, **FLAGS)) == 143
    assert "samples of step 0" in caplog.text
    assert sample_folders(output) == []


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("CUDA out of memory"), OSError(28, "No space left")]
)
def test_samples_without_memory_or_disk_space_are_left_out_and_the_training_continues(
    project: Project, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
):
    def fail(*_: Any) -> list[tuple[Segment, ...]]:
        raise error

    monkeypatch.setattr(samples, "generate_segments", fail)
    output = project.root / type(error).__name__
    assert main(trainer_flags(project, output_dir=output, sample_interval=4, **FLAGS)) == 0
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert [step for step in (0, 2, 4, 6) if any(f"samples of step {step}" in text for text in warnings)] == [
        0,
        4,
    ]


def test_codes_without_a_synthesizer_are_logged_and_the_training_continues(tmp_path: Path):
    run = make_tiny_run(tmp_path / "tiny")
    assert run.train(max_steps=2, sample_interval=1) == 0
    assert "[Warn] --sample-interval is ignored" in run.log
    assert not (run.output / "samples").exists()
