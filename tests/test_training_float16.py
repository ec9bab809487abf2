"""Tests of float16 with a gradient scaler, as on a GPU without bfloat16; here on the CPU's float16."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from indextts.commands.terminal import parse
from indextts.commands.train import Train
from indextts.models.checkpoint import read_file, read_weights
from indextts.system.signals import StopRequest
from indextts.training import loop
from indextts.training import run as run_module
from indextts.training.batches import MicroBatch
from indextts.training.groups import endless_groups
from indextts.training.loop import Update, clip_and_step
from indextts.training.run import Run, load_inputs
from indextts.training.start import start_from_base
from tests.run_checks import metrics_lines, problems_at_end
from tests.tiny_run import TinyRun, accumulate_group, make_tiny_run, signalled_in_step

NO_STOP = StopRequest(ends_process=False)
SETTINGS: dict[str, object] = {
    "amp": True,
    "max_steps": 6,
    "keep_checkpoints": 9,
    "log_interval": 1,
    "emotion_from": "prompt",  # the vectors of these runs are noise: a target's would tell which clip it is
}
KINDS = [{}, pytest.param({"lora_rank": 4}, marks=pytest.mark.long)]


@pytest.fixture(autouse=True)
def float16(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let --amp choose as on a GPU without bfloat16."""
    monkeypatch.setattr(run_module, "autocast_dtype", lambda amp, _: torch.float16 if amp else torch.float32)


@pytest.mark.parametrize("kind", KINDS, ids=["full", "LoRA"])
def test_float16_learns_and_a_stopped_run_ends_bit_identical(tmp_path: Path, kind: dict[str, object]):
    run = make_tiny_run(tmp_path / "tiny", dropout=0.0)
    plain = tmp_path / "float32"
    assert run.train(**SETTINGS | kind | {"amp": False, "output_dir": plain}) == 0
    assert run.train(**SETTINGS, **kind) == 0
    content = read_file(run.output / "latest.pth")
    assert content["meta"]["environment"]["arithmetic"] == "float16"
    assert content["scaler"]["scale"] >= 1
    lines, expected = metrics_lines(run.output), metrics_lines(plain)
    losses, exact = ([x["mel_loss"] for x in each if x["kind"] == "val"] for each in (lines, expected))
    assert losses[0] == pytest.approx(exact[0], rel=1e-3)
    assert losses[0] != exact[0]
    assert losses[-1] < 0.95 * losses[0]  # although the first steps are skipped, until the scale is found
    assert "Skipped step 1:" in run.log
    weights = read_weights(run.output / "latest.pth")
    assert {tensor.dtype for tensor in weights.values()} == {torch.float32}

    resumed = tmp_path / "resumed"
    with signalled_in_step(4):
        assert run.train(output_dir=resumed, **SETTINGS, **kind) == 143
    assert run.train(output_dir=resumed, resume="auto", **SETTINGS) == 0
    assert "Restoring gradient scaler state..." in (resumed / "train.log").read_text()
    assert problems_at_end(run.output, resumed, run.folder / "base/gpt.pth") == []


@pytest.mark.parametrize("kind", KINDS, ids=["full", "LoRA"])
def test_a_step_that_overflows_changes_nothing_and_halves_the_scale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: dict[str, object]
):
    run = make_tiny_run(tmp_path / "tiny")
    accumulate = loop.accumulate
    changed: list[bool] = []

    def with_huge_scale(this: Run, *given: object) -> object:
        if this.state.step == 2:
            this.scaler.load_state_dict({**this.scaler.state_dict(), "scale": 2.0**40})
        return accumulate(this, *given)  # type: ignore[arg-type]

    train_step = loop.train_step

    def watched(this: Run, *given: object) -> object:
        before = {name: each.detach().clone() for name, each in this.trained.parameters.items()}
        result = train_step(this, *given)  # type: ignore[arg-type]
        changed.append(
            any(not torch.equal(each, this.trained.parameters[name]) for name, each in before.items())
        )
        return result

    monkeypatch.setattr(loop, "accumulate", with_huge_scale)
    monkeypatch.setattr(loop, "train_step", watched)
    assert run.train(**{**SETTINGS, "max_steps": 4}, **kind) == 0
    assert changed[1:3] == [True, False]
    assert "Skipped step 3:" in run.log
    assert read_file(run.output / "latest.pth")["scaler"]["scale"] <= 2.0**39


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> TinyRun:
    return make_tiny_run(tmp_path_factory.mktemp("scaler") / "tiny", dropout=0.0)


def new_run(project: TinyRun, **changes: object) -> Run:
    return start_from_base(load_inputs(parse(Train, project.flags(**changes))))


def take_step(run: Run, groups: Iterator[list[MicroBatch]]) -> tuple[float, Update]:
    sums, loss = accumulate_group(run, next(groups))
    assert sums is not None
    assert loss is not None
    done = clip_and_step(run.trained, run.optimizer, 1e-3, 1.0, loss, run.scaler)
    return float(loss), done


def test_scaled_gradients_move_the_weights_as_those_of_float32(project: TinyRun):
    scaled, plain = new_run(project, amp=""), new_run(project)
    assert scaled.inputs.dtype == torch.float16
    assert scaled.scaler.is_enabled()
    assert not plain.scaler.is_enabled()
    scaled = replace(scaled, scaler=torch.amp.GradScaler("cpu", init_scale=2.0**10))
    groups, other_groups = endless_groups(scaled, NO_STOP), endless_groups(plain, NO_STOP)
    for _ in range(3):
        loss, done = take_step(scaled, groups)
        wanted_loss, wanted = take_step(plain, other_groups)
        assert loss == pytest.approx(wanted_loss, rel=1e-3)
        assert float(done.norm) == pytest.approx(float(wanted.norm), rel=1e-2)
        assert float(done.is_skipped) == 0


def test_a_float32_run_resumes_in_float16_with_a_fresh_scaler(tmp_path: Path):
    tiny = make_tiny_run(tmp_path / "tiny")
    assert tiny.train(max_steps=2) == 0
    assert read_file(tiny.output / "latest.pth")["scaler"] is None
    assert tiny.train(amp="", max_steps=4, resume="auto") == 0
    assert "AMP enabled but no scaler state" in tiny.log
    assert "[Info] Restoring optimizer state..." in tiny.log
    assert read_file(tiny.output / "latest.pth")["scaler"]["scale"] > 0


def test_only_a_gpu_without_bfloat16_computes_in_float16(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.undo()
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    for is_native, wanted in ((True, (torch.bfloat16,) * 2), (False, (torch.float32, torch.float16))):
        monkeypatch.setattr(
            "indextts.training.run.has_native_bfloat16", lambda _, is_native=is_native: is_native
        )
        assert (run_module.autocast_dtype(True, cpu), run_module.autocast_dtype(True, gpu)) == wanted
        assert run_module.autocast_dtype(False, gpu) == torch.float32
