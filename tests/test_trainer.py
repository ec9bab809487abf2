"""Tests of trainers/train_gpt_v2.py: the trainer on a tiny model, with real files and real signals."""

import json
import re
import shutil
from pathlib import Path

import pytest
import torch

from indextts.commands.terminal import parse
from indextts.commands.train import Train
from indextts.errors import UserError
from indextts.models.checkpoint import TEXT_TABLES
from indextts.runs.directory import CheckpointMeta, read_metrics, verify_checkpoint
from indextts.training import run as device
from tests.tiny_run import SENTENCES, TinyRun, describe_restore, make_tiny_run


def load(path: Path) -> dict:
    return torch.load(path, weights_only=True)


def numbers(run: TinyRun, *, kind: str) -> dict[int, dict[str, float]]:
    """Return the losses of each line of metrics.jsonl by step, without what the clock decides."""
    lines = read_metrics(run.output / "metrics.jsonl")
    clock = ("time", "tokens_per_second", "data_wait")
    return {
        line["step"]: {k: v for k, v in line.items() if k not in clock}
        for line in lines
        if line["kind"] == kind
    }


def copy_checkpoint(source: TinyRun, step: int, target: TinyRun) -> None:
    target.output.mkdir(exist_ok=True)
    for suffix in (".pth", ".json"):
        shutil.copy(source.output / f"model_step{step}{suffix}", target.output)


def copy_best(source: TinyRun, target: TinyRun) -> None:
    for suffix in (".pth", ".json"):
        shutil.copy(source.output / f"best{suffix}", target.output)


def best_of(run: TinyRun) -> CheckpointMeta:
    """Return the meta of the best checkpoint, which is valid."""
    return verify_checkpoint(run.output / "best.pth")


def test_a_run_learns_and_writes_the_documented_files(complete_run: TinyRun):
    validations = numbers(complete_run, kind="val")
    assert list(validations) == [0, 3, 6, 9, 12]
    assert validations[12]["mel_loss"] < 0.7 * validations[0]["mel_loss"]
    assert validations[12]["new_text_loss"] < validations[0]["new_text_loss"]
    assert list(numbers(complete_run, kind="train")) == [2, 4, 6, 8, 10, 12]
    names = {path.name for path in complete_run.output.iterdir()}
    assert {"config.json", "latest.pth", "latest.json", "best.pth", "best.json", "train.log"} <= names
    assert {"tokenizer.model", "metrics.jsonl", "logs", "exit.json", "model_step12.json"} <= names
    assert json.loads((complete_run.output / "exit.json").read_text())["reason"] == "finished"
    config = json.loads((complete_run.output / "config.json").read_text())
    assert config["command"]["epochs"] == 3
    assert config["versions"]["torch"] == torch.__version__


def test_the_log_has_the_documented_lines(complete_run: TinyRun):
    for line in (
        "[Extended Vocab Fix] Detected extended vocabulary: 720 tokens",
        "[Extended Vocab Fix] Base tokens: 0-399 (pretrained)",
        "[Extended Vocab Fix] New tokens: 400-719",
        "[Extended Vocab Fix] Applying gradient masking to freeze base embeddings",
        "[Extended Vocab Fix] Freezing 13200 / 65665 parameters",
        "[Extended Vocab Fix] Base embeddings frozen, new embeddings trainable",
        "[Train] epoch=0 step=2 text_loss=",
        "[Train] epoch=0 step=4 text_loss=",
        "[Val] epoch=0 step=0 text_loss=",
        "Training complete.",
    ):
        assert line in complete_run.log


def test_a_checkpoint_has_the_documented_keys_and_every_weight_of_the_base(complete_run: TinyRun):
    checkpoint = load(complete_run.output / "latest.pth")
    known = "model optimizer scheduler scaler epoch step batch_idx recent_checkpoints manifests learning_rate"
    assert set(known.split()) <= checkpoint.keys()
    assert {
        "text_loss_weight",
        "mel_loss_weight",
        "rng",
        "tokenizer",
        "sampler",
        "format_version",
    } <= checkpoint.keys()
    assert checkpoint["model"].keys() == load(complete_run.folder / "base/gpt.pth").keys()
    assert len(checkpoint["model"]["text_embedding.weight"]) == 721
    assert len(checkpoint["tokenizer"]["pieces"]) == 720


@pytest.mark.failure(62)
def test_the_base_rows_stay_bit_identical_and_the_new_rows_change(complete_run: TinyRun):
    base = load(complete_run.folder / "base/gpt.pth")
    trained = load(complete_run.output / "latest.pth")["model"]
    first = load(complete_run.output / "model_step1.pth")["model"]
    for name in TEXT_TABLES:
        size = complete_run.base_size
        assert torch.equal(trained[name][:size], base[name][:size])
        assert not torch.equal(trained[name][size:], first[name][size:])
    for name in base:
        if name.startswith(("conditioning_encoder.", "emo_")):
            assert torch.equal(trained[name], base[name])


def test_a_frozen_body_without_new_rows_is_refused(tiny: TinyRun):
    assert tiny.train(tokenizer=tiny.folder / "base/bpe.model", freeze_body_steps=3) == 2
    assert "--freeze-body-steps 3" in tiny.log


@pytest.mark.failure(11)
def test_another_tokenizer_keeps_common_rows_and_restarts_everything_else(
    complete_run: TinyRun, tiny: TinyRun
):
    copy_checkpoint(complete_run, 12, tiny)
    size = tiny.resize_tokenizer(by=1)
    assert tiny.train(resume="auto", warmup_steps=4) == 0
    for line in (
        "WARNING: Vocab size mismatch!",
        f"Checkpoint vocab: {size - 1}",
        f"Current tokenizer: {size}",
        "[Info] SKIPPING optimizer, scheduler, AND scaler restore",
        "[Info] AUTOMATIC FIX: Skipping incompatible optimizer state",
        "[Info] Using FRESH optimizer with initial LR and warmup",
        "[Info] Training will RESTART from step 0 (was at step 12)",
        "[Info]    Epoch: 0, Step: 0, Batch: 0",
    ):
        assert line in tiny.log
    assert "Restoring optimizer state" not in tiny.log
    assert "Restoring scheduler state" not in tiny.log
    lines = [line for line in read_metrics(tiny.output / "metrics.jsonl") if line["part"] == 2]
    assert next(line["lr"] for line in lines if line["kind"] == "train") == pytest.approx(0.01 * 2 / 4)
    validations = [line for line in lines if line["kind"] == "val"]
    # what was learned is kept: far below an untrained start, and it learns on
    assert validations[0]["mel_loss"] < 0.8 * numbers(complete_run, kind="val")[0]["mel_loss"]
    assert validations[-1]["mel_loss"] < validations[0]["mel_loss"]
    # the files of the older part stay under other names, and the new ones are the newest
    older = verify_checkpoint(tiny.output / "model_step12.part1.pth")
    assert older.tokenizer_size == size - 1
    assert CheckpointMeta.read(tiny.output / "latest.json").serial > older.serial
    newest = load(tiny.output / "latest.pth")
    assert newest["step"] == 12
    assert float(newest["optimizer"]["state"][0]["step"]) == 12
    assert len(newest["model"]["text_embedding.weight"]) == size + 1


@pytest.mark.failure(63)
def test_another_tokenizer_keeps_the_settings_that_are_not_typed(complete_run: TinyRun, tiny: TinyRun):
    copy_checkpoint(complete_run, 12, tiny)
    tiny.resize_tokenizer(by=1)
    before = CheckpointMeta.read(tiny.output / "model_step12.json").settings
    of_run = sorted(set(Train.model_fields) - Train.of_process)
    untyped = {name: None for name in of_run if name != "learning_rate"}
    assert tiny.train(resume="auto", learning_rate=0.02, **untyped) == 0
    now = CheckpointMeta.read(tiny.output / "latest.json")
    assert (now.part, now.step) == (2, 12)
    assert {name for name in of_run if now.settings[name] != before[name]} == {"learning_rate"}
    lines = [line for line in read_metrics(tiny.output / "metrics.jsonl") if line["part"] == 2]
    assert next(line["lr"] for line in lines if line["kind"] == "train") > 0.018


@pytest.mark.parametrize(
    "scheduler", [None, pytest.param({"last_epoch": 8, "_last_lr": [0.001]}, marks=pytest.mark.long)]
)
@pytest.mark.failure(71)
def test_a_rebuilt_schedule_is_not_reported_as_restored(
    complete_run: TinyRun, tiny: TinyRun, scheduler: dict | None
):
    tiny.output.mkdir()
    known = ("model", "optimizer", "epoch", "step")
    content = {
        key: value for key, value in load(complete_run.output / "model_step8.pth").items() if key in known
    }
    torch.save({**content, "scheduler": scheduler}, tiny.output / "latest.pth")
    assert tiny.train(resume="auto", max_steps=9) == 0
    assert "[Info] Restoring optimizer state..." in tiny.log
    assert "rebuilt from step 8" in tiny.log
    assert "Restoring scheduler state" not in tiny.log


def moments(run: TinyRun) -> dict[str, torch.Tensor]:
    optimizer = load(run.output / "latest.pth")["optimizer"]
    return {
        name: optimizer["state"][number]["exp_avg"]
        for group in optimizer["param_groups"]
        for name, number in zip(group["param_names"], group["params"], strict=True)
    }


def test_the_loss_of_each_head_has_the_weight_of_its_flag(tiny: TinyRun):
    assert tiny.train(text_loss_weight=0, max_steps=1) == 0
    assert not moments(tiny)["text_head.bias"].any()
    assert moments(tiny)["mel_head.bias"].any()


def test_every_micro_step_has_its_own_dropout(tiny: TinyRun, monkeypatch):
    seeds: list[int] = []
    seed = torch.manual_seed
    monkeypatch.setattr(torch, "manual_seed", lambda number: seeds.append(number) or seed(number))
    assert tiny.train(epochs=1) == 0
    assert len(set(seeds)) == len(seeds) == 8


def test_micro_steps_are_weighted_by_their_tokens(tmp_path: Path):
    # The moments and not the weights: after one step they are the gradients, while a weight moves by the
    # learning rate times a gradient over itself, which makes a whole step of what rounding leaves of a zero.
    gradients = []
    for name, settings in (("whole", (4, 1)), ("split", (3, 2))):  # a step of 4 pairs, or of 3 and 1
        run = make_tiny_run(tmp_path / name, num_train=4, num_codes=12, text=SENTENCES[0], dropout=0.0)
        assert run.train(batch_size=settings[0], grad_accumulation=settings[1], epochs=1) == 0
        gradients.append(moments(run))
    whole, split = gradients
    assert whole.keys() == split.keys()
    for name, gradient in whole.items():
        tolerance = 1e-4 * gradient.abs().max().item()
        torch.testing.assert_close(split[name], gradient, rtol=0, atol=tolerance, msg=name)


@pytest.mark.failure(64)
def test_a_new_part_keeps_a_better_best_checkpoint(complete_run: TinyRun, tiny: TinyRun):
    copy_checkpoint(complete_run, 10, tiny)
    copy_best(complete_run, tiny)
    before = best_of(tiny)
    flags = {"resume": tiny.output / "model_step10.pth", "max_steps": 14, "val_interval": 2}
    assert tiny.train(learning_rate=1.0, epochs=10, **flags) == 0
    newest = CheckpointMeta.read(tiny.output / "latest.json")
    assert (newest.part, newest.step) == (2, 14)
    assert newest.validation_mel_loss == numbers(tiny, kind="val")[14]["mel_loss"]
    assert newest.validation_mel_loss > numbers(complete_run, kind="val")[before.step]["mel_loss"]
    assert best_of(tiny) == before


@pytest.mark.failure(65)
def test_other_validation_pairs_reset_best_and_patience_with_one_log_line(
    complete_run: TinyRun, tiny: TinyRun
):
    copy_checkpoint(complete_run, 10, tiny)
    flags = {"max_val_batches": 1, "learning_rate": 1.0, "epochs": 10, "val_interval": 1, "patience": 50}
    planned = "Best validation: starts fresh"
    for max_steps in (11, 12):
        plan = describe_restore(parse(Train, tiny.flags(resume="auto", max_steps=max_steps, **flags)))
        assert (planned in plan) == (max_steps == 11)
        assert tiny.train(resume="auto", max_steps=max_steps, **flags) == 0
        assert tiny.log.count(f"[Warn] {planned}") == 1
    losses = {step: line["mel_loss"] for step, line in numbers(tiny, kind="val").items()}
    step = min((11, 12), key=lambda step: losses[step])
    assert (best_of(tiny).step, best_of(tiny).validation_mel_loss) == (step, losses[step])
    state = load(tiny.output / "latest.pth")["state"]
    assert state["num_worse"] == (0 if state["validated_step"] == best_of(tiny).step else 1)


def test_a_run_stops_early_when_validations_stop_improving(tiny: TinyRun):
    # so small a rate changes no weight: every loss is the same, whatever the processor's arithmetic
    flags = {"learning_rate": 1e-30, "warmup_steps": 0, "val_interval": 2, "max_steps": 20, "epochs": 10}
    assert tiny.train(patience=3, **flags) == 0
    losses = [line["mel_loss"] for step, line in numbers(tiny, kind="val").items() if step]
    assert len(losses) == 1 + 3
    assert len(set(losses)) == 1
    assert re.search(r"\[Info\] .* 3 validations .*\(--patience\)", tiny.log)
    last = max(numbers(tiny, kind="val"))
    assert load(tiny.output / "latest.pth")["step"] == last < 20
    # the same command has nothing more to do, a longer patience has
    assert tiny.train(patience=3, resume="auto", **flags) == 0
    assert load(tiny.output / "latest.pth")["step"] == last
    assert tiny.train(patience=5, resume="auto", **flags) == 0
    assert load(tiny.output / "latest.pth")["step"] > last


@pytest.mark.long
def test_a_budget_of_positions_sees_every_sample_once_and_resumes_exactly(tmp_path: Path):
    whole, parts = make_tiny_run(tmp_path / "whole"), make_tiny_run(tmp_path / "parts")
    flags = {
        "batch_tokens": 400,
        "grad_accumulation": 1,
        "save_interval": 1,
        "keep_checkpoints": 99,
        "epochs": 2,
    }
    assert whole.train(**flags) == 0
    steps = load(whole.output / "latest.pth")["step"]
    assert read_metrics(whole.output / "metrics.jsonl")[0]["total_steps"] == steps
    middle = steps // 2 + 1
    copy_checkpoint(whole, middle, parts)
    assert 0 < load(parts.output / f"model_step{middle}.pth")["sampler"]["samples_done"] < 22
    assert parts.train(resume="auto", **flags) == 0
    ends = [load(each.output / "latest.pth")["model"] for each in (whole, parts)]
    assert all(torch.equal(tensor, ends[1][name]) for name, tensor in ends[0].items())
    assert numbers(whole, kind="val").items() >= numbers(parts, kind="val").items()


@pytest.mark.long
def test_a_resume_needs_no_base_checkpoint(complete_run: TinyRun, tiny: TinyRun):
    copy_checkpoint(complete_run, 8, tiny)
    (tiny.folder / "base/gpt.pth").unlink()
    assert tiny.train(resume="auto") == 0


def test_amp_computes_in_bfloat16(complete_run: TinyRun, tiny: TinyRun, monkeypatch):
    monkeypatch.setattr(device, "has_native_bfloat16", lambda _device: True)
    assert tiny.train(amp="") == 0
    mine, other = numbers(tiny, kind="val")[12], numbers(complete_run, kind="val")[12]
    assert mine["mel_loss"] != other["mel_loss"]
    assert mine["mel_loss"] == pytest.approx(other["mel_loss"], rel=0.05)
    assert load(tiny.output / "latest.pth")["model"]["mel_head.weight"].dtype == torch.float32


def test_a_plan_shows_what_a_resume_restores_and_changes_nothing(
    complete_run: TinyRun, tiny: TinyRun, capsys
):
    assert tiny.train(plan="", resume="auto") == 0
    assert "step 0: a new run from the base checkpoint" in capsys.readouterr().out
    assert not tiny.output.exists()
    copy_checkpoint(complete_run, 8, tiny)
    before = sorted(tiny.output.iterdir())
    assert tiny.train(plan="", resume="auto") == 0
    assert "model_step8.pth: step 8, epoch 2: the run continues" in capsys.readouterr().out
    size = tiny.resize_tokenizer(by=-1)
    assert tiny.train(plan="", resume="auto") == 0
    assert f"Text rows: {size + 1} -> {size} pieces" in capsys.readouterr().out
    with pytest.raises(UserError, match="Resume checkpoint not found"):
        tiny.train(plan="", resume=tiny.output / "absent.pth")
    assert sorted(tiny.output.iterdir()) == before
