"""Korean, Arabic, Thai and Swahili: import, check, tokenizer, pairs, training, resume, speech.

Each project has 400 sentences, spoken by two voices of espeak-ng.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import soundfile
import yaml

from indextts.data.quality.summary import read_overview
from indextts.projects.project import Project
from indextts.text.languages import find_language
from indextts.text.tokenizer import Tokenizer, measure
from tests.conftest import REPOSITORY
from tests.spoken_languages import sentences, speak
from tests.tiny_run import TYPED

NUM_SENTENCES, NUM_HELD_OUT = 400, 20
MAX_UNKNOWN_PERCENT = 0.1
STEPS = (25, 50)
ENGLISH_AND_CHINESE = (
    "THE QUICK BROWN FOX JUMPS OVER THE LAZY DOG.",
    "HELLO, HOW ARE YOU? I AM FINE.",
    "WE WENT TO THE MARKET - IT WAS CLOSED!",
    "今 天 天 气 很 好",
)
TRAIN = {
    **TYPED,
    "epochs": 10,
    "batch_size": 2,
    "grad_accumulation": 1,
    "learning_rate": 1.0e-3,
    "warmup_steps": 10,
    "log_interval": 5,
    "val_interval": 25,
    "save_interval": 25,
}


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("code", ["ko", "ar", "th", "sw"])
def test_a_language_walks_from_its_recordings_to_its_speech(tmp_path: Path, base_2_0: Path, code: str):
    texts = sentences(code, NUM_SENTENCES + NUM_HELD_OUT)
    learned, held_out = texts[:NUM_SENTENCES], texts[NUM_SENTENCES:]
    config = write_source(tmp_path, base_2_0, code, learned)
    workspace = tmp_path / "workspace"
    for steps in STEPS:
        flags = f"--workspace={workspace} --max-steps={steps} --until=train"
        run(f"tools/run_pipeline.py --config={config} {flags}")

    project = Project(workspace / code)
    lines = [json.loads(line) for line in project.manifest.read_text(encoding="utf-8").splitlines()]
    assert [line["text"] for line in lines] == learned
    assert {line["language"] for line in lines} == {code}
    assert {line["speaker"] for line in lines} == {"low", "high"}
    reasons = {reason.name: reason.count for reason in read_overview(project.dataset / "check").reasons}
    assert not {"foreign", "tigrinya"} & reasons.keys()
    assert reasons.get("too_fast", 0) + reasons.get("too_slow", 0) <= 0.02 * NUM_SENTENCES

    base, tokenizer = Tokenizer.load(project.base_tokenizer), Tokenizer.load(project.tokenizer)
    assert tokenizer.options.language == code
    assert measure(tokenizer, held_out).unknown_percent < MAX_UNKNOWN_PERCENT
    for text in ENGLISH_AND_CHINESE:
        assert tokenizer.encode(text) == base.encode(text)
    appended = set().union(*tokenizer.pieces[base.size :])
    assert all(find_language(code).owns(char) for char in appended - {"\u2581"})
    assert bool(appended) == (code != "sw")  # the base has the letters of Swahili

    log = (project.run_dir / "train.log").read_text(encoding="utf-8")
    assert "[Info] Successfully resumed from" in log
    metrics = [json.loads(line) for line in (project.run_dir / "metrics.jsonl").read_text().splitlines()]
    trained = {line["step"]: line["mel_loss"] for line in metrics if line["kind"] == "train"}
    assert max(trained) == STEPS[1]
    assert trained[STEPS[1]] < trained[min(trained)]

    spoken = tmp_path / "spoken.wav"
    voice = lines[0]["id"]
    run(
        f"tools/synthesize.py --checkpoint={project.run_dir} --voice={voice} --manifest={project.manifest} "
        f"--output={spoken} --device=cpu",
        f"--text={held_out[0]}",
    )
    assert soundfile.info(spoken).duration > 0.1


def write_source(folder: Path, base: Path, code: str, texts: list[str]) -> Path:
    """Write recordings with a table, and a project file; return the latter."""
    rows = ["path|speaker|text"]
    for number, text in enumerate(texts):
        name, pitch = f"{number:03}.wav", (30, 70)[number % 2]
        speak(text, code, folder / "speech/wavs" / name, pitch)
        rows.append(f"{name}|{('low', 'high')[number % 2]}|{text}")
    (folder / "speech/metadata.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    settings = {
        "name": code,
        "language": code,
        "base": str(base),
        "data": {"source": ["speech"]},
        # the synthesiser clicks and pauses abruptly, and many sentences are short
        "check": {"quality": "fast", "max_clicks": 1000, "max_dropouts": 1000, "max_rejected_percent": 100},
        "train": TRAIN,
    }
    path = folder / "project.yaml"
    path.write_text(yaml.safe_dump(settings))
    return path


def run(command: str, *more: str) -> None:
    """Run a program of the repository; it must succeed."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}  # many small steps beside other tests
    done = subprocess.run(
        [sys.executable, *command.split(), *more],
        cwd=REPOSITORY,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
