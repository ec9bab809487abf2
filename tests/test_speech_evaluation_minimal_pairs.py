"""Tests of indextts/speech/evaluation/minimal_pairs.py: a blind listening test whose answers are true."""

from pathlib import Path

import pytest
import soundfile

from indextts.errors import UserError
from indextts.speech.evaluation.minimal_pairs import read_minimal_pairs, shuffled_files
from tests.speaking_run import make_speaking_project
from tools.evaluate import main

TEXTS = [("ሰላም ነው።", "ሰላም ናት።"), ("አለ", "አላ"), ("ገና", "ገናና")]


def rows(path: Path) -> list[list[str]]:
    return [line.split("\t") for line in path.read_text("utf-8").splitlines()]


@pytest.mark.slow
def test_both_texts_of_each_pair_are_spoken_in_files_that_do_not_tell_which(tmp_path: Path):
    run = make_speaking_project(tmp_path / "project")
    file = tmp_path / "pairs.tsv"
    file.write_text("# a comment\n" + "".join(f"{a}\t{b}\n" for a, b in TEXTS), encoding="utf-8")
    argv = [f"--manifest={run.manifest}", "--num-clips=1", "--max-codes=40", f"--models={run.root}"]
    argv += [f"--checkpoint={run.run_dir / f'model_step{step}.pth'}" for step in (1, 2)]
    assert main([*argv, f"--output-dir={tmp_path}", f"--minimal-pairs={file}"]) == 0
    folder = tmp_path / "minimal_pairs"
    head, *sheet = rows(folder / "sheet.tsv")
    _, *answers = rows(folder / "answers.tsv")
    assert head == ["file", "first", "second", "heard"]
    sounds = sorted(path.name for path in folder.glob("*.wav"))
    assert [row[0] for row in sheet] == [row[0] for row in answers] == sounds
    assert 1 <= len(sounds) <= 2 * 2 * len(TEXTS)
    for (_, first, second, heard), (name, checkpoint, line, spoken, text) in zip(sheet, answers, strict=True):
        assert (first, second) == TEXTS[int(line) - 2]
        assert text == (first, second)[int(spoken) - 1]
        assert heard == ""
        assert checkpoint in ("model_step1", "model_step2")
        assert soundfile.info(folder / name).frames > 0
    keys = [(checkpoint, line, spoken) for _, checkpoint, line, spoken, _ in answers]
    assert len(set(keys)) == len(keys)
    assert keys != sorted(keys)  # shuffled


def test_the_order_of_files_depends_on_the_seed_alone(tmp_path: Path):
    names = shuffled_files(tmp_path, 12, seed=0)
    assert names == shuffled_files(tmp_path, 12, seed=0) != shuffled_files(tmp_path, 12, seed=1)
    assert sorted(names) == [tmp_path / f"{number:03}.wav" for number in range(1, 13)]


@pytest.mark.parametrize("line", ["one text", "a\tb\tc", "a\t", "a\ta"])
def test_a_line_that_is_not_two_texts_is_named(tmp_path: Path, line: str):
    path = tmp_path / "pairs.tsv"
    path.write_text(f"a\tb\n{line}\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"pairs\.tsv:2"):
        read_minimal_pairs(path)
    path.write_text("# nothing\n", encoding="utf-8")
    with pytest.raises(UserError, match="no pair"):
        read_minimal_pairs(path)
