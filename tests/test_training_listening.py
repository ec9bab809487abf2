"""Tests of indextts/training/listening.py: what is heard, and a training that stays the same."""

import json
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import soundfile
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from indextts.commands.terminal import parse
from indextts.commands.train import Train
from indextts.data.manifest import read_pairs, write_pairs
from indextts.projects.project import Project
from indextts.runs.directory import verify_checkpoint
from indextts.speech.evaluation.judge import Judgement
from indextts.speech.evaluation.report import Clip
from indextts.speech.synthesis.renderer import Segment
from indextts.speech.synthesis.segments import generate_segments
from indextts.training import listening
from indextts.training import run as run_module
from indextts.training.listening import choose_pairs, fault_of, read_sentences
from indextts.training.run import load_inputs
from indextts.webui.monitor.tab import sample_folders, samples_html
from tests.run_checks import differences, metrics_lines
from tests.speaking_run import make_speaking_project, trainer_flags
from tests.tiny_run import make_tiny_run
from trainers.train_gpt_v2 import main

FLAGS = {"max_steps": 6, "val_interval": 2, "save_interval": 6, "listen_interval": 0}
LISTENING = {**FLAGS, "listen_interval": 4, "listen_share": 1, "listen_sentences": 4}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return make_speaking_project(tmp_path_factory.mktemp("listening"))


@pytest.fixture(scope="module")
def spoken(project: Project) -> Path:
    """A run that listens at the validation of step 4 and at its end, and not at that of step 2."""
    output = project.root / "spoken"
    assert main(trainer_flags(project, output_dir=output, **LISTENING)) == 0
    return output


@pytest.fixture(scope="module")
def silent(project: Project) -> Path:
    output = project.root / "silent"
    assert main(trainer_flags(project, output_dir=output, **FLAGS)) == 0
    return output


def lines(folder: Path, name: str = "spoken.jsonl") -> list[dict]:
    return [json.loads(line) for line in (folder / name).read_text("utf-8").splitlines()]


def heard_steps(run: Path) -> list[int]:
    return [line["step"] for line in metrics_lines(run) if line["kind"] == "listen"]


def trained(run: Path) -> dict[str, Any]:
    content = torch.load(run / "latest.pth", weights_only=True)
    return {name: content[name] for name in ("model", "optimizer", "averaged")}


def test_listening_does_not_change_the_training(spoken: Path, silent: Path):
    assert not (silent / "samples").exists()
    assert list(differences(trained(spoken), trained(silent))) == []


@pytest.mark.long
def test_a_lora_run_in_float16_speaks_in_float32_and_keeps_its_frozen_matrices(project: Project, monkeypatch):
    monkeypatch.setattr(run_module, "autocast_dtype", lambda *_: torch.float16)
    runs = [project.root / name for name in ("half", "silent_half")]
    for run, flags in zip(runs, (LISTENING, FLAGS), strict=True):
        assert main(trainer_flags(project, output_dir=run, **flags, lora_rank=4, ema_decay=0.9)) == 0
    assert heard_steps(runs[0]) == [4, 6]
    assert list(differences(*map(trained, runs))) == []


def test_the_same_held_out_sentences_are_heard_with_their_numbers_and_sounds(project: Project, spoken: Path):
    folders = sample_folders(spoken)
    assert [folder.name for folder in folders] == ["part1_step4", "part1_step6"]
    clips = [lines(folder, "clips.jsonl") for folder in folders]
    validation = {pair.target_text for pair in read_pairs(project.pairs("val"))}
    assert [clip["text"] for clip in clips[0]] == [clip["text"] for clip in clips[1]]
    assert {clip["text"] for clip in clips[0]} <= validation
    assert (len(clips[0]), len(lines(folders[0]))) == (4, 3)
    for folder in folders:
        for record in lines(folder):
            assert record["file"] is None or soundfile.info(folder / record["file"]).samplerate == 24_000
    [four, six] = [line for line in metrics_lines(spoken) if line["kind"] == "listen"]
    assert four.keys() >= {"score", "length_ratio", "no_stop", "loops", "silent", "seconds", "time_share"}
    assert (four["step"], six["step"]) == (4, 6)
    best = min((four, six), key=lambda line: line["score"])
    meta = verify_checkpoint(spoken / "best_heard.pth")
    assert (meta.step, meta.heard_score) == (best["step"], best["score"])

    [events] = (spoken / "logs").iterdir()
    board = EventAccumulator(str(events))
    board.Reload()
    assert [event.step for event in board.Scalars("listen/score")] == [4, 6]
    sounds = [r for folder in folders for r in lines(folder) if r["file"]]
    assert sum(len(board.Audio(tag)) for tag in board.Tags()["audio"]) == len(sounds) > 0
    recording = {clips[0][0]["text"]: folders[0] / "001.wav"}  # each sentence has its recording beside it
    assert samples_html(folders, recording).count("<audio") == len(sounds) + 1


def test_a_stop_gives_the_listening_up_and_the_resumed_run_does_it(
    project: Project, spoken: Path, monkeypatch: pytest.MonkeyPatch
):
    def say_after_a_signal(*given: Any) -> list[tuple[Segment, ...]]:
        signal.raise_signal(signal.SIGTERM)
        return generate_segments(*given)

    output = project.root / "stopped"
    with monkeypatch.context() as context:
        context.setattr(listening, "generate_segments", say_after_a_signal)
        assert main(trainer_flags(project, output_dir=output, **LISTENING)) == 143
    assert (heard_steps(output), sample_folders(output)) == ([], [])
    assert main(trainer_flags(project, output_dir=output, resume="auto", **LISTENING)) == 0
    assert heard_steps(output) == [4, 6]
    assert list(differences(trained(spoken), trained(output))) == []
    best = [verify_checkpoint(run / "best_heard.pth") for run in (spoken, output)]
    assert best[0].heard_score == best[1].heard_score


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("CUDA out of memory"), OSError(28, "No space left")]
)
def test_without_memory_or_disk_space_nothing_is_judged_and_the_training_continues(
    project: Project, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
):
    def fail(*_: Any) -> list[tuple[Segment, ...]]:
        raise error

    monkeypatch.setattr(listening, "generate_segments", fail)
    output = project.root / type(error).__name__
    assert main(trainer_flags(project, output_dir=output, **LISTENING)) == 0
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert [
        step for step in (2, 4, 6) if any(f"step {step} was not judged" in text for text in warnings)
    ] == [4, 6]
    assert not (output / "best_heard.pth").exists()


def test_a_listening_that_would_take_more_than_its_share_of_the_time_is_skipped_and_logged(
    project: Project, silent: Path, caplog: pytest.LogCaptureFixture
):
    caplog.set_level("INFO")
    output = project.root / "skipped"
    assert main(trainer_flags(project, output_dir=output, **{**LISTENING, "listen_share": 0.05})) == 0
    assert heard_steps(output) == []
    assert "No listening at step 4" in caplog.text
    assert list(differences(trained(output), trained(silent))) == []


def test_where_the_loss_improves_and_the_speech_collapses_the_best_heard_is_another_one(
    project: Project, monkeypatch: pytest.MonkeyPatch
):
    """The model says what was recorded; from step 6 on, it repeats the same code."""
    output = project.root / "collapsed"
    flags = {**LISTENING, "listen_interval": 2, "learning_rate": 1e-3, "warmup_steps": 1, "max_steps": 8}
    argv = trainer_flags(project, output_dir=output, **flags)
    inputs = load_inputs(parse(Train, argv))
    codes = {
        sample.id: sample.codes for sample in (inputs.val_set[index] for index in range(len(inputs.val_set)))
    }
    recorded = [codes[sentence.pair.id] for sentence in read_sentences(inputs, 4)]

    def say(trained: Any, *given: Any) -> list[tuple[Segment, ...]]:
        said = recorded if trained.step < 6 else [torch.zeros(150, dtype=torch.int64)] * 4
        return [
            tuple(replace(each, codes=codes, has_stopped=True) for each in segments)
            for segments, codes in zip(generate_segments(trained, *given), said, strict=True)
        ]

    monkeypatch.setattr(listening, "generate_segments", say)
    assert main(argv) == 0
    scores = {line["step"]: line["score"] for line in metrics_lines(output) if line["kind"] == "listen"}
    assert max(scores[2], scores[4]) < scores[6] == scores[8] == 1
    losses = {line["step"]: line["mel_loss"] for line in metrics_lines(output) if line["kind"] == "val"}
    assert verify_checkpoint(output / "best.pth").step == min(losses, key=lambda step: losses[step]) == 8
    assert verify_checkpoint(output / "best_heard.pth").step in (2, 4)


def test_codes_without_a_synthesizer_are_judged_by_themselves(tmp_path: Path):
    run = make_tiny_run(tmp_path / "tiny")
    assert run.train(max_steps=2, listen_interval=1, listen_share=1, listen_sentences=3) == 0
    assert "[Warn] Listening judges only" in run.log
    assert heard_steps(run.output) == [1, 2] or heard_steps(run.output) == [2]
    assert not list((run.output / "samples").glob("*/*.wav"))


@pytest.mark.long
@pytest.mark.slow
def test_published_codes_are_heard_and_without_the_vocoder_only_their_codes_are_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(listening, "MAX_LENGTH_RATIO", 0)  # one second, so that a CPU is soon done
    monkeypatch.setattr(listening, "CAMPPLUS", "absent")  # that of the project has another size
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    published = make_speaking_project(tmp_path, published=True)
    heard, mute = published.root / "heard", published.root / "mute"
    assert main(trainer_flags(published, output_dir=heard, **LISTENING)) == 0
    sounds = list((heard / "samples").glob("*/*.wav"))
    assert {soundfile.info(path).samplerate for path in sounds} == {22_050}
    (published.config.parent / "bigvgan/bigvgan_generator.pt").unlink()
    assert main(trainer_flags(published, output_dir=mute, **LISTENING)) == 0
    assert "bigvgan_generator.pt" in caplog.text
    assert heard_steps(heard) == heard_steps(mute) == [4, 6]
    assert not list((mute / "samples").glob("*/*.wav"))
    assert list(differences(trained(heard), trained(mute))) == []


def clip(
    duration_s: float = 2.0, *, likeness: float | None = None, silent: bool = False, **more: Any
) -> Clip:
    judgement = Judgement(duration_s, {}, {}, likeness, silent)
    facts = {"has_stopped": True, "is_loop": False, **more}
    return Clip("a", "ሰላም", 3, recorded_s=2.0, prompt_id="b", judgement=judgement, **facts)


def test_clips_that_loop_are_silent_or_do_not_stop_are_the_worst_and_length_and_voice_decide_among_others():
    good, alike, other = clip(2.1), clip(2.1, likeness=0.9), clip(2.1, likeness=0.2)
    bad = [clip(is_loop=True), clip(silent=True), clip(has_stopped=False), clip(9.0), clip(0.0, silent=True)]
    assert [fault_of(each) for each in bad] == [1.0] * 5
    assert fault_of(clip()) == 0 < fault_of(good) < fault_of(clip(3.0)) < 1
    assert fault_of(good) < fault_of(alike) < fault_of(other) < 1


def test_questions_numbers_names_short_and_long_sentences_come_first(tmp_path: Path):
    run = make_tiny_run(tmp_path / "tiny")
    val = run.folder / "val_pairs.jsonl"
    texts = ["ሰላም ነው", "ስንት ነው?", "5 ሰዓት", "ወደ Addis ሄደ"]
    pairs = [replace(pair, target_text=text) for pair, text in zip(read_pairs(val) * 4, texts, strict=False)]
    write_pairs(val, [replace(pair, id=f"{number}") for number, pair in enumerate(pairs)])
    inputs = load_inputs(parse(Train, run.flags()))
    chosen = choose_pairs(inputs.val_set, inputs.tokenizer.options)
    assert {inputs.val_set.pairs[index].target_text for index in chosen[:4]} == set(texts)
