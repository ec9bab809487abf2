"""Test that the demo learns to speak: the recognizer hears its texts, and not those of other clips."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from indextts.commands.speech import Evaluate
from indextts.commands.terminal import to_argv
from indextts.projects.project import Project
from indextts.text.transcripts import count_errors, error_rate
from tests.conftest import REPOSITORY


@pytest.mark.long
def test_the_recognizer_hears_the_texts_that_the_demos_model_speaks(tmp_path: Path, recognizer_folder: Path):
    project, evaluation = Project(tmp_path / "demo"), tmp_path / "evaluation"
    run("tools/run_pipeline.py", f"--workspace={tmp_path}", "--demo")
    command = Evaluate(
        checkpoint=[project.run_dir / "latest.pth"],
        manifest=project.utterances("val"),
        output_dir=evaluation,
        asr=[str(recognizer_folder)],
        device="cpu",
        do_sample=False,
    )
    run(command.program, *to_argv(command))
    clips = [json.loads(line) for line in (evaluation / "clips.jsonl").read_text("utf-8").splitlines()]
    recorded = [clip for clip in clips if clip["step"] is None]
    spoken = [clip for clip in clips if clip["step"]]
    assert len(recorded) == len(spoken) == 20
    texts = [clip["text"] for clip in spoken]
    own, others = heard(spoken, texts), heard(spoken, [*texts[1:], texts[0]])
    assert heard(recorded, [clip["text"] for clip in recorded]) < 0.3
    assert own < 0.85 * others, (own, others)


def run(program: str, *flags: str) -> None:
    answer = subprocess.run([sys.executable, REPOSITORY / program, *flags], capture_output=True, text=True)
    assert answer.returncode == 0, answer.stdout + answer.stderr


def heard(clips: list[dict[str, dict[str, str]]], texts: list[str]) -> float:
    """Return the character error rate of the clips, if these texts were meant."""
    (name,) = clips[0]["heard"]
    return error_rate(
        [count_errors(text, clip["heard"][name]) for clip, text in zip(clips, texts, strict=True)]
    )
