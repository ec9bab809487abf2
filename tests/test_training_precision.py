"""Tests of what float32 and bfloat16 lose: moments, small updates, and checkpoints after resumes."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from demo.make_base_checkpoint import random_model
from indextts.training.averaging import WeightAverage
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


METADATA = 256  # bytes for what a checkpoint notes about a resume; tensors are aligned to 64


def lost_share(moved: Tensor, exact: Tensor) -> float:
    """Return the error of a movement relative to the exact one."""
    return float((moved.double() - exact).norm() / exact.norm())


def test_an_average_over_ten_thousand_steps_follows_rows_that_move_by_millionths():
    # of the scale of embedding rows; of a weight near 1, float32 loses 5 % of such a movement
    weight = nn.Parameter(0.02 * torch.randn(1000, generator=torch.Generator().manual_seed(0)))
    start = weight.detach().double()
    average = WeightAverage(
        TrainedParameters({"weight": weight}, (), frozenset()),
        0.9999,
        {"weight": weight.detach().clone()},
        num_updates=1_000_000,  # past the bound of its beginning
    )
    exact = start.clone()
    for _ in range(2000):
        with torch.no_grad():
            weight += 1e-6
        average.update(torch.tensor(0.0))
        exact += 1e-4 * (weight.detach().double() - exact)
    assert lost_share(average.weights["weight"].double() - start, exact - start) < 0.01


@pytest.mark.parametrize("flags", [{}, {"lora_rank": 4}], ids=["full", "lora"])
def test_weights_at_a_small_rate_move_with_amp_as_in_float64(tiny: TinyRun, flags: dict[str, object]):
    twins: dict[nn.Parameter, tuple[Tensor, Tensor, torch.optim.AdamW]] = {}

    def repeat(optimizer: torch.optim.Optimizer, *_: object) -> None:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.dtype == torch.float64:
                    return  # the step of a twin
                if parameter not in twins:
                    twin = nn.Parameter(parameter.detach().double())
                    adam = torch.optim.AdamW([twin], betas=group["betas"], eps=group["eps"])
                    twins[parameter] = twin.detach().clone(), twin, adam
                _, twin, adam = twins[parameter]
                # the fused kernel divides by the scale that clips
                twin.grad = parameter.grad.double() / optimizer.grad_scale.double()
                adam.param_groups[0].update(lr=group["lr"], weight_decay=group["weight_decay"])
                adam.step()

    hook = register_optimizer_step_pre_hook(repeat)
    try:
        assert tiny.train(amp=True, learning_rate=1e-6, max_steps=12, **flags) == 0
    finally:
        hook.remove()
    # rows and adapters; gains near 1 have 16 float32 values per millionth, and are off by 3 %
    small = [(parameter, *twin) for parameter, twin in twins.items() if parameter.abs().max() < 0.25]
    assert len(small) > 3
    for parameter, start, twin, _ in small:
        assert lost_share(parameter.detach().double() - start, twin.detach() - start) < 0.01


@pytest.mark.parametrize("flags", [{}, {"ema_decay": 0.9}, {"lora_rank": 4}], ids=["full", "average", "lora"])
def test_checkpoints_do_not_grow_with_resumes(tiny: TinyRun, flags: dict[str, object]):
    def size_after(steps: int, output: Path = tiny.output) -> int:
        every = {"save_interval": 1, "val_interval": 1, "resume": "auto"}
        assert tiny.train(max_steps=steps, output_dir=output, **every, **flags) == 0
        return (output / "latest.pth").stat().st_size

    sizes = [size_after(steps) for steps in range(2, 8)]
    assert sizes[2:] == [sizes[1]] * 4
    assert sizes[1] - sizes[0] <= METADATA
    # other pieces: as large as a checkpoint of a run that always had them
    tiny.resize_tokenizer(by=3)
    assert abs(size_after(2) - size_after(2, tiny.folder / "fresh")) <= METADATA
