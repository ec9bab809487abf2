"""Tests of the proof of a set-up: its answers, and planted faults that each turn its verdict."""

import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import soundfile

from indextts.commands.app import MakeBaseCheckpoint, ProveSetup, RunPipeline
from indextts.commands.base import Command
from indextts.commands.normalizer_options import DEFAULT_OPTIONS
from indextts.commands.terminal import to_argv
from indextts.data.manifest import Utterance, read_pairs, read_utterances, write_pairs, write_utterances
from indextts.projects.project import Project, read_settings
from indextts.projects.proof import NAME, check_lengths, check_losses, check_speech
from indextts.projects.stages import plan_stage
from indextts.system.json_lines import read_json_lines
from tests.conftest import REPOSITORY

DEMO = REPOSITORY / "demo"


def row(cer: float | None, length: float = 1.0, no_stop: float = 0.0) -> dict[str, Any]:
    cer_of = {} if cer is None else {"asr": cer}
    return {"cer": cer_of, "length_ratio": length, "no_stop": no_stop, "loops": 0.0, "silent": 0.0}


@pytest.mark.parametrize(
    ("rows", "bad"),
    [
        ([row(0.05), row(0.98), row(0.2)], []),
        ([row(0.05), row(0.06), row(0.07)], []),  # the base speaks the language
        ([row(0.05), row(0.98), row(0.6)], ["spoken"]),
        ([row(0.05), row(0.4), row(0.4)], ["spoken"]),
        ([row(0.9), row(0.98), row(0.2)], ["heard"]),
        ([row(0.05), row(0.98), row(0.2, length=1.5)], ["length"]),
        ([row(0.05), row(0.98), row(0.9, no_stop=0.5)], ["failures", "spoken"]),
        ([row(None), row(None), row(None)], []),
    ],
)
def test_the_speech_is_judged_by_errors_length_and_failures(rows: list[dict[str, Any]], bad: list[str]):
    assert [check.name for check in check_speech(rows) if not check.is_good] == bad


@pytest.mark.parametrize(
    ("base", "last", "bad"), [(4.2, 0.9, []), (6.2, 0.9, ["base"]), (4.2, 3.5, ["loss"])]
)
def test_losses_show_whether_base_and_training_know_the_codes(base: float, last: float, bad: list[str]):
    assert [check.name for check in check_losses(base, last, chance=6.24) if not check.is_good] == bad


def test_shifted_texts_do_not_fit_their_recordings():
    clips = read_utterances(DEMO / "manifest.jsonl")
    assert check_lengths(clips, DEFAULT_OPTIONS).is_good
    assert not check_lengths(shifted(clips), DEFAULT_OPTIONS).is_good


def shifted(clips: list[Utterance]) -> list[Utterance]:
    return [replace(clip, text=other.text) for clip, other in zip(clips, [*clips[1:], clips[0]], strict=True)]


# ---- planted faults, in a copy of the demo after its pairs were built


def nothing(_project: Project) -> None:
    return


def shift_texts(project: Project) -> None:
    clips = shifted(read_utterances(project.utterances("train")))
    write_utterances(project.utterances("train"), clips)
    text_of = {clip.id: clip.text for clip in clips}
    pairs = read_pairs(project.pairs("train"))
    write_pairs(
        project.pairs("train"), [replace(pair, target_text=text_of[pair.target_id]) for pair in pairs]
    )


def codes_of_another_codec(project: Project) -> None:
    """Encode with the codes in another order, which the base does not know."""
    encode_again(project, "-c", OTHER_CODES)


def random_base(project: Project) -> None:
    project.base_checkpoint.unlink()
    run(MakeBaseCheckpoint(config=project.config, output=project.base_checkpoint))
    encode_again(project)


def resampled_recordings(project: Project) -> None:
    """Encode recordings that last 1.5 times as long, then put the right ones beside the features."""
    right = {clip.id: clip for clip in read_utterances(project.manifest)}
    slow = [replace(c, audio=slowed(c.audio), duration_s=1.5 * c.duration_s) for c in right.values()]
    write_utterances(project.manifest, slow)
    encode_again(project)
    clips = [(clip, right[clip.id]) for clip in read_utterances(project.utterances("train"))]
    back = [replace(clip, audio=own.audio, duration_s=own.duration_s) for clip, own in clips]
    write_utterances(project.utterances("train"), back)


def slowed(path: Path) -> Path:
    samples, rate_hz = soundfile.read(path)
    soundfile.write(path.with_suffix(".wav"), samples, 2 * rate_hz // 3)
    return path.with_suffix(".wav")


def encode_again(project: Project, *program: str) -> None:
    shutil.rmtree(project.preprocessed)
    for stage in ("preprocess", "pairs"):
        for command in plan_stage(project, read_settings(DEMO / "project.yaml"), stage).commands:
            run(command, program=program if stage == "preprocess" else ())


def run(command: Command, status: int = 0, program: Sequence[str] = ()) -> None:
    argv = [sys.executable, *(program or [str(REPOSITORY / command.program)]), *to_argv(command)]
    answer = subprocess.run(argv, capture_output=True, text=True)
    assert answer.returncode == status, answer.stdout + answer.stderr


OTHER_CODES = """
import sys
from indextts.features import builtin
from tools.preprocess_data import main
arrays = builtin._networks().arrays
arrays["centroids"] = arrays["centroids"].flip(0)
sys.exit(main())
"""


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    workspace = tmp_path_factory.mktemp("prepared")
    run(RunPipeline(workspace=workspace, demo=True, until="pairs"))
    return workspace


@pytest.mark.long
@pytest.mark.parametrize(
    ("plant", "bad"),
    [
        (nothing, set()),
        (shift_texts, {"texts", "programs"}),
        (codes_of_another_codec, {"base", "spoken"}),
        (random_base, {"base"}),
        (resampled_recordings, {"base"}),
    ],
)
def test_a_planted_fault_turns_the_verdict(
    prepared: Path, tmp_path: Path, recognizer_folder: Path, plant: Callable[[Project], None], bad: set[str]
):
    workspace = Path(shutil.copytree(prepared, tmp_path / "workspace"))
    project = Project(workspace / "demo")
    plant(project)
    command = ProveSetup(workspace=workspace, demo=True, asr=[str(recognizer_folder)])
    run(command, status=1 if bad else 0)
    checks = [line for _, line in read_json_lines(project.proof / NAME)]
    assert bad <= {str(check["name"]) for check in checks if not check["is_good"]}
