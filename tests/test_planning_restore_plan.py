"""Tests of indextts/planning/restore_plan.py: the plan comes from the meta file alone."""

import os
import shutil
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from indextts.commands.terminal import parse
from indextts.commands.train import Train
from indextts.data.manifest import read_pairs, write_pairs
from indextts.data.pair_index import load_index
from indextts.errors import RESUME_REFUSED, UserError
from indextts.models.gpt.config import load_config
from indextts.planning import pairs_size
from indextts.runs.directory import identify
from indextts.runs.schedule import Schedule
from indextts.system.digest import file_digest
from indextts.text.tokenizer import Tokenizer
from indextts.training.resume import plan_from_weights
from tests.conftest import REPOSITORY
from tests.restore_inputs import meta
from tests.tiny_run import describe_restore, pair, write_features

BASE = REPOSITORY / "tests/base_2.0"
NUM_BYTES = 7 * 10**9


class RunFolder:
    """A run directory whose newest checkpoint is a file of 7 GB with a hole in place of its bytes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.output = folder / "run"
        self.output.mkdir()
        self.train, self.val = folder / "train.jsonl", folder / "val.jsonl"
        self.write_train_pairs(40)
        write_pairs(self.val, [pair(folder, number, number + 1) for number in range(100, 104)])
        self.base = folder / "gpt.pth"
        self.base.write_bytes(b"base weights")
        self.command = self.parsed(f"--output-dir={self.output}", "--learning-rate=5e-5", "--batch-size=4")
        self.tokenizer = Tokenizer.load(BASE / "bpe.model")
        self.write()

    def write_train_pairs(self, count: int) -> None:
        if not (self.folder / "features").exists():
            write_features(self.folder / "features", 1)
        write_pairs(self.train, [pair(self.folder, number, number + 1) for number in range(count)])

    def parsed(self, *argv: str) -> Train:
        files = {
            "train-manifest": self.train,
            "val-manifest": self.val,
            "tokenizer": BASE / "bpe.model",
            "config": BASE / "config.yaml",
            "base-checkpoint": self.base,
        }
        return parse(Train, [*(f"--{name}={path}" for name, path in files.items()), *argv])

    def resumed(self, *argv: str) -> Train:
        return self.parsed(f"--output-dir={self.output}", "--resume=auto", *argv)

    def write(self, name: str = "latest", **changes: object) -> None:
        """Write a checkpoint, its meta file last."""
        fields = {
            "step": 25,
            "samples_done": 20,
            "batch_idx": 5,
            "serial": 1,
            "base_size": self.tokenizer.size - 10,
            "gpt_config": asdict(load_config(BASE / "config.yaml")),
            "num_samples": 40,
            "manifests": [identify(self.train), identify(self.val)],
            "base": identify(self.base),
            "settings": self.command.model_dump(mode="json"),
            "schedule": asdict(Schedule(5e-5, 1000, 100)),
            "environment": {"torch": "1.0", "device": "a card", "processes": 1},
            "num_bytes": NUM_BYTES,
            "digest": "of bytes that nobody reads",
        }
        path = self.output / f"{name}.pth"
        path.touch()
        os.truncate(path, NUM_BYTES)
        path.with_suffix(".json").write_text(
            meta(self.tokenizer.vocabulary, **fields | changes).model_dump_json()
        )


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path)


def planned(command: Train) -> list[str]:
    return describe_restore(command).splitlines()


def test_the_plan_of_a_resume_comes_from_the_meta_file(folder: RunFolder):
    lines = planned(folder.resumed())
    assert lines[0] == "latest.pth: step 25, epoch 2: the run continues"
    text = "\n".join(lines[1:])
    assert "Step: 26 to 100" in text
    assert "learning_rate: 5e-05 stays" in text
    assert "batch_size: 4 stays" in text
    assert "PyTorch" in text
    assert "Device" not in text  # not known without torch


def test_auto_selects_the_newest_serial_and_a_path_selects_itself(folder: RunFolder):
    folder.write("model_step9", step=9, serial=7)
    assert planned(folder.resumed())[0].startswith("model_step9.pth: step 9,")
    command = folder.parsed(f"--output-dir={folder.output}", f"--resume={folder.output / 'latest.pth'}")
    assert planned(command)[0].startswith("latest.pth: step 25,")


def test_changed_pairs_are_counted_and_reported(folder: RunFolder):
    folder.write_train_pairs(60)
    lines = planned(folder.resumed())
    assert any("epoch restarts" in line for line in lines)
    assert any(f"Step: 26 to {25 + 8 * 15}," in line for line in lines)
    assert any("40 before, 60 now" in line for line in lines)


def test_many_changed_pairs_without_an_index_are_left_to_the_trainer(folder: RunFolder, monkeypatch):
    monkeypatch.setattr(pairs_size, "MAX_TOKENIZED_PAIRS", 10)
    folder.write_train_pairs(60)
    assert describe_restore(folder.resumed()) is None
    load_index(folder.train, folder.tokenizer)
    assert "40 before, 60 now" in str(describe_restore(folder.resumed()))


@pytest.mark.parametrize("content", [b"base weights, longer", b"base WEIGHTS"], ids=["size", "bytes"])
def test_another_base_is_refused(folder: RunFolder, content: bytes):
    folder.base.write_bytes(content)
    with pytest.raises(UserError, match="--base-checkpoint"):
        describe_restore(folder.resumed())


def test_a_large_base_with_a_new_time_is_left_to_the_trainer(folder: RunFolder):
    os.truncate(folder.base, 10**9)
    recorded = identify(folder.folder / "train.jsonl").model_copy(update={"num_bytes": 10**9})
    folder.write(base=recorded)
    assert any(str(folder.base) in line for line in planned(folder.resumed()))


def test_a_missing_base_is_reported(folder: RunFolder):
    folder.base.unlink()
    assert any(str(folder.base) in line for line in planned(folder.resumed()))


def test_there_is_no_plan_if_it_depends_on_the_weights(folder: RunFolder):
    latest = folder.output / "latest.pth"
    assert describe_restore(folder.parsed(f"--output-dir={folder.output}")) is None  # a new run
    assert describe_restore(folder.parsed(f"--output-dir={folder.folder / 'empty'}", "--resume=auto")) is None
    assert describe_restore(folder.resumed().model_copy(update={"resume": "absent.pth"})) is None
    os.truncate(latest, NUM_BYTES - 1)  # cut: the trainer may fall back to another
    assert describe_restore(folder.resumed()) is None
    os.truncate(latest, NUM_BYTES)
    latest.with_suffix(".json").write_text("{}")
    assert describe_restore(folder.resumed().model_copy(update={"resume": str(latest)})) is None
    folder.write("model_step9", step=9, serial=7)
    assert describe_restore(folder.resumed()) is None  # latest.pth may be the newest
    latest.unlink()
    assert describe_restore(folder.resumed()) is not None


# ---- the identity of a file


def test_an_unchanged_file_is_not_read_again(tmp_path: Path):
    path = tmp_path / "pairs.jsonl"
    path.write_text("one")
    known = identify(path)
    assert known.digest == file_digest(path)
    marked = known.model_copy(update={"digest": "as recorded"})
    assert identify(path, [marked]) == marked
    assert identify(path, [marked.model_copy(update={"mtime_ns": 1})]) == known
    assert identify(path, [marked.model_copy(update={"num_bytes": 1})]) == known
    assert identify(path, [marked.model_copy(update={"path": "elsewhere"})]) == known


def test_what_the_start_refuses_the_plan_refuses(folder: RunFolder):
    folder.write(base_size=folder.tokenizer.size)
    with pytest.raises(UserError, match="--freeze-body-steps 30") as refusal:
        describe_restore(folder.resumed("--freeze-body-steps=30"))
    assert refusal.value.exit_status == RESUME_REFUSED
    assert describe_restore(folder.resumed("--freeze-body-steps=25"))  # the run is at step 25


@pytest.mark.parametrize("name", ["train", "val"])
@pytest.mark.parametrize("has_index", [True, False])
def test_a_missing_feature_store_of_any_pair_is_refused(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch, name: str, has_index: bool
):
    store = write_features(folder.folder / "more", 1, backend=("test", "other"))
    path = folder.folder / f"{name}.jsonl"
    *most, last = read_pairs(path)
    write_pairs(path, [*most, replace(last, features=store)])
    folder.write()
    if has_index:
        load_index(path, folder.tokenizer)
    monkeypatch.setattr(pairs_size, "MAX_TOKENIZED_PAIRS", 0)
    shutil.rmtree(store.parent)
    with pytest.raises(UserError, match=str(store)):
        describe_restore(folder.resumed())
    with pytest.raises(UserError, match=str(store)):
        plan_from_weights(folder.parsed("--plan", f"--output-dir={folder.folder / 'new'}"))
