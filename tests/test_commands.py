"""Tests of indextts/commands.py: one model per command line, and the way there and back."""

import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import BaseModel

from indextts.commands import COMMANDS, BuildPairs, Command, Train, markdown_tables, parse, run, to_argv
from indextts.errors import UserError
from tests.conftest import REPOSITORY

NASTY = [
    "a,b",
    "[x]",
    'q"q',
    "it's",
    "two words",
    "$(touch x)",
    "ሰላም ሀ",
    "-rf",
    "--epochs",
    "",
    "=",
    "*?",
    "a\nb",
]


def filled(command: type[Command], text: str) -> Command:
    """Return the command with `text` in every field that takes text or a path."""
    values: dict[str, object] = {}
    for name, field in command.model_fields.items():
        kind = str(field.annotation)
        if "Literal" in kind:
            continue
        if "list" in kind:
            item = Path if "Path" in kind else str
            values[name] = [item(text or "p"), item("second")]
        elif "Path" in kind:
            values[name] = Path(text or "p")
        elif kind == "<class 'str'>":
            values[name] = text
    return command(**values)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.__name__)
@pytest.mark.parametrize("text", NASTY)
def test_a_command_survives_the_way_to_argv_and_back(command: type[Command], text: str):
    original = filled(command, text)
    assert parse(command, to_argv(original)) == original


def test_numbers_and_switches_survive_the_way_to_argv_and_back():
    original = Train(
        train_manifest=[Path("t")],
        val_manifest=[Path("v")],
        tokenizer=Path("m"),
        learning_rate=1.25e-06,
        epochs=3,
        amp=True,
        grad_clip=0.1,
    )
    assert parse(Train, to_argv(original)) == original


def test_defaults_are_left_out_of_argv():
    command = BuildPairs(manifest=Path("m"), output=Path("o"), seed=2025)
    assert to_argv(command) == ["--manifest=m", "--output=o"]


def test_a_value_out_of_bounds_is_one_sentence_with_the_flag_as_typed():
    argv = ["--train-manifest=t", "--val-manifest=v", "--tokenizer=m", "--learning-rate=-1", "--epochs=0"]
    with pytest.raises(UserError, match=r"--epochs: .*got 0; --learning-rate: .*got -1\.0"):
        parse(Train, argv)


def test_a_command_cannot_be_changed():
    command = BuildPairs(manifest=Path("m"), output=Path("o"))
    with pytest.raises(ValueError, match="frozen"):
        command.seed = 3  # type: ignore[misc]


def test_the_flags_that_users_type_are_there():
    flags = {f"--{name.replace('_', '-')}" for name in Train.model_fields}
    typed = """--train-manifest --val-manifest --tokenizer --config --base-checkpoint --output-dir --epochs
        --learning-rate --text-loss-weight --mel-loss-weight --warmup-steps --log-interval --val-interval
        --save-interval --keep-checkpoints --batch-size --grad-accumulation --num-workers --amp --resume
        --max-steps --weight-decay --grad-clip --seed --val-batch-size --max-val-batches"""
    assert set(typed.split()) <= flags


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.__name__)
def test_every_program_exists_and_every_flag_has_help(command: type[BaseModel]):
    assert (REPOSITORY / command.program).is_file()  # type: ignore[attr-defined]
    assert command.__doc__
    assert all(field.description for field in command.model_fields.values())


def test_the_flags_in_the_docs_are_those_of_the_commands():
    page = (REPOSITORY / "docs/commands.md").read_text(encoding="utf-8")
    assert page.split("\n\n", 2)[2].strip() == markdown_tables().strip()


def test_the_users_mistake_ends_a_program_with_status_2_and_one_line():
    program = REPOSITORY / "tools/build_gpt_prompt_pairs.py"
    argv = ["--manifest", "absent.jsonl", "--output", "never.jsonl"]
    answer = subprocess.run([sys.executable, program, *argv], capture_output=True, text=True)
    assert answer.returncode == 2
    assert answer.stderr.startswith("[Error] ")
    assert answer.stderr.count("\n") == 1
    assert "absent.jsonl" in answer.stderr


def test_ctrl_c_ends_a_program_with_one_line_and_status_130(capsys):
    def interrupted() -> int:
        raise KeyboardInterrupt

    with pytest.raises(SystemExit) as caught:
        run(interrupted)
    assert caught.value.code == 130
    assert capsys.readouterr().err == "[Error] stopped; run the same command to go on\n"
