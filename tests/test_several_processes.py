"""Tests of training on several ranks, started with torchrun: 2 and 4 ranks on this machine, over gloo."""

import re
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from indextts.data.manifest import read_pairs
from indextts.errors import PROCESS_LOST
from indextts.runs.directory import CheckpointMeta, verify_checkpoint
from tests.launched import Launched, ending
from tests.run_checks import metrics_lines
from tests.test_exact_resume import copy_of, marked, newest, one_utterance_a_file, seen_by_step
from tests.test_failure_data import UNREADABLE, damage, rewrite_features
from tests.tiny_run import TYPED, TinyRun, make_tiny_run

__all__ = ["marked"]  # the fixture of another file
pytestmark = pytest.mark.slow

EVERY_STEP = {"log_interval": 1, "save_interval": 1, "keep_checkpoints": 1000}
ENDLESS = {"epochs": 100_000, "val_interval": 100_000, "log_interval": 1}


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Callable[..., Launched]]:
    """Return what starts a training; all are gone after the test."""
    started: list[Launched] = []

    def start(run: TinyRun, num_processes: int, *options: str, **changes: object) -> Launched:
        screen = tmp_path / f"screen{len(started)}.txt"
        started.append(Launched(num_processes, run.flags(**changes), screen, *options))
        return started[-1]

    yield start
    for training in started:
        training.end()


# --- the same as one process ---


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> TinyRun:
    """Return a run of one process without dropout: 2 x 4 of 22 samples a step, 3 steps an epoch."""
    run = make_tiny_run(tmp_path_factory.mktemp("alone") / "tiny", dropout=0.0)
    assert run.train(**of_batch(4)) == 0
    return run


def of_batch(batch_size: int) -> dict[str, object]:
    # a small rate: Adam makes of a gradient that is nothing but rounding a step as long as any other
    return {
        "batch_size": batch_size,
        "epochs": 2,
        "log_interval": 1,
        "val_interval": 2,
        "learning_rate": 1e-4,
        "ema_decay": 0.9,
        "listen_interval": 2,  # rank 0 speaks, the others wait
        "listen_sentences": 2,
        "listen_share": 1,
    }


@pytest.mark.parametrize("num_processes", [2, pytest.param(4, marks=pytest.mark.long)])
def test_ranks_with_a_shard_of_the_batch_have_the_losses_of_a_single_process(
    alone: TinyRun, launch: Callable[..., Launched], tmp_path: Path, num_processes: int
):
    output = tmp_path / "run"
    training = launch(alone, num_processes, output_dir=output, **of_batch(4 // num_processes))
    assert training.wait() == 0, training.screen.read_text()
    assert ending(output) == (0, "finished")
    wanted, found = metrics_lines(alone.output), metrics_lines(output)
    assert [(line["kind"], line["step"]) for line in found] == [
        (line["kind"], line["step"]) for line in wanted
    ]
    for one, several in zip(wanted, found, strict=True):
        names = [name for name in one if name.endswith(("loss", "top1")) or name == "grad_norm"]
        assert {name: several[name] for name in names} == pytest.approx(
            {name: one[name] for name in names}, rel=1e-5
        )
    assert (output / "best_heard.pth").exists()
    for name in ("latest.pth", "best.pth"):
        one, several = (torch.load(folder / name, weights_only=True) for folder in (alone.output, output))
        assert (several["step"], several["epoch"]) == (one["step"], one["epoch"])
        torch.testing.assert_close(several["model"], one["model"], rtol=0, atol=2e-5)
        torch.testing.assert_close(several["averaged"], one["averaged"], rtol=0, atol=2e-5)
    log = (output / "train.log").read_text()
    assert f"({num_processes} x cpu), 8 samples" in log
    assert log.count("imbalance=") == 6
    assert {line["kind"] for line in found if line.get("imbalance", 0) >= 1} == {"train"}
    assert not list(output.glob("train_rank*.log"))  # nothing went wrong there


@pytest.mark.long
def test_unreadable_samples_and_steps_that_are_not_finite_are_logged_once_as_in_a_single_process(
    launch: Callable[..., Launched], tmp_path: Path
):
    run = make_tiny_run(tmp_path / "tiny", dropout=0.0)
    rewrite_features(
        run, lambda each: replace(each, condition=3e38 + 0 * each.condition) if each.id == "u15" else each
    )
    one_utterance_a_file(run.folder / "features")
    damage(run)
    settings = of_batch(4) | {"val_interval": 100, "ema_decay": 0, "grad_accumulation": 1}
    assert run.train(**settings) == 0
    output = tmp_path / "run"
    training = launch(run, 2, output_dir=output, **settings | {"batch_size": 2, "num_workers": 1})
    assert training.wait() == 0, training.screen.read_text()

    def skipped(run_dir: Path, pattern: str) -> list[str]:
        return sorted(re.findall(pattern, (run_dir / "train.log").read_text()))

    a_sample, a_step = r"Skipped (u\d+__u\d+) ", r"Skipped step (\d+):"
    assert len(skipped(run.output, a_sample)) == len(UNREADABLE) == 10
    assert skipped(output, a_sample) == skipped(run.output, a_sample)
    assert len(skipped(run.output, a_step)) == 2  # once in each epoch
    assert skipped(output, a_step) == skipped(run.output, a_step)
    assert not list(output.glob("train_rank*.log"))
    one, several = (
        [line["mel_loss"] for line in metrics_lines(folder) if line["kind"] == "train"]
        for folder in (run.output, output)
    )
    assert several == pytest.approx(one, rel=1e-5)


@pytest.mark.long
def test_all_ranks_choose_the_same_automatic_settings(launch: Callable[..., Launched], tmp_path: Path):
    run, output = make_tiny_run(tmp_path / "tiny"), tmp_path / "run"
    training = launch(run, 2, output_dir=output, **dict.fromkeys(TYPED), step_pairs=8, max_steps=2)
    assert training.wait() == 0, training.screen.read_text()
    settings = CheckpointMeta.read(output / "latest.json").settings
    [logged] = re.findall(r"--batch-tokens=(\d+) --grad", (output / "train.log").read_text())
    assert settings["batch_tokens"] == int(logged)
    assert not list(output.glob("train_rank*.log"))


# --- a change of the world size ---


@pytest.mark.long
def test_a_run_resumes_on_two_and_four_ranks_and_back_with_each_sample_once(
    marked: TinyRun, launch: Callable[..., Launched], tmp_path: Path
):
    run = copy_of(marked, tmp_path / "tiny")  # 12 of the 22 samples of the second epoch are done
    going_on = {**EVERY_STEP, "epochs": 2, "resume": "auto", "batch_size": 1}
    for num_processes, max_steps, accumulation in ((2, 7, 2), (4, 8, 1)):
        changes = {**going_on, "max_steps": max_steps, "grad_accumulation": accumulation}
        training = launch(run, num_processes, **changes)
        assert training.wait() == 0, training.screen.read_text()
        if num_processes == 2:
            assert "Processes: 1 -> 2" in run.log
        assert newest(run)["step"] == max_steps
    assert run.train(**going_on, max_steps=0) == 0
    assert newest(run)["epoch"] == 2
    seen = seen_by_step(run)
    assert [len(seen[step]) for step in range(5, newest(run)["step"] + 1)] == [6, 6, 4, 4, 2]
    times = Counter(name for step in range(5, newest(run)["step"] + 1) for name in seen[step])
    assert times == {each.id: 1 for each in read_pairs(run.folder / "train_pairs.jsonl")}


@pytest.mark.long
def test_two_ranks_keep_one_copy_of_a_base_that_another_run_deletes(
    launch: Callable[..., Launched], tmp_path: Path
):
    run, full, output = make_tiny_run(tmp_path / "tiny"), tmp_path / "full", tmp_path / "run"
    assert run.train(output_dir=full, max_steps=2) == 0
    settings = {"base_checkpoint": full / "latest.pth", "output_dir": output, "lora_rank": 4, "batch_size": 1}
    training = launch(run, 2, **settings, max_steps=2)
    assert training.wait() == 0, training.screen.read_text()
    [kept] = output.glob("base-*.pth")
    assert CheckpointMeta.read(output / "latest.json").base.path == str(kept.resolve())
    shutil.rmtree(full)
    training = launch(run, 2, **settings, max_steps=4, resume="auto")
    assert training.wait() == 0, training.screen.read_text()
    assert CheckpointMeta.read(output / "latest.json").step == 4
    assert list(output.glob("base-*.pth")) == [kept]


# --- ends ---


def last_step(run: TinyRun) -> int:
    path = run.output / "metrics.jsonl"
    lines = metrics_lines(run.output) if path.is_file() else []
    return max((line["step"] for line in lines if line["kind"] == "train"), default=0)


def test_a_killed_rank_ends_the_run_and_its_log_is_named(
    marked: TinyRun, launch: Callable[..., Launched], tmp_path: Path
):
    run = copy_of(marked, tmp_path / "tiny")
    training = launch(run, 2, **ENDLESS | EVERY_STEP, max_steps=0, resume="auto", batch_size=1)
    training.wait_until(lambda: last_step(run) > 8, "no step")
    training.kill(rank=1)
    assert training.wait() != 0
    status, reason = ending(run.output)
    assert status == PROCESS_LOST
    assert reason.startswith("Rank 1 ")
    assert "train_rank1.log" in reason
    assert f"[Error] {reason}" in run.log
    assert verify_checkpoint(run.output / "latest.pth").step > 6

    epochs = newest(run)["epoch"] + 1
    assert run.train(**EVERY_STEP, epochs=epochs, max_steps=0, resume="auto", batch_size=1) == 0
    assert newest(run)["epoch"] == epochs
    times = Counter(name for names in seen_by_step(run).values() for name in names)
    assert times == {each.id: epochs for each in read_pairs(run.folder / "train_pairs.jsonl")}


@pytest.mark.long
def test_a_signal_before_loading_ends_all_ranks_immediately(launch: Callable[..., Launched], tmp_path: Path):
    run = make_tiny_run(tmp_path / "tiny")
    training = launch(run, 2, **ENDLESS)
    training.wait_until((run.output / ".lock").is_file, "no owner")  # then torch is imported
    training.launcher.send_signal(signal.SIGTERM)
    training.wait()
    assert "forcefully exiting" not in training.screen.read_text()  # torchrun's SIGKILL after 30 s
    assert not (run.output / "latest.pth").exists()


@pytest.mark.long
def test_a_signal_to_the_launcher_saves_once(launch: Callable[..., Launched], tmp_path: Path):
    run = make_tiny_run(tmp_path / "tiny")
    training = launch(run, 2, **ENDLESS, save_interval=100_000, num_workers=1)
    training.wait_until(lambda: last_step(run) > 2, "no step")
    training.launcher.send_signal(signal.SIGTERM)
    training.wait()
    assert ending(run.output) == (128 + signal.SIGTERM, "stopped")
    assert run.log.count("Saved ") == 1
    assert verify_checkpoint(run.output / "latest.pth").step == last_step(run)
    assert re.search(rf"\[Info\] .*step {last_step(run)}\b.*--resume auto", run.log)


@pytest.mark.long
def test_torchrun_restarts_the_ranks_and_the_run_resumes(launch: Callable[..., Launched], tmp_path: Path):
    run = make_tiny_run(tmp_path / "tiny")
    training = launch(run, 2, "--max-restarts=2", **ENDLESS, save_interval=5, resume="auto")
    training.wait_until(lambda: (run.output / "latest.json").is_file(), "no checkpoint")
    training.kill(rank=0)
    training.wait_until(lambda: "; restart 1" in run.log, "no restart")
    before = last_step(run)
    training.wait_until(lambda: last_step(run) > before + 5, "no step after the restart")
    training.launcher.send_signal(signal.SIGINT)
    training.wait()
    assert ending(run.output) == (128 + signal.SIGINT, "stopped")
    starts = [line["step"] for line in metrics_lines(run.output) if line["kind"] == "start"]
    assert starts[0] == 0
    assert starts[1] > 0


@pytest.mark.long
def test_an_error_of_one_rank_ends_all_with_its_status(launch: Callable[..., Launched], tmp_path: Path):
    run = make_tiny_run(tmp_path / "tiny")
    assert run.train(max_steps=2) == 0
    content = (run.output / "latest.pth").read_bytes()
    for path in run.output.glob("*.pth"):
        path.write_bytes(content[:-100])
    assert launch(run, 2, resume="auto").wait() != 0
    assert ending(run.output)[0] == 3
    assert re.search(r"Rank 0 .*: Resume failed: ", (run.output / "train_rank1.log").read_text())
