"""Tests of indextts/planning/restore_plan.py: the plan of a resume on changed pairs is what the run does."""

import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from indextts.commands.terminal import parse
from indextts.commands.train import Train
from indextts.data.feature_store import FeatureStore
from indextts.data.manifest import Pair, read_pairs, write_pairs
from indextts.runs.directory import CheckpointMeta
from tests.every_flag import STEP, planned, started
from tests.tiny_run import SENTENCES, TinyRun, features_of, make_tiny_run, pair, rewrite_features

TOO_LONG = " ".join(SENTENCES)


@pytest.fixture(scope="module")
def complete_run(tmp_path_factory: pytest.TempPathFactory) -> TinyRun:
    run = make_tiny_run(tmp_path_factory.mktemp("complete") / "tiny", num_train=22)
    write_true_counts(run)
    assert run.train(save_interval=STEP, keep_checkpoints=9) == 0
    return run


def stopped_at(step: int, run: TinyRun, folder: Path) -> TinyRun:
    stopped = TinyRun(shutil.copytree(run.folder, folder, ignore=shutil.ignore_patterns("run")))
    stopped.output.mkdir()
    for suffix in (".pth", ".json"):
        shutil.copy(run.output / f"model_step{step}{suffix}", stopped.output)
    return stopped


def rewrite(run: TinyRun, change: Callable[[list[Pair]], list[Pair]]) -> None:
    path = run.folder / "train_pairs.jsonl"
    write_pairs(path, change(read_pairs(path)))


def write_true_counts(run: TinyRun) -> None:
    store = FeatureStore.open(features_of(run.folder))
    rewrite(
        run,
        lambda pairs: [replace(each, target_num_codes=store.num_codes(each.target_key)) for each in pairs],
    )


def regenerate_the_audio(run: TinyRun) -> None:
    """Write features with six codes more for each utterance."""
    rewrite_features(run, lambda each: replace(each, codes=np.concatenate([each.codes, each.codes[:6]])))
    write_true_counts(run)


def with_text(run: TinyRun, text: str) -> None:
    rewrite(run, lambda pairs: [*pairs[:5], replace(pairs[5], target_text=text), *pairs[6:]])


def more(run: TinyRun) -> Pair:
    return pair(run.folder, 21, 3)


# (what changes the pairs, whether the position in the epoch stays)
CHANGES: dict[str, tuple[Callable[[TinyRun], None], bool]] = {
    "a text": (lambda run: with_text(run, SENTENCES[40]), True),
    "one more": (lambda run: rewrite(run, lambda pairs: [*pairs, more(run)]), False),
    "a text too long": (lambda run: with_text(run, TOO_LONG), False),
    "one more too long": (
        lambda run: rewrite(run, lambda pairs: [replace(more(run), target_text=TOO_LONG), *pairs]),
        True,
    ),
    "one less": (lambda run: rewrite(run, lambda pairs: pairs[1:]), False),
    "the order": (lambda run: rewrite(run, lambda pairs: [pairs[1], pairs[0], *pairs[2:]]), False),
    "the audio": (regenerate_the_audio, True),
}


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.failure(72)
def test_the_plan_of_changed_pairs_is_what_the_start_does(complete_run: TinyRun, tmp_path: Path, name: str):
    change, keeps_position = CHANGES[name]
    stopped = stopped_at(STEP, complete_run, tmp_path / "tiny")
    change(stopped)
    command = parse(Train, stopped.flags(resume="auto"))
    plan = planned(command)
    assert plan == started(command)
    assert (plan.kept == "all but the position in the epoch") == (not keeps_position)
    assert any(line.startswith("[Warn] train_manifest: ") for line in plan.lines)


@pytest.mark.failure(72)
def test_with_a_token_budget_the_plan_counts_the_steps_of_the_new_lengths(tmp_path: Path):
    run = make_tiny_run(tmp_path / "complete", num_train=22)
    write_true_counts(run)
    flags = {"batch_tokens": 300, "grad_accumulation": 1, "save_interval": 3, "keep_checkpoints": 99}
    assert run.train(**flags, epochs=8) == 0
    stopped = stopped_at(STEP, run, tmp_path / "tiny")
    before = CheckpointMeta.read(stopped.output / f"model_step{STEP}.json").schedule["total_steps"]
    regenerate_the_audio(stopped)
    command = parse(Train, stopped.flags(**flags, epochs=8, resume="auto"))
    plan = planned(command)
    assert plan == started(command)
    [last] = re.findall(rf"Step: {STEP + 1} to (\d+),", "\n".join(plan.lines))
    assert int(last) > before
