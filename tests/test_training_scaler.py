"""float16 with a gradient scaler, on the CPU: the behaviour of a GPU without native bfloat16."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from indextts.commands.terminal import parse
from indextts.commands.train import Train
from indextts.system.signals import StopRequest
from indextts.training.batches import MicroBatch
from indextts.training.loop import Update, clip_and_step, endless_groups
from indextts.training.run import Run, autocast_dtype, load_inputs
from indextts.training.start import start_from_base
from tests.test_trainer import load
from tests.tiny_run import TinyRun, accumulate_group, make_tiny_run

NO_STOP = StopRequest(ends_process=False)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> TinyRun:
    return make_tiny_run(tmp_path_factory.mktemp("scaler") / "tiny", dropout=0.0)


@pytest.fixture
def half(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compute in float16, as on a GPU; torch's CPU kernels know it."""
    monkeypatch.setattr(
        "indextts.training.run.autocast_dtype", lambda amp, _: torch.float16 if amp else torch.float32
    )


def new_run(project: TinyRun, **changes: object) -> Run:
    return start_from_base(load_inputs(parse(Train, project.flags(**changes))))


def take_step(run: Run, groups: Iterator[list[MicroBatch]]) -> tuple[float, Update]:
    sums, loss = accumulate_group(run, next(groups))
    assert sums is not None
    assert loss is not None
    done = clip_and_step(run.trained, run.optimizer, 1e-3, 1.0, loss, run.scaler)
    return float(loss), done


@pytest.mark.usefixtures("half")
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


@pytest.mark.usefixtures("half")
def test_a_float32_run_resumes_in_float16_with_a_fresh_scaler(tmp_path: Path):
    tiny = make_tiny_run(tmp_path / "tiny")
    assert tiny.train(max_steps=2) == 0
    assert load(tiny.output / "latest.pth")["scaler"] is None
    assert tiny.train(amp="", max_steps=4, resume="auto") == 0
    assert "AMP enabled but no scaler state" in tiny.log
    assert "[Info] Restoring optimizer state..." in tiny.log
    assert load(tiny.output / "latest.pth")["scaler"]["scale"] > 0


def test_only_a_gpu_without_bfloat16_computes_in_float16(monkeypatch: pytest.MonkeyPatch):
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    for is_native, wanted in ((True, (torch.bfloat16,) * 2), (False, (torch.float32, torch.float16))):
        monkeypatch.setattr(
            "indextts.training.run.has_native_bfloat16", lambda _, is_native=is_native: is_native
        )
        assert (autocast_dtype(True, cpu), autocast_dtype(True, gpu)) == wanted
        assert autocast_dtype(False, gpu) == torch.float32
