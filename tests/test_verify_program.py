import json
import re
import shutil
import subprocess
import sys
from dataclasses import asdict, replace

import pytest
import torch
import yaml

from indextts.errors import UserError
from indextts.text.extend import extend_file
from indextts.text.tokenizer import Tokenizer
from tests.conftest import REPOSITORY
from tests.tiny_gpt import TINY
from tests.tokenizers import AMHARIC, write_base
from tests.waiting import PATIENCE_S
from tools.extend_bpe import main as extend_bpe
from verify_amharic_training import main as verify


def verify_program(*arguments):
    return verify(["--tokenizer=am.model", *arguments])


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with checkpoints/{bpe.model,config.yaml,gpt.pth}, manifest.jsonl and an extended am.model."""
    folder = tmp_path_factory.mktemp("made")
    checkpoints = folder / "checkpoints"
    checkpoints.mkdir()
    base = write_base(checkpoints)
    size = Tokenizer.load(base).size
    write_config(checkpoints / "config.yaml", size)
    tables = {
        "text_embedding.weight": (size + 1, 4),
        "text_head.weight": (size + 1, 4),
        "text_head.bias": (size + 1,),
    }
    torch.save({name: torch.zeros(shape) for name, shape in tables.items()}, checkpoints / "gpt.pth")
    records = [json.dumps({"id": str(number), "text": text}) for number, text in enumerate(AMHARIC)]
    (folder / "manifest.jsonl").write_text("\n".join(records) + "\n", "utf-8")
    extend_file(base, AMHARIC, folder / "am.model", size + 300)
    return folder


@pytest.fixture
def project(made, tmp_path, monkeypatch):
    """A copy of the folder, as the working directory."""
    monkeypatch.chdir(shutil.copytree(made, tmp_path / "project"))
    return tmp_path / "project"


def write_config(path, number_text_tokens):
    gpt = asdict(replace(TINY, number_text_tokens=number_text_tokens))
    path.write_text(yaml.safe_dump({"gpt": gpt}), "utf-8")


def test_problems_are_all_printed_and_end_with_status_1(project, capsys):
    write_config(project / "checkpoints" / "config.yaml", 99)
    (project / "manifest.jsonl").write_text('{"text": "日本"}\n', "utf-8")
    assert verify_program("--manifest=manifest.jsonl") == 1
    printed = capsys.readouterr().out
    assert printed.count("problem ") == 3
    assert "3 problems found." in printed
    assert verify_program("--manifest=manifest.jsonl", "--max-unknown-percent=100") == 1


@pytest.mark.parametrize(
    "missing", ["am.model", "checkpoints/config.yaml", "checkpoints/gpt.pth", "manifest.jsonl"]
)
def test_a_missing_file_is_named(project, missing):
    (project / missing).unlink()
    with pytest.raises(UserError, match=re.escape(missing)):
        verify_program("--manifest=manifest.jsonl")


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
    with pytest.raises(UserError, match=rf"^checkpoints/gpt\.pth: .*{problem}") as caught:
        verify_program("--manifest=manifest.jsonl")
    assert "\n" not in str(caught.value)


def test_without_arguments_the_default_paths_are_used(project, capsys):
    size = Tokenizer.load(project / "checkpoints/bpe.model").size
    (project / "tokenizers").mkdir()
    (project / "am.model").rename(project / "tokenizers/amharic_extended_bpe.model")
    (project / "preprocessed_amharic").mkdir()
    (project / "manifest.jsonl").rename(project / "preprocessed_amharic/train_manifest.jsonl")
    assert verify([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert f"ok       Vocabulary size: {size + 300}" in lines
    assert any(line.startswith(f"ok       Uses extended vocabulary (ID >= {size})") for line in lines)
    assert any(line.startswith("ok       unknown pieces: 0.000 %") for line in lines)
    assert lines[-1] == "All checks passed"


def test_without_arguments_the_only_project_of_the_workspace_is_taken(project, capsys):
    with pytest.raises(UserError, match="--tokenizer"):
        verify([])
    voice = project / "workspace/voice"
    for name in ("tokenizers", "dataset"):
        (voice / name).mkdir(parents=True)
    (voice / "project.json").write_text("{}")
    (project / "checkpoints").rename(voice / "checkpoints")
    (project / "am.model").rename(voice / "tokenizers/amharic_extended_bpe.model")
    (project / "manifest.jsonl").rename(voice / "dataset/manifest.jsonl")
    assert verify([]) == 0
    printed = capsys.readouterr().out
    assert "unknown pieces: 0.000 %" in printed
    assert printed.endswith("All checks passed\n")


def test_the_size_is_advised_by_the_durations_of_the_manifest(project, capsys, caplog):
    line = json.dumps({"text": "ሰላም ነው።", "duration": 5 * 3600})
    (project / "hours.jsonl").write_text("\n".join([line] * 30), "utf-8")
    flags = ["--manifests=hours.jsonl", "--output-model=new.model", "--homophones=loose"]
    assert extend_bpe(flags) == 0
    assert "of 8090 pieces" in caplog.text  # 8,000 for 150 hours; these texts give fewer
    assert "normaliser:      homophones loose (v" in capsys.readouterr().out
    assert Tokenizer.load(project / "new.model").options.homophones == "loose"


def test_the_size_is_compared_with_the_advice_for_the_hours_that_go_on(project, capsys):
    line = {"audio": "a.wav", "text": "ሰላም ነው።", "speaker": "almaz"}
    lines = [{**line, "id": f"{hours}", "duration": 3600 * hours} for hours in (1, 100)]
    (project / "hours.jsonl").write_text("\n".join(map(json.dumps, lines)), "utf-8")
    (project / "check").mkdir()
    (project / "check/rejected.jsonl").write_text('{"id": "100", "reasons": ["noisy"]}\n', "utf-8")
    verify_program("--manifest=hours.jsonl")
    assert " 1.0 hours " in capsys.readouterr().out


def test_an_error_of_extending_is_one_line_with_status_2(project):
    (project / "junk.model").write_bytes(bytes(range(256)) * 4)
    flags = ["--base-model=junk.model", "--manifests=manifest.jsonl", "--output-model=new.model"]
    program = [sys.executable, str(REPOSITORY / "tools/extend_bpe.py"), *flags]
    done = subprocess.run(program, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "junk.model" in done.stderr
    assert not (project / "new.model").exists()
