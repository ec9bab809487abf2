"""Tests of indextts/training/published_samples.py and speech/synthesis/pending.py: rendering in a process."""

import re
from pathlib import Path

import pytest
import soundfile
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from indextts.projects.project import Project
from indextts.speech.synthesis.pending import pending_folders
from indextts.training import published_samples
from indextts.training.published_samples import PublishedSamples
from indextts.webui.monitor.tab import sample_folders, samples_html
from tests.speaking_run import make_speaking_project, trainer_flags
from tests.test_training_samples import digests, lines
from trainers.train_gpt_v2 import main

FLAGS = {"max_steps": 4, "val_interval": 2, "save_interval": 4}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return make_speaking_project(tmp_path_factory.mktemp("samples"), published=True)


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(published_samples, "MAX_LENGTH_RATIO", 0)  # one second, so that a CPU is soon done


def heard_in(run: Path) -> list[Path]:
    return [path for folder in sample_folders(run) for path in sorted(folder.glob("*.wav"))]


@pytest.mark.long
@pytest.mark.slow
def test_the_sound_is_rendered_during_training_and_does_not_change_it(project: Project):
    silent, spoken = project.root / "silent", project.root / "spoken"
    assert main(trainer_flags(project, output_dir=silent, **FLAGS)) == 0
    assert main(trainer_flags(project, output_dir=spoken, sample_interval=4, **FLAGS)) == 0
    models = [torch.load(run / "latest.pth", weights_only=True) for run in (silent, spoken)]
    for part in ("model", "optimizer"):
        first, second = (str(digests(model[part])) for model in models)
        assert first == second

    folders = sample_folders(spoken)
    assert [folder.name for folder in folders] == ["part1_step0", "part1_step4"]
    assert pending_folders(spoken / "samples") == []
    for folder in folders:
        assert [record["backend"] for record in lines(folder)] == ["indextts2"] * 3
    assert {soundfile.info(path).samplerate for path in heard_in(spoken)} == {22_050}
    [events] = (spoken / "logs").iterdir()
    board = EventAccumulator(str(events))
    board.Reload()
    sounds = [event for tag in board.Tags()["audio"] for event in board.Audio(tag)]
    assert len(sounds) == len(heard_in(spoken)) > 0
    assert {event.step for event in sounds} == {0, 4}
    assert samples_html(folders).count("<audio") == len(sounds)


@pytest.mark.long
@pytest.mark.slow
def test_a_stop_leaves_the_codes_and_the_resume_renders_them(
    project: Project, monkeypatch: pytest.MonkeyPatch
):
    run = project.root / "stopped"
    flags = {"output_dir": run, "sample_interval": 4, "max_steps": 3, "val_interval": 2, "save_interval": 2}
    with monkeypatch.context() as context:  # a process that is too slow for this training
        context.setattr(PublishedSamples, "_ensure_running", lambda self: False)
        assert main(trainer_flags(project, **flags)) == 0
    [folder] = pending_folders(run / "samples")
    assert sample_folders(run) == []
    assert main(trainer_flags(project, **flags, resume="auto")) == 0
    assert sample_folders(run) == [folder]
    assert pending_folders(run / "samples") == []


def test_a_missing_vocoder_is_logged_at_the_start_and_the_training_continues(
    project: Project, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    run, vocoder = project.root / "mute", project.config.parent / "bigvgan/bigvgan_generator.pt"
    aside = vocoder.rename(tmp_path / "vocoder.pt")
    try:
        assert main(trainer_flags(project, output_dir=run, sample_interval=2, **FLAGS)) == 0
    finally:
        aside.rename(vocoder)
    assert re.search(r"--sample-interval.*bigvgan_generator\.pt", caplog.text)
    assert not (run / "samples").exists()
