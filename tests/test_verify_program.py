import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml

from indextts.errors import UserError
from indextts.text.tokenizer import Tokenizer
from tests.tokenizers import AMHARIC, write_base
from tests.waiting import PATIENCE_S
from verify_amharic_training import main

REPOSITORY = Path(__file__).resolve().parent.parent


def run_program(name, folder, *arguments):
    command = [sys.executable, str(REPOSITORY / name), *arguments]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )


def verify_program(folder, *arguments):
    return run_program("verify_amharic_training.py", folder, "--tokenizer=am.model", *arguments)


@pytest.fixture
def project(tmp_path):
    """A folder with checkpoints/{bpe.model,config.yaml,gpt.pth}, manifest.jsonl and an extended am.model."""
    checkpoints = tmp_path / "checkpoints"
    checkpoints.mkdir()
    size = Tokenizer.load(write_base(checkpoints)).size
    write_config(checkpoints / "config.yaml", size)
    tables = {
        "text_embedding.weight": (size + 1, 4),
        "text_head.weight": (size + 1, 4),
        "text_head.bias": (size + 1,),
    }
    torch.save({name: torch.zeros(shape) for name, shape in tables.items()}, checkpoints / "gpt.pth")
    records = [json.dumps({"id": str(number), "text": text}) for number, text in enumerate(AMHARIC)]
    (tmp_path / "manifest.jsonl").write_text("\n".join(records) + "\n", "utf-8")
    made = run_program(
        "tools/extend_bpe.py",
        tmp_path,
        "--manifests=manifest.jsonl",
        "--output-model=am.model",
        f"--target-size={size + 300}",
    )
    assert made.returncode == 0, made.stderr
    assert f"pieces now:      {size + 300}" in made.stdout
    assert "sample:          ▁" in made.stdout
    return tmp_path


def write_config(path, number_text_tokens):
    module = {
        "output_size": 8,
        "linear_units": 8,
        "attention_heads": 1,
        "num_blocks": 1,
        "input_layer": "conv2d2",
        "perceiver_mult": 2,
    }
    gpt = {
        "model_dim": 4,
        "layers": 1,
        "heads": 1,
        "max_mel_tokens": 10,
        "max_text_tokens": 10,
        "number_text_tokens": number_text_tokens,
        "number_mel_codes": 10,
        "start_mel_token": 8,
        "stop_mel_token": 9,
        "start_text_token": 0,
        "stop_text_token": 1,
        "condition_module": module,
        "emo_condition_module": module,
    }
    path.write_text(yaml.safe_dump({"gpt": gpt}), "utf-8")


def test_a_matching_project_ends_with_status_0(project):
    done = verify_program(project, "--manifest=manifest.jsonl")
    assert (done.returncode, done.stderr) == (0, "")
    assert "All checks passed" in done.stdout
    assert "problem " not in done.stdout


def test_problems_are_all_printed_and_end_with_status_1(project):
    write_config(project / "checkpoints" / "config.yaml", 99)
    (project / "manifest.jsonl").write_text('{"text": "日本"}\n', "utf-8")
    done = verify_program(project, "--manifest=manifest.jsonl")
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.count("problem ") == 3
    assert "3 problems found." in done.stdout
    assert verify_program(project, "--manifest=manifest.jsonl", "--max-unknown-percent=100").returncode == 1


def test_without_a_base_tokenizer_a_warning_says_that_only_sizes_were_compared(project):
    (project / "checkpoints" / "bpe.model").unlink()
    done = verify_program(project, "--manifest=manifest.jsonl")
    assert done.returncode == 0
    assert "only sizes could be compared" in done.stdout


@pytest.mark.parametrize(
    "missing", ["am.model", "checkpoints/config.yaml", "checkpoints/gpt.pth", "manifest.jsonl"]
)
def test_a_missing_file_is_named_with_status_2(project, missing):
    (project / missing).unlink()
    done = verify_program(project, "--manifest=manifest.jsonl")
    assert done.returncode == 2
    assert done.stderr.startswith("[Error] ")
    assert missing in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"<html><title>Sign in</title></html>", "web page"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "git-LFS"),
        (b"", "empty"),
        (b"PK\x03\x04" + bytes(200), "truncated"),
    ],
)
def test_a_base_checkpoint_that_is_another_file_is_a_user_error(project, content, problem):
    (project / "checkpoints/gpt.pth").write_bytes(content)
    done = verify_program(project, "--manifest=manifest.jsonl")
    assert done.returncode == 2
    assert done.stderr.startswith("[Error] checkpoints/gpt.pth: ")
    assert problem in done.stderr
    assert done.stderr.count("\n") == 1


def test_without_the_base_tokenizer_extending_names_it(project):
    (project / "checkpoints/bpe.model").unlink()
    flags = ("--manifests=manifest.jsonl", "--output-model=new.model")
    done = run_program("tools/extend_bpe.py", project, *flags)
    assert done.returncode == 2
    assert done.stderr.startswith("[Error] checkpoints/bpe.model: ")
    assert done.stderr.count("\n") == 1


def test_without_arguments_the_default_paths_are_used(project, monkeypatch, capsys):
    monkeypatch.chdir(project)
    size = Tokenizer.load(project / "checkpoints/bpe.model").size
    (project / "tokenizers").mkdir()
    (project / "am.model").rename(project / "tokenizers/amharic_extended_bpe.model")
    (project / "preprocessed_amharic").mkdir()
    (project / "manifest.jsonl").rename(project / "preprocessed_amharic/train_manifest.jsonl")
    assert main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert f"ok       Vocabulary size: {size + 300}" in lines
    assert any(line.startswith(f"ok       Uses extended vocabulary (ID >= {size})") for line in lines)
    assert any(line.startswith("ok       unknown pieces: 0.000 %") for line in lines)
    assert lines[-1] == "All checks passed"


def test_without_arguments_the_only_project_of_the_workspace_is_taken(project, monkeypatch, capsys):
    monkeypatch.chdir(project)
    with pytest.raises(UserError, match="--tokenizer"):
        main([])
    voice = project / "workspace/voice"
    for name in ("tokenizers", "dataset"):
        (voice / name).mkdir(parents=True)
    (voice / "project.json").write_text("{}")
    (project / "checkpoints").rename(voice / "checkpoints")
    (project / "am.model").rename(voice / "tokenizers/amharic_extended_bpe.model")
    (project / "manifest.jsonl").rename(voice / "dataset/manifest.jsonl")
    assert main([]) == 0
    printed = capsys.readouterr().out
    assert "unknown pieces: 0.000 %" in printed
    assert printed.endswith("All checks passed\n")


def test_the_size_is_advised_by_the_durations_of_the_manifest(project):
    line = json.dumps({"text": "ሰላም ነው።", "duration": 5 * 3600})
    (project / "hours.jsonl").write_text("\n".join([line] * 30), "utf-8")
    made = run_program(
        "tools/extend_bpe.py",
        project,
        "--manifests=hours.jsonl",
        "--output-model=new.model",
        "--homophones=loose",
    )
    assert made.returncode == 0, made.stderr
    assert "8,000 appended pieces, for 150.0 hours of speech" in made.stdout
    assert "[Warn] " in made.stdout
    assert "normaliser:      homophones loose (v" in made.stdout
    assert Tokenizer.load(project / "new.model").options.homophones == "loose"


def test_an_error_of_extending_is_one_line(project):
    (project / "junk.model").write_bytes(bytes(range(256)) * 4)
    done = run_program(
        "tools/extend_bpe.py",
        project,
        "--base-model=junk.model",
        "--manifests=manifest.jsonl",
        "--output-model=new.model",
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "junk.model" in done.stderr
    assert not (project / "new.model").exists()
