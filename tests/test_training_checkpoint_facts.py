"""Tests of indextts/training/checkpoint_facts.py: facts of checkpoints of this and other trainers."""

import copy
import random
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from indextts.commands.terminal import parse
from indextts.commands.train import Train
from indextts.errors import RESUME_REFUSED, USER_MISTAKE, UserError
from indextts.models.checkpoint import TEXT_TABLES, embedded_meta, move_text_rows, read_file, read_weights
from indextts.models.gpt.config import config_with_text_tokens
from indextts.models.gpt.weights import empty_model, load_model
from indextts.text.tokenizer import parse_model
from indextts.training.batches import collate_padded
from indextts.training.checkpoint_facts import OptimizerLayout, checkpoint_facts, named_moments
from indextts.training.loading import load_batches
from indextts.training.losses import padded_sums
from indextts.training.optim import select_trained
from indextts.training.order import in_batches
from indextts.training.resume import plan_from_weights, resume
from indextts.training.run import load_inputs
from tests.tiny_run import BASE_SIZE, CONFIG, TinyRun, make_tiny_run

NUM_PIECES = BASE_SIZE + 320
NUM_STEPS = 3
RATE = 2e-3


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> TinyRun:
    # the predecessor trains no other base
    return make_tiny_run(tmp_path_factory.mktemp("facts") / "tiny", model="2.0")


def predecessors_checkpoint(project: TinyRun, num_pieces: int) -> dict[str, Any]:
    """Return a checkpoint as the predecessor writes it: a plain AdamW over all parameters, no names."""
    inputs = load_inputs(parse(Train, project.flags()))
    base = read_weights(project.folder / "base/gpt.pth")
    kept = (*range(BASE_SIZE), *(-1 for _ in range(num_pieces - BASE_SIZE)), BASE_SIZE)
    weights = move_text_rows(
        base, kept, pieces=[str(number) for number in range(num_pieces)], base_size=BASE_SIZE, seed=5, part=1
    )
    model = load_model(config_with_text_tokens(CONFIG, num_pieces), weights, "base")
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.01)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
    torch.manual_seed(3)
    batches = load_batches(inputs.train_set, in_batches(range(9), 3), 0, collate_padded)
    for micro_batch in list(batches)[:NUM_STEPS]:
        batch = micro_batch.batch
        batch = replace(batch, text_ids=batch.text_ids.clamp(max=num_pieces - 1))
        sums = padded_sums(model(batch), 0)
        (sums.text_nats + sums.mel_nats).backward()
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
    state = model.state_dict()
    return {
        "model": {
            **dict(list(state.items())[:3]),
            "gpt.h.0.attn.bias": torch.ones(1, 1, 4, 4, dtype=torch.bool),  # a buffer of old libraries
            **state,
            "inference_model.lm_head.0.weight": state["final_norm.weight"],  # a second name
        },
        "optimizer": optimizer.state_dict(),
        "scheduler": scheduler.state_dict(),
        "scaler": None,
        "epoch": 1,
        "step": NUM_STEPS,
        "batch_idx": 7,
        "recent_checkpoints": ["/elsewhere/model_step1.pth", "../../model_step2.pth"],
        "manifests": {"train": ["/elsewhere/train.jsonl"], "val": []},
        "rng_state": {
            "torch_cpu": torch.get_rng_state(),
            "torch_cuda": None,
            "numpy": np.random.get_state(),
            "python": random.getstate(),
        },
        "sampler": None,
        "tokenizer": {"path": "/elsewhere/bpe.model"},
        "batch_size": 3,
        "last_losses": {"text_loss": 1.0},
    }


@pytest.fixture(scope="module")
def original(project: TinyRun) -> dict[str, Any]:
    return predecessors_checkpoint(project, NUM_PIECES)


@pytest.fixture
def foreign(original: dict[str, Any]) -> dict[str, Any]:
    return copy.deepcopy(original)


@pytest.fixture(scope="module")
def layout() -> OptimizerLayout:
    model = empty_model(config_with_text_tokens(CONFIG, NUM_PIECES))
    shapes = {name: tuple(p.shape) for name, p in select_trained(model, BASE_SIZE).parameters.items()}
    return OptimizerLayout(frozenset(name for name, _ in model.named_parameters()), shapes, BASE_SIZE)


def moments_by_identity(content: dict[str, Any]) -> dict[str, dict[str, Tensor]]:
    """Return the predecessor's moments by name, through its model's own order of parameters."""
    model = empty_model(config_with_text_tokens(CONFIG, NUM_PIECES))
    names = [name for name, _ in model.named_parameters()]
    return {names[index]: state for index, state in content["optimizer"]["state"].items()}


def put(folder: Path, content: dict[str, Any], name: str = "latest.pth") -> Path:
    folder.mkdir()
    torch.save(content, folder / name)
    return folder / name


def saved_moments(path: Path) -> dict[str, dict[str, Tensor]]:
    optimizer = torch.load(path, weights_only=True)["optimizer"]
    indices = [index for group in optimizer["param_groups"] for index in group["params"]]
    names = [name for group in optimizer["param_groups"] for name in group["param_names"]]
    return {name: optimizer["state"][index] for name, index in zip(names, indices, strict=True)}


# --- the predecessor's, through the trainer ---


def test_a_predecessors_checkpoint_resumes_with_its_weights_step_and_moments(
    project: TinyRun, foreign: dict[str, Any], tmp_path: Path
):
    path = put(tmp_path / "theirs", foreign)
    ours = tmp_path / "ours"
    assert project.train(output_dir=ours, resume=path, max_steps=NUM_STEPS) == 0
    content = torch.load(ours / "latest.pth", weights_only=True)
    assert (content["step"], content["epoch"], content["batch_idx"]) == (NUM_STEPS, 1, 0)
    assert content["sampler"]["samples_done"] == 0
    for name, tensor in content["model"].items():
        assert torch.equal(tensor, foreign["model"][name]), name
    before, after = moments_by_identity(foreign), saved_moments(ours / "latest.pth")
    assert len(after) > 20
    for name, state in after.items():
        first_row = BASE_SIZE if name in TEXT_TABLES else 0
        assert torch.equal(state["exp_avg"], before[name]["exp_avg"][first_row:]), name
        assert torch.equal(state["exp_avg_sq"], before[name]["exp_avg_sq"][first_row:]), name
        assert float(state["step"]) == NUM_STEPS
        assert state["exp_avg_sq"].abs().sum() > 0
    assert "only sizes could be compared" in (ours / "train.log").read_text(encoding="utf-8")
    rate = RATE / (1 + NUM_STEPS)
    assert content["scheduler"]["anchor_rate"] == pytest.approx(rate)


def test_auto_resumes_in_the_predecessors_folder_and_keeps_its_files(
    project: TinyRun, foreign: dict[str, Any], tmp_path: Path
):
    folder = tmp_path / "theirs"
    bytes_of_latest = put(folder, foreign).read_bytes()
    torch.save({**foreign, "step": 2}, folder / "model_step2.pth")
    assert project.train(output_dir=folder, resume="auto", max_steps=NUM_STEPS + 2, save_interval=1) == 0
    content = torch.load(folder / "latest.pth", weights_only=True)
    assert content["step"] == NUM_STEPS + 2
    for name in TEXT_TABLES:
        assert torch.equal(content["model"][name][:BASE_SIZE], foreign["model"][name][:BASE_SIZE])
        assert not torch.equal(content["model"][name][BASE_SIZE:], foreign["model"][name][BASE_SIZE:])
    assert {float(state["step"]) for state in saved_moments(folder / "latest.pth").values()} == {
        NUM_STEPS + 2
    }
    assert (folder / "latest.foreign.pth").read_bytes() == bytes_of_latest
    assert (folder / "model_step2.pth").is_file()


@pytest.fixture(scope="module")
def smaller(project: TinyRun) -> dict[str, Any]:
    """The predecessor's checkpoint of a tokenizer with one piece less."""
    return predecessors_checkpoint(project, NUM_PIECES - 1)


@pytest.mark.failure(66)
def test_a_predecessors_checkpoint_of_other_pieces_restarts_with_the_rows_of_the_base_if_that_is_accepted(
    project: TinyRun, smaller: dict[str, Any], tmp_path: Path
):
    foreign = smaller
    path = put(tmp_path / "theirs", foreign)
    ours = tmp_path / "ours"
    assert project.train(output_dir=ours, resume=path, max_steps=1) == RESUME_REFUSED
    log = (ours / "train.log").read_text(encoding="utf-8")
    assert re.search(r"\[Error\].* 319 pieces.*--resume-tokenizer.*--accept-lost-rows", log)
    assert not list(ours.glob("*.pth"))
    assert project.train(output_dir=ours, resume=path, max_steps=1, accept_lost_rows="") == 0
    content = torch.load(ours / "latest.pth", weights_only=True)
    assert (content["step"], content["epoch"]) == (1, 0)
    for name in TEXT_TABLES:
        assert len(content["model"][name]) == NUM_PIECES + 1
        assert torch.equal(content["model"][name][:BASE_SIZE], foreign["model"][name][:BASE_SIZE])
    assert {float(state["step"]) for state in saved_moments(ours / "latest.pth").values()} == {1}


@pytest.fixture
def old_tokenizer(project: TinyRun, tmp_path: Path) -> Path:
    """The tokenizer of `smaller`: that of the project without its piece 500."""
    model = parse_model((project.folder / "tokenizer.model").read_bytes())
    del model.pieces[500]
    path = tmp_path / "old.model"
    path.write_bytes(model.SerializeToString())
    return path


@pytest.mark.failure(66)
def test_the_rows_of_a_predecessors_checkpoint_move_by_the_pieces_of_its_tokenizer(
    project: TinyRun, smaller: dict[str, Any], tmp_path: Path, old_tokenizer: Path
):
    path = put(tmp_path / "theirs", smaller)
    command = parse(Train, project.flags(resume=path, resume_tokenizer=old_tokenizer))
    run = resume(load_inputs(command), path)
    for name in TEXT_TABLES:
        old, new = smaller["model"][name], run.model.state_dict()[name]
        assert torch.equal(torch.cat([new[:500], new[501:]]), old)
    assert "400 of the base and 319 of 319 learned rows moved by piece, 1 new" in plan_from_weights(command)


@pytest.mark.parametrize("file", ["absent", "no tokenizer", "of another size", "of another base"])
@pytest.mark.failure(66)
def test_a_tokenizer_that_does_not_match_the_checkpoint_is_not_used(
    project: TinyRun, smaller: dict[str, Any], tmp_path: Path, old_tokenizer: Path, file: str
):
    model = parse_model(old_tokenizer.read_bytes())
    if file == "of another size":
        del model.pieces[600]
    elif file == "of another base":
        model.pieces[300].piece = "another"
    old_tokenizer.write_bytes(b"junk" if file == "no tokenizer" else model.SerializeToString())
    if file == "absent":
        old_tokenizer.unlink()
    path = put(tmp_path / "theirs", smaller)
    command = parse(Train, project.flags(resume=path, resume_tokenizer=old_tokenizer))
    with pytest.raises(UserError, match=re.escape(str(old_tokenizer))) as caught:
        resume(load_inputs(command), path)
    assert caught.value.exit_status == USER_MISTAKE


# --- what is read of it ---


@pytest.mark.parametrize("rate", [float("nan"), float("inf"), -1.0, None, "fast"])
def test_an_invalid_learning_rate_is_ignored(foreign: dict[str, Any], layout: OptimizerLayout, rate: object):
    foreign["scheduler"]["_last_lr"] = [rate]
    foreign["optimizer"]["param_groups"][0]["lr"] = 3e-5
    for scheduler in (foreign["scheduler"], None):
        foreign["scheduler"] = scheduler
        assert checkpoint_facts(foreign, Path("latest.pth"), None, layout).learning_rate == 3e-5
    foreign["optimizer"] = {"state": {}, "param_groups": []}
    assert checkpoint_facts(foreign, Path("latest.pth"), None, layout).learning_rate is None


def change(key: str, value: Any) -> Callable[[dict], None]:
    def act(optimizer: dict) -> None:
        states = optimizer["state"]
        states[max(states)][key] = value

    return act


CORRUPTIONS: dict[str, tuple[Callable[[dict], None], str]] = {
    "first moment of another shape": (change("exp_avg", torch.zeros(3)), r"\(3,\)"),
    "second moment of another shape": (change("exp_avg_sq", torch.zeros(3)), "shape"),
    "several steps": (change("step", torch.zeros(2)), "shape"),
    "moment is not a tensor": (change("exp_avg", [1.0]), "AdamW"),
    "second moment is absent": (lambda o: [s.pop("exp_avg_sq") for s in o["state"].values()], "KeyError"),
    "one parameter has none": (lambda o: o["state"].pop(max(o["state"])), "no moments of"),
    "a parameter too few": (lambda o: o["param_groups"][0]["params"].pop(), r"\d+ parameters"),
    "no groups": (lambda o: o.pop("param_groups"), "KeyError"),
    "another order": (lambda o: o["param_groups"][0]["params"].reverse(), "have shape"),
    "empty": (dict.clear, "AdamW"),
}


@pytest.mark.parametrize("corruption", CORRUPTIONS)
def test_a_corrupt_optimizer_is_a_misfit_with_its_reason(
    foreign: dict[str, Any], layout: OptimizerLayout, corruption: str
):
    act, reason = CORRUPTIONS[corruption]
    act(foreign["optimizer"])
    with pytest.raises(ValueError, match=reason):
        named_moments(foreign, layout)
    facts = checkpoint_facts(foreign, Path("latest.pth"), None, layout)
    assert facts.trained_shapes is None
    assert facts.misfit
    assert "AdamW" in checkpoint_facts({**foreign, "optimizer": "junk"}, Path("x.pth"), None, layout).misfit


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("step", "x"),
        ("epoch", float("nan")),
        ("model", None),
        ("model", [torch.zeros(1)]),
        ("model", {"text_head.bias": 3}),
    ],
    ids=["step", "epoch", "no model", "a list", "a value"],
)
def test_a_value_of_another_type_is_refused(
    foreign: dict[str, Any], layout: OptimizerLayout, key: str, value: object
):
    with pytest.raises(UserError, match=rf"latest\.pth.*{key}") as caught:
        checkpoint_facts({**foreign, key: value}, Path("latest.pth"), None, layout)
    assert caught.value.exit_status == RESUME_REFUSED


# --- our own ---


@pytest.fixture(scope="module")
def own(project: TinyRun) -> Path:
    output = project.folder / "own"
    assert project.train(output_dir=output, max_steps=2) == 0
    return output / "latest.pth"


def test_the_moments_of_a_checkpoint_of_this_trainer_are_found_by_name_in_any_order(
    own: Path, layout: OptimizerLayout
):
    content = torch.load(own, weights_only=True)
    expected = saved_moments(own)
    optimizer = content["optimizer"]
    for group in optimizer["param_groups"]:
        group["params"].reverse()
        group["param_names"].reverse()
    optimizer["param_groups"].reverse()
    found = named_moments(content, layout)
    assert found.keys() == expected.keys() == layout.trained.keys()
    for name, state in found.items():
        assert all(torch.equal(state[key], expected[name][key]) for key in state)


@pytest.mark.parametrize("record", [None, {}, {"step": "x"}, {"format_version": 2}], ids=str)
def test_a_meta_that_is_unreadable_or_of_a_newer_format_is_refused(own: Path, record: dict | None):
    known = read_file(own)["meta"] if record and "format_version" in record else {}
    with pytest.raises(UserError, match="newer version") as caught:
        embedded_meta({"meta": known | record if known else record}, own)
    assert caught.value.exit_status == RESUME_REFUSED
