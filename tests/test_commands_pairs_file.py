from pathlib import Path

import pytest

from indextts.commands.pairs_file import PairsFile
from indextts.commands.terminal import parse, to_argv
from indextts.commands.train import Train
from indextts.errors import UserError

REQUIRED = ["--val-manifest=v", "--tokenizer=t"]


@pytest.mark.parametrize(
    ("typed", "file"),
    [
        ("a/b.jsonl", PairsFile(Path("a/b.jsonl"))),
        ("a/b.jsonl@0.15", PairsFile(Path("a/b.jsonl"), share=0.15)),
        ("b.jsonl@en", PairsFile(Path("b.jsonl"), "en")),
        ("b.jsonl@eng@3", PairsFile(Path("b.jsonl"), "en", 3)),
        ("me@home/b.jsonl", PairsFile(Path("me@home/b.jsonl"))),
        ("b@2024.jsonl@.5", PairsFile(Path("b@2024.jsonl"), share=0.5)),
    ],
)
def test_a_file_has_an_optional_language_and_share(typed: str, file: PairsFile):
    assert PairsFile.parse(typed) == file
    assert PairsFile.parse(str(file)) == file


@pytest.mark.parametrize(
    "argv",
    [
        ["--train-manifest=a@0.85", "--train-manifest=b"],
        ["--train-manifest=a@0"],
        ["--train-manifest=a@xqq"],
        ["--train-manifest=a", "--val-manifest=b@0.5"],
    ],
)
def test_a_share_of_some_files_only_and_an_unknown_language_are_refused(argv: list[str]):
    with pytest.raises(UserError, match="manifest"):
        parse(Train, [*REQUIRED, *argv])


def test_the_command_line_has_the_files_as_typed():
    argv = ["--train-manifest=new.jsonl@0.85", "--train-manifest=old.jsonl@en@0.15", "--val-manifest=v@en"]
    command = parse(Train, [*argv, "--tokenizer=t"])
    assert [file.share for file in command.train_files] == [0.85, 0.15]
    assert to_argv(command)[:3] == argv
