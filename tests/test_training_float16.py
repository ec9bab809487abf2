"""Tests of float16 with a gradient scaler, as on a GPU without bfloat16; here on the CPU's float16."""

from pathlib import Path

import pytest
import torch

from indextts.models.checkpoint import read_file, read_weights
from indextts.training import loop
from indextts.training import run as run_module
from indextts.training.run import Run
from tests.run_checks import metrics_lines, problems_at_end
from tests.tiny_run import make_tiny_run, signalled_in_step

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
