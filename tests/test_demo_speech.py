"""The demo, from the first stage to its speech, which a recognizer hears."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmarks.learns_to_speak import SAMPLE_RATE_HZ, error
from indextts.commands.speech import Evaluate
from indextts.commands.terminal import to_argv
from indextts.data.manifest import read_utterances
from indextts.features.audio import load_audio
from indextts.features.recognizers.loading import load_recognizer
from indextts.projects.project import Project
from tests.conftest import REPOSITORY

pytestmark = [pytest.mark.long, pytest.mark.slow]

MARGIN = 0.8


def test_the_demo_speaks_sentences_that_it_was_not_trained_on(recognizer_folder: Path, tmp_path: Path):
    run("run_pipeline", f"--workspace={tmp_path}", "--demo")
    project = Project(tmp_path / "demo")
    held_out = project.preprocessed / "val_manifest.jsonl"
    evaluate = Evaluate(
        checkpoint=[project.run_dir / "latest.pth"],
        manifest=held_out,
        output_dir=tmp_path / "spoken",
        seeds=1,
    )
    run("evaluate", *to_argv(evaluate))
    lines = [json.loads(line) for line in (tmp_path / "spoken/clips.jsonl").read_text("utf-8").splitlines()]
    file_of = {line["id"]: line["file"] for line in lines if line["checkpoint"] != "recordings"}
    meant = read_utterances(held_out)
    clips = [load_audio(tmp_path / "spoken" / file_of[each.id], SAMPLE_RATE_HZ) for each in meant]
    recognizer = load_recognizer(recognizer_folder, torch.device("cpu"), "am")
    of_others = error(recognizer, [*meant[1:], meant[0]], clips)
    assert error(recognizer, meant, clips) < MARGIN * of_others


def run(program: str, *argv: str) -> None:
    subprocess.run([sys.executable, f"tools/{program}.py", *argv], cwd=REPOSITORY, check=True)
