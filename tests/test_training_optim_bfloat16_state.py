"""Tests of indextts/training/optim.py: bfloat16 moments learn, and resume bit-identically."""

from pathlib import Path

import pytest
import torch

from indextts.models.gpt.weights import random_model
from indextts.training.loop import clip_and_step
from indextts.training.optim import TrainedParameters, build_optimizer, select_trained, stochastically_rounded
from tests.test_training_averaging import SETTINGS, saved, standing_at
from tests.test_training_optim import BASE_SIZE, backward
from tests.tiny_gpt import TINY
from tests.tiny_run import TinyRun, make_tiny_run

BFLOAT16 = torch.bfloat16


def test_stochastic_rounding_gives_neighbors_and_keeps_the_mean():
    value = 1.0 + 2**-7 * 0.3  # between 1 and the next bfloat16, 1 + 2**-7
    values = torch.full((100_001,), value)  # no multiple of the four of a draw
    found = stochastically_rounded(values.clone(), torch.Generator().manual_seed(0))
    assert set(found.tolist()) == {1.0, 1.0 + 2**-7}
    assert float(found.mean()) == pytest.approx(value, abs=2**-7 * 0.01)
    exact = torch.tensor([0.0, 1.0, 2.5e-20, 3.0]).bfloat16().float()
    assert torch.equal(stochastically_rounded(exact.clone(), torch.Generator().manual_seed(1)), exact)


@pytest.fixture
def after_a_step() -> tuple[TrainedParameters, torch.optim.AdamW]:
    model = random_model(TINY, seed=0)
    trained = select_trained(model, BASE_SIZE)
    optimizer = build_optimizer(trained, weight_decay=0.1, state=BFLOAT16)
    loss = backward(model)
    clip_and_step(trained, optimizer, 1e-2, max_norm=1.0, loss=loss)
    return trained, optimizer


def test_a_step_that_is_not_finite_changes_neither_weights_nor_moments(
    after_a_step: tuple[TrainedParameters, torch.optim.AdamW],
):
    trained, optimizer = after_a_step
    before = {name: parameter.detach().clone() for name, parameter in trained.parameters.items()}
    moments = {
        (name, key): tensor.clone()
        for name, parameter in trained.parameters.items()
        for key, tensor in optimizer.state[parameter].items()
    }
    assert all(tensor.dtype == BFLOAT16 for (_, key), tensor in moments.items() if key != "step")
    for parameter in trained.parameters.values():
        parameter.grad = torch.full_like(parameter, torch.nan)
    for rows in trained.text_rows:
        rows.table.grad = torch.full_like(rows.table, torch.nan)
    optimizer.rounding_seed = 7
    assert float(clip_and_step(trained, optimizer, 1e-2, 1.0, torch.tensor(1.0)).is_skipped) == 1
    for name, parameter in trained.parameters.items():
        assert torch.equal(parameter, before[name])
        for key, tensor in optimizer.state[parameter].items():
            assert torch.equal(tensor, moments[name, key])


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> TinyRun:
    run = make_tiny_run(tmp_path_factory.mktemp("short") / "tiny")
    assert run.train(optimizer_state="bfloat16", **SETTINGS) == 0
    return run


def test_a_resume_may_change_the_type_of_the_moments(short: TinyRun, tmp_path: Path):
    run = standing_at(short, tmp_path / "tiny", step=4)
    assert run.train(resume="auto", optimizer_state="float32", **SETTINGS | {"max_steps": 5}) == 0
    state = saved(run, 5)["optimizer"]["state"][0]
    assert state["exp_avg"].dtype == torch.float32
    assert float(state["step"]) == 5
    assert run.train(resume="auto", optimizer_state="bfloat16", **SETTINGS) == 0
    assert saved(run, 6)["optimizer"]["state"][0]["exp_avg"].dtype == BFLOAT16
