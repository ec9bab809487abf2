"""Tests of indextts/training/averaging.py, and of what float32 and bfloat16 lose of small updates."""

import json
import re
import shutil
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from demo.make_base_checkpoint import random_model
from indextts.commands.speech import ExportModel
from indextts.commands.terminal import parse
from indextts.commands.train import Train
from indextts.errors import UserError
from indextts.models.checkpoint import TEXT_TABLES, read_weights, select_weights
from indextts.runs.directory import read_metrics
from indextts.speech.export.model_folder import export
from indextts.speech.synthesis.trained_model import load_trained
from indextts.training.averaging import WeightAverage, start_average
from indextts.training.loop import clip_and_step
from indextts.training.optim import TrainedParameters, build_optimizer, select_trained, stochastically_rounded
from indextts.training.resume import resume
from indextts.training.run import load_inputs
from tests.run_checks import differences
from tests.test_training_optim import BASE_SIZE as NUM_FROZEN
from tests.test_training_optim import backward
from tests.tiny_gpt import TINY
from tests.tiny_run import BASE_SIZE, TinyRun, describe_restore, make_tiny_run

CPU = torch.device("cpu")
SETTINGS = {"save_interval": 1, "keep_checkpoints": 9, "max_steps": 6, "val_interval": 3}


@pytest.fixture(scope="module")
def averaged(tmp_path_factory: pytest.TempPathFactory) -> TinyRun:
    run = make_tiny_run(tmp_path_factory.mktemp("averaged") / "tiny")
    assert run.train(ema_decay=0.25, **SETTINGS) == 0
    return run


def saved(run: TinyRun, step: int) -> dict:
    return torch.load(run.output / f"model_step{step}.pth", weights_only=True)


def standing_at(run: TinyRun, folder: Path, step: int) -> TinyRun:
    """Return a copy of the run as a kill right after the save of `step` would have left it."""
    shutil.copytree(run.folder, folder)
    for path in [*folder.glob("run/model_step*"), *folder.glob("run/latest*"), *folder.glob("run/best*")]:
        if path.stem != f"model_step{step}":
            path.unlink()
    return TinyRun(folder)


def test_each_step_moves_the_average_towards_the_weights_by_one_minus_the_decay(averaged: TinyRun):
    before = saved(averaged, 1)["averaged"]
    assert before["num_updates"] == 1
    for step, decay in [(2, 2 / 11), (3, 0.25), (4, 0.25)]:  # 3 / 12 is the decay itself
        content = saved(averaged, step)
        after = content["averaged"]
        assert after["num_updates"] == step
        for name, average in after["weights"].items():
            weights = content["model"][name][-len(average) :]
            expected = decay * before["weights"][name] + (1 - decay) * weights
            torch.testing.assert_close(average, expected, rtol=1e-5, atol=1e-7)
        assert not torch.equal(after["weights"]["mel_head.weight"], content["model"]["mel_head.weight"])
        before = after


def test_a_skipped_step_leaves_the_average_unchanged():
    model = random_model(TINY, seed=0)
    trained = select_trained(model, base_size=8)
    average = start_average(trained, 0.5, saved=None)
    before = {name: tensor.clone() for name, tensor in average.weights.items()}
    with torch.no_grad():
        for parameter in trained.parameters.values():
            parameter += 1.0
    average.update(torch.tensor(1.0))
    assert list(differences(average.weights, before)) == []
    average.update(torch.tensor(0.0))
    assert not torch.equal(average.weights["mel_head.weight"], before["mel_head.weight"])


def test_an_error_while_averaged_weights_are_in_place_restores_the_trained_weights():
    model = random_model(TINY, seed=0)
    average = start_average(select_trained(model, base_size=8), 0.5, saved=None)
    average.weights["mel_head.weight"] += 1.0
    raw, other = model.mel_head.weight.detach().clone(), average.weights["mel_head.weight"].clone()

    def fail() -> None:
        with average.swapped_in():
            assert torch.equal(model.mel_head.weight, other)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert torch.equal(model.mel_head.weight, raw)
    assert torch.equal(average.weights["mel_head.weight"], other)


def test_both_weights_are_validated_and_the_average_does_not_change_training(averaged: TinyRun, tmp_path):
    lines = [line for line in read_metrics(averaged.output / "metrics.jsonl") if line["kind"] == "val"]
    assert [line["step"] for line in lines] == [0, 3, 6]
    assert "averaged_mel_loss" not in lines[0]  # nothing was averaged yet
    for line in lines[1:]:
        assert line["averaged_mel_loss"] != line["mel_loss"]
        assert f"averaged weights: text_loss={line['averaged_text_loss']:.4f}" in averaged.log
    plain = TinyRun(
        shutil.copytree(averaged.folder, tmp_path / "plain", ignore=shutil.ignore_patterns("run"))
    )
    assert plain.train(**SETTINGS) == 0
    assert saved(plain, 6)["averaged"] is None
    for key in ("model", "optimizer", "best_mel_loss", "state"):
        assert list(differences(saved(averaged, 6)[key], saved(plain, 6)[key])) == []


def test_a_resumed_average_ends_bit_identical(averaged: TinyRun, tmp_path: Path):
    run = standing_at(averaged, tmp_path / "tiny", step=4)
    assert run.train(resume="auto", **SETTINGS) == 0
    assert "Restoring the weight average" in run.log
    for key in ("model", "optimizer", "averaged", "state"):
        assert list(differences(saved(run, 6)[key], saved(averaged, 6)[key], key)) == []


def test_a_checkpoint_without_an_average_resumes_and_starts_one(tmp_path: Path):
    run = make_tiny_run(tmp_path / "tiny")
    assert run.train(**SETTINGS | {"max_steps": 2}) == 0
    assert run.train(**SETTINGS | {"resume": "auto", "ema_decay": 0.5, "max_steps": 4}) == 0
    assert "--ema-decay 0.5" in run.log
    assert saved(run, 4)["averaged"]["num_updates"] == 2


def test_an_average_that_is_switched_off_is_dropped_with_a_log_line(averaged: TinyRun, tmp_path: Path):
    run = standing_at(averaged, tmp_path / "tiny", step=4)
    assert run.train(resume="auto", ema_decay=0.0, **SETTINGS) == 0
    assert "[Warn] Averaged weights: dropped: 4 updates" in run.log
    assert saved(run, 6)["averaged"] is None


def average_at_start(run: TinyRun, path: Path, **changes: object) -> WeightAverage | None:
    """Return the average of a run that resumes from `path`, before its first step."""
    command = parse(Train, run.flags(output_dir=path.parent, resume=path, ema_decay=0.25, **changes))
    return resume(load_inputs(command), path).average


def test_an_average_moves_with_the_rows_to_other_pieces(averaged: TinyRun, tmp_path: Path):
    run = standing_at(averaged, tmp_path / "tiny", step=4)
    run.resize_tokenizer(by=3)
    path = run.output / "model_step4.pth"
    before = saved(run, 4)["averaged"]["weights"]
    average = average_at_start(run, path)
    assert average.num_updates == 4
    for name, tensor in before.items():
        moved = average.weights[name]
        if name in TEXT_TABLES:  # the spare row stays the last
            assert torch.equal(moved[: len(tensor) - 1], tensor[:-1])
            assert torch.equal(moved[-1], tensor[-1])
            assert len(moved) == len(tensor) + 3
        else:
            assert torch.equal(moved, tensor), name
    plan = describe_restore(parse(Train, run.flags(resume="auto", ema_decay=0.25)))
    assert "Averaged weights: of 4 updates, moved" in plan


def test_an_average_without_text_tables_gets_them_with_new_pieces(tmp_path: Path):
    run = make_tiny_run(tmp_path / "tiny")
    lora = {"lora_rank": 4, "lora_alpha": 8, "ema_decay": 0.25, "max_steps": 2}
    base = run.folder / "base/bpe.model"
    assert run.train(**lora, tokenizer=base) == 0
    assert "text_embedding.weight" not in saved(run, 2)["averaged"]["weights"]
    average = average_at_start(run, run.output / "model_step2.pth", lora_rank=4, lora_alpha=8)
    assert average.num_updates == 2
    assert len(average.weights["text_embedding.weight"]) == run.tokenizer.size + 1 - run.base_size


def test_an_average_of_merged_adapters_is_merged_and_one_of_other_adapters_is_dropped(tmp_path: Path):
    run = make_tiny_run(tmp_path / "tiny")
    lora = {"lora_rank": 4, "lora_alpha": 8, "ema_decay": 0.25, "max_steps": 2}
    assert run.train(**lora) == 0
    path = run.output / "model_step2.pth"
    expected = select_weights(saved(run, 2), "averaged", path)
    average = average_at_start(run, path, lora_rank=0)
    assert average.num_updates == 2
    for name, tensor in average.weights.items():
        assert torch.equal(tensor, expected[name][-len(tensor) :]), name
    assert average_at_start(run, path, lora_rank=8).num_updates == 0
    plan = describe_restore(parse(Train, run.flags(**lora | {"lora_rank": 8}, resume="auto")))
    assert re.search("Averaged weights: dropped: .* 2 updates", plan)


@pytest.mark.long
def test_the_average_can_be_exported_and_synthesized(averaged: TinyRun, tmp_path: Path):
    checkpoint = averaged.output / "latest.pth"
    command = ExportModel(
        checkpoint=checkpoint,
        config=averaged.folder / "base/config.yaml",
        output_dir=tmp_path / "model",
        weights="averaged",
    )
    exported = read_weights(export(command))
    content = saved(averaged, 6)
    kept = content["averaged"]["weights"]
    for name in TEXT_TABLES:
        assert torch.equal(exported[name][:BASE_SIZE], content["model"][name][:BASE_SIZE])
        assert torch.equal(exported[name][BASE_SIZE:], kept[name])
    assert torch.equal(exported["mel_head.weight"], kept["mel_head.weight"])
    card = (tmp_path / "model/README.md").read_text()
    assert "the moving average of the weights (decay 0.25) in latest.pth" in card
    assert json.loads((tmp_path / "model/export.json").read_text())["weights"] == "averaged"
    spoken = load_trained(checkpoint, CPU, "averaged").gpt
    assert torch.equal(spoken.mel_head.weight, kept["mel_head.weight"])
    with pytest.raises(UserError, match="model"):
        load_trained(tmp_path / "model", CPU, "averaged")
    with pytest.raises(UserError, match=r"--average-last.* --weights"):
        export(command.model_copy(update={"average_last": 2, "output_dir": tmp_path / "other"}))


def test_a_checkpoint_without_an_average_is_refused(tmp_path: Path):
    with pytest.raises(UserError, match=r"old\.pth: .*--ema-decay"):
        select_weights({"model": {}}, "averaged", tmp_path / "old.pth")


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
    trained = select_trained(model, NUM_FROZEN)
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
