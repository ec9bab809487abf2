"""Tests of exact resume: killed or stopped runs end bit-identical to an uninterrupted run.

The trainer runs as for a user: a command line, real files, real signals.
"""

import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch

from indextts.data.feature_store import FeatureStore
from indextts.data.feature_store_writer import FeatureStoreWriter
from indextts.data.manifest import read_pairs, write_pairs
from tests.conftest import REPOSITORY
from tests.run_checks import (
    CommittedCheckpoints,
    last_step,
    metrics_lines,
    problems_at_end,
    problems_in_replayed_lines,
)
from tests.tiny_run import TinyRun, features_of, make_tiny_run, pair, signalled_in_step, stored_utterances
from tests.trainer_process import IN_CREATE, IN_MODIFY, IN_MOVED_TO, FolderEvents, TrainerProcess

NUM_PAIRS, NUM_VAL_PAIRS = 40, 24
TRIES = 8  # to hit a moment that lasts milliseconds
SETTINGS: dict[str, object] = {
    "batch_size": 1,
    "val_batch_size": 1,
    "grad_accumulation": 12,
    "warmup_steps": 3,
    "log_interval": 1,
    "val_interval": 3,
    "save_interval": 2,
    "resume": "auto",
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> TinyRun:
    """Return a run of 12 steps, 4 per epoch: three of 12 micro-steps, one of 4; and 24 validation batches."""
    run = make_tiny_run(tmp_path_factory.mktemp("exact") / "tiny", num_train=NUM_PAIRS + NUM_VAL_PAIRS)
    trained = [pair(run.folder, i, (i + 1) % NUM_PAIRS) for i in range(NUM_PAIRS)]
    held_out = [pair(run.folder, i, i + 1) for i in range(NUM_PAIRS, NUM_PAIRS + NUM_VAL_PAIRS)]
    write_pairs(run.folder / "train_pairs.jsonl", trained)
    write_pairs(run.folder / "val_pairs.jsonl", held_out)
    return run


@pytest.fixture(scope="module")
def reference(project: TinyRun) -> Path:
    """Return the folder of the uninterrupted run."""
    assert project.train(output_dir=project.output, num_workers=0, **SETTINGS) == 0
    return project.output


def start(project: TinyRun, run_dir: Path, workers: int, **more: object) -> TrainerProcess:
    argv = project.flags(output_dir=run_dir, num_workers=workers, **SETTINGS, **more)
    return TrainerProcess(argv, project.folder / f"{run_dir.name}.log")


def resume_run(project: TinyRun, run_dir: Path, workers: int, **more: object) -> int | None:
    """Train to the end; return the exit status."""
    process = start(project, run_dir, workers, **more)
    try:
        return process.wait(120)
    finally:
        process.end()


def interrupt(
    project: TinyRun,
    run_dir: Path,
    workers: int,
    matches: Callable[[int, str], bool],
    number: signal.Signals = signal.SIGKILL,
    **more: object,
) -> int | None:
    """Train until an event of the folder matches, then send the signal; return the exit status."""
    run_dir.mkdir(exist_ok=True)
    events = FolderEvents(run_dir)
    process = start(project, run_dir, workers, **more)
    try:
        process.wait_for(events, matches, count=1)
        process.send(number)
        return process.wait(120)
    finally:
        process.end()
        events.close()


@dataclass(frozen=True)
class Moment:
    """A moment in the training."""

    matches: Callable[[Path, int, str], bool]  # (run folder, mask, name), the event at which to interrupt
    is_hit: Callable[[Path], bool]  # whether what a kill left shows that it came there


def has_line(run_dir: Path, mask: int, name: str, kind: str, step: int) -> bool:
    if mask != IN_MODIFY or name != "metrics.jsonl":
        return False
    return any((line["kind"], line["step"]) == (kind, step) for line in metrics_lines(run_dir))


def committed_step(mask: int, name: str) -> int:
    """Return the step whose checkpoint this event commits; 0 for other events."""
    match = re.fullmatch(r"model_step(\d+)\.json", name)
    return int(match[1]) if match and mask == IN_MOVED_TO else 0


def last_line(run_dir: Path) -> tuple[str, int]:
    line = metrics_lines(run_dir)[-1]
    return line["kind"], line["step"]


def newest_position(run_dir: Path) -> tuple[int, int, int]:
    """Return step, epoch and micro-steps of the epoch at which a resume continues."""
    content = torch.load(CommittedCheckpoints.read(run_dir).valid[0][0], weights_only=True)
    return content["step"], content["epoch"], content["batch_idx"]


MOMENTS = {
    # step 7 is the third of the second epoch
    "mid-epoch": Moment(
        matches=lambda run_dir, mask, name: has_line(run_dir, mask, name, "train", 7),
        is_hit=lambda run_dir: newest_position(run_dir) == (6, 1, 24),
    ),
    "at an epoch's end": Moment(
        matches=lambda _run_dir, mask, name: committed_step(mask, name) == 4,
        is_hit=lambda run_dir: newest_position(run_dir) == (4, 1, 0),
    ),
    # the line of a step is written, then comes its validation, then the validation's line
    "in a validation": Moment(
        matches=lambda run_dir, mask, name: has_line(run_dir, mask, name, "train", 9),
        is_hit=lambda run_dir: last_line(run_dir) == ("train", 9),
    ),
    # the facts of a validation are written, then it is listened to
    "in a listening": Moment(
        matches=lambda run_dir, mask, name: has_line(run_dir, mask, name, "facts", 9),
        is_hit=lambda run_dir: last_line(run_dir) == ("facts", 9),
    ),
    # step 5 is followed by no validation and no save, but by the micro-steps of step 6
    "within an accumulation": Moment(
        matches=lambda run_dir, mask, name: has_line(run_dir, mask, name, "train", 5),
        is_hit=lambda run_dir: last_line(run_dir) == ("train", 5),
    ),
    "in a save": Moment(
        matches=lambda run_dir, mask, name: (
            mask == IN_CREATE and name.startswith(".tmp-") and last_step(metrics_lines(run_dir)) >= 6
        ),
        is_hit=lambda run_dir: any(run_dir.glob(".tmp-*")),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("moment", "workers", "number"),
    [
        ("in a save", (2, 0), signal.SIGKILL),
        pytest.param("mid-epoch", (0, 2), signal.SIGKILL, marks=pytest.mark.long),
        pytest.param("at an epoch's end", (2, 0), signal.SIGKILL, marks=pytest.mark.long),
        pytest.param("in a validation", (0, 2), signal.SIGKILL, marks=pytest.mark.long),
        pytest.param("in a validation", (2, 0), signal.SIGTERM, marks=pytest.mark.long),
        pytest.param("within an accumulation", (2, 0), signal.SIGINT, marks=pytest.mark.long),
    ],
)
@pytest.mark.failure(17, 19)
def test_a_run_interrupted_at_any_moment_ends_bit_identical(
    project: TinyRun, reference: Path, tmp_path, moment: str, workers: tuple[int, int], number: signal.Signals
):
    for attempt in range(TRIES):
        run_dir = tmp_path / f"run{attempt}"
        status = interrupt(
            project, run_dir, workers[0], lambda *event, d=run_dir: MOMENTS[moment].matches(d, *event), number
        )
        left = CommittedCheckpoints.read(run_dir)
        assert left.corrupt == {}
        if number != signal.SIGKILL:
            assert status == 128 + number
            assert left.step == last_step(metrics_lines(run_dir))  # no step is lost
            break
        assert status == -signal.SIGKILL
        if MOMENTS[moment].is_hit(run_dir):
            break
    else:
        pytest.fail(f"{TRIES} kills, none {moment}")
    assert resume_run(project, run_dir, workers[1]) == 0
    assert problems_at_end(reference, run_dir, project.folder / "base/gpt.pth") == []


@pytest.mark.long
@pytest.mark.parametrize(
    ("moment", "more"),
    [
        ("in a validation", {}),
        ("mid-epoch", {"lora_rank": 4, "train_text_rows": "used", "lora_code_head": True}),
        ("in a listening", {"listen_interval": 3, "listen_sentences": 8, "listen_share": 1, "patience": 3}),
    ],
    ids=["all weights", "LoRA", "listening"],
)
@pytest.mark.failure(17)
def test_averages_bfloat16_moments_adapters_and_rates_of_new_rows_are_bit_identical_after_a_kill(
    project: TinyRun, tmp_path: Path, moment: str, more: dict[str, object]
):
    more = {"ema_decay": 0.9, "optimizer_state": "bfloat16", "emotion_from": "mixed", **more}
    more |= {"new_row_lr_scale": 10, "freeze_body_steps": 5}
    more |= {"min_lr_ratio": 0.1, "style_noise": 0.01, "emotion_dropout": 0.3}
    reference = tmp_path / "reference"
    assert resume_run(project, reference, workers=0, **more) == 0
    for attempt in range(TRIES):
        run_dir = tmp_path / f"run{attempt}"
        interrupt(project, run_dir, 0, lambda *event, d=run_dir: MOMENTS[moment].matches(d, *event), **more)
        if MOMENTS[moment].is_hit(run_dir):
            break
    else:
        pytest.fail(f"{TRIES} kills, none {moment}")
    assert resume_run(project, run_dir, workers=2) == 0  # the checkpoint knows them
    assert problems_at_end(reference, run_dir, project.folder / "base/gpt.pth") == []
    content = torch.load(run_dir / "latest.pth", weights_only=True)
    assert content["averaged"]["num_updates"] == 12
    groups = content["optimizer"]["param_groups"]
    assert {(group["is_new"], group["lr_scale"]) for group in groups} == {(True, 10), (False, 1)}
    assert {line["step"] for line in metrics_lines(run_dir) if "averaged_mel_loss" in line} == {3, 6, 9, 12}


@pytest.mark.parametrize("step", [4, pytest.param(5, marks=pytest.mark.long)])
@pytest.mark.failure(19)
def test_the_last_line_of_a_run_is_that_of_an_uninterrupted_one(tmp_path: Path, step: int):
    run = make_tiny_run(tmp_path / "tiny")
    settings = {"max_steps": 5, "log_interval": 3, "val_interval": 100}
    assert run.train(**settings) == 0
    steps = [line["step"] for line in metrics_lines(run.output) if line["kind"] == "train"]
    assert steps == [3, 5]
    resumed = tmp_path / "resumed"
    with signalled_in_step(step):
        assert run.train(output_dir=resumed, **settings) == 143
    assert run.train(output_dir=resumed, resume="auto", **settings) == 0
    assert problems_at_end(run.output, resumed, run.folder / "base/gpt.pth") == []
    assert run.train(output_dir=resumed, resume="auto", **settings) == 0  # there is nothing left to do
    assert problems_at_end(run.output, resumed, run.folder / "base/gpt.pth") == []


# entries that were added to the checkpoints of a run, as places in the file
NEWER = {
    "state": ("first_rows", "languages"),
    "meta": ("codebook", "normalizer", "num_averaged", "recipe"),
    "settings": (
        "new_row_init",
        "new_row_lr_scale",
        "freeze_body_steps",
        "language_row_init",
        "lora_rank",
        "lora_targets",
        "min_lr_ratio",
        "train_text_rows",
        "lora_code_head",
        "style_noise",
        "emotion_dropout",
    ),
}


def test_a_checkpoint_without_the_newer_entries_ends_bit_identical(tmp_path: Path):
    run, old = make_tiny_run(tmp_path / "tiny"), tmp_path / "old"
    settings = {"max_steps": 5, "save_interval": 2, "val_interval": 3, "keep_checkpoints": 9}
    assert run.train(**settings) == 0
    shutil.copytree(run.output, old)
    for path in [*old.glob("*.pth"), *old.glob("*.json")]:
        path.unlink()
    content = torch.load(run.output / "model_step2.pth", weights_only=True)
    for part, names in (
        (content["state"], NEWER["state"]),
        (content["meta"], NEWER["meta"]),
        (content["meta"]["settings"], NEWER["settings"]),
    ):
        for name in names:
            del part[name]
    torch.save(content, old / "model_step2.pth")
    assert run.train(output_dir=old, resume="auto", **settings) == 0
    problems = problems_at_end(run.output, old, run.folder / "base/gpt.pth")
    assert [problem for problem in problems if "first_rows" not in problem] == []


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.failure(17)
def test_a_run_killed_after_every_save_ends_bit_identical(project: TinyRun, reference: Path, tmp_path: Path):
    run_dir = tmp_path / "run"
    steps = [0]
    while True:
        status = interrupt(
            project,
            run_dir,
            workers=2 * (len(steps) % 2),
            matches=lambda mask, name: committed_step(mask, name) > steps[-1] + 1,
        )
        assert problems_in_replayed_lines(reference, run_dir) == []
        if status == 0:
            break
        assert status == -signal.SIGKILL
        steps.append(CommittedCheckpoints.read(run_dir).step)
        assert steps[-1] > steps[-2]
    assert len(steps) > 3
    assert problems_at_end(reference, run_dir, project.folder / "base/gpt.pth") == []


# --- which samples were seen ---
# Each text has a token that no other text has. An embedding row without a gradient decays its first moment by
# AdamW's beta and does nothing else: so two checkpoints, one step apart, show which samples that step saw.


@pytest.fixture(scope="module")
def marked(tmp_path_factory: pytest.TempPathFactory) -> TinyRun:
    """Return a run stopped after 12 of the 22 samples of its second epoch; it kept every checkpoint."""
    run = make_tiny_run(tmp_path_factory.mktemp("marked") / "tiny")
    for name in ("train_pairs.jsonl", "val_pairs.jsonl"):
        words = words_with_own_tokens(run)
        pairs = [replace(p, target_text=words.pop()) for p in read_pairs(run.folder / name)]
        write_pairs(run.folder / name, pairs)
    one_utterance_a_file(run.folder / "features")
    assert run.train(save_interval=1, keep_checkpoints=50, max_steps=6, resume="auto") == 0
    return run


def words_with_own_tokens(run: TinyRun) -> list[str]:
    """Return appended pieces that are encoded as themselves, perhaps behind the tag of the language."""
    tokenizer, first = run.tokenizer, run.base_size
    pieces = {token: tokenizer.pieces[token] for token in range(first, tokenizer.size)}
    words = {token: piece[1:] for token, piece in pieces.items() if piece[0] in " \N{LOWER ONE EIGHTH BLOCK}"}
    tag = [] if tokenizer.language_row is None else tokenizer.encode("a")[:1]
    return [word for token, word in words.items() if tokenizer.encode(word) == [*tag, token]]


def one_utterance_a_file(folder: Path) -> None:
    """Write a feature store again, each utterance in a shard of its own."""
    store = FeatureStore.open(features_of(folder.parent))
    utterances = stored_utterances(store)
    shutil.rmtree(folder)
    writer = FeatureStoreWriter(folder, store.info, clips_per_shard=1)
    for utterance in utterances:
        writer.add(utterance)


def copy_of(run: TinyRun, folder: Path) -> TinyRun:
    """Return a copy whose pairs name the copy's features."""
    shutil.copytree(run.folder, folder)
    for name in ("train_pairs.jsonl", "val_pairs.jsonl"):
        pairs = [replace(p, features=features_of(folder)) for p in read_pairs(folder / name)]
        write_pairs(folder / name, pairs)
    return TinyRun(folder)


def seen_by_step(run: TinyRun) -> dict[int, set[str]]:
    """Return the ids of the pairs that each step saw."""
    tokenizer, base_size = run.tokenizer, run.base_size
    row_of = {
        each.id: tokenizer.encode(each.target_text)[-1] - base_size
        for each in read_pairs(run.folder / "train_pairs.jsonl")
    }
    seen = {}
    before = torch.zeros(1)
    for step in range(1, newest(run)["step"] + 1):
        optimizer = torch.load(run.output / f"model_step{step}.pth", weights_only=True)["optimizer"]
        group = next(g for g in optimizer["param_groups"] if "text_embedding.weight" in g["param_names"])
        index = group["params"][group["param_names"].index("text_embedding.weight")]
        after = optimizer["state"][index]["exp_avg"]
        decayed = (group["betas"][0] * before).expand_as(after)
        has_gradient = ~torch.isclose(after, decayed, rtol=1e-5, atol=0).all(dim=1)
        seen[step] = {id for id, row in row_of.items() if has_gradient[row]}
        before = after
    return seen


def newest(run: TinyRun) -> dict:
    return torch.load(run.output / "latest.pth", weights_only=True)


def num_samples(run: TinyRun, steps: range) -> int:
    """Return how many samples the steps took, by the positions in the checkpoints."""
    total = len(read_pairs(run.folder / "train_pairs.jsonl"))

    def position(step: int) -> int:
        if step == 0:
            return 0
        content = torch.load(run.output / f"model_step{step}.pth", weights_only=True)
        return content["epoch"] * total + content["sampler"]["samples_done"]

    return position(steps[-1]) - position(steps[0] - 1)


def test_the_moments_reveal_which_samples_a_step_saw(marked: TinyRun):
    seen = seen_by_step(marked)
    assert [len(seen[step]) for step in range(1, 7)] == [6, 6, 6, 4, 6, 6]
    assert len(set.union(*(seen[step] for step in range(1, 5)))) == 22
    assert num_samples(marked, range(1, 5)) == 22


@pytest.mark.failure(13)
def test_with_changed_settings_every_sample_of_the_epoch_is_seen_once(marked: TinyRun, tmp_path: Path):
    run = copy_of(marked, tmp_path / "tiny")
    changes = {"batch_size": 4, "grad_accumulation": 2, "num_workers": 2}
    kept = {"save_interval": 1, "keep_checkpoints": 50}
    assert run.train(epochs=2, max_steps=0, resume="auto", **kept, **changes) == 0
    assert newest(run)["epoch"] == 2
    seen = seen_by_step(run)
    epoch = range(5, newest(run)["step"] + 1)
    ids = {each.id for each in read_pairs(run.folder / "train_pairs.jsonl")}
    assert set.union(*(seen[step] for step in epoch)) == ids
    assert num_samples(run, epoch) == sum(len(seen[step]) for step in epoch) == len(ids)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.failure(17)
def test_the_benchmark_finds_no_error_in_a_few_kills(tmp_path: Path):
    argv = ["--kills=3", "--parallel=2", "--epochs=3", "--corruption=0.5", "--seed=1"]
    argv += ["--kind=2.0 shares", "--kind=2.5 LoRA recipe"]
    output = tmp_path / "table.md"
    answer = subprocess.run(
        [sys.executable, "-m", "benchmarks.kill_resume", *argv, f"--output={output}"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert "| kills | 6 |" in output.read_text()
