"""Tests of indextts/training/checkpoint_facts.py: names for an optimizer state without names."""

import pytest
import torch
from torch import nn

from indextts.training.checkpoint_facts import MomentsLocation, map_moments

BASE_SIZE = 3
# Two encoder weights that no loss reaches, a buffer, two text tables of 5 pieces, a second name of a weight
WEIGHTS = {
    "encoder.weight": (2, 2),
    "encoder.bias": (2,),
    "encoder.pe": (9, 2),
    "text_embedding.weight": (6, 4),
    "gpt.ln_f.weight": (4,),
    "inference_model.ln_f.weight": (4,),
    "text_head.bias": (6,),
}
PARAMETERS = frozenset(WEIGHTS) - {"encoder.pe", "inference_model.ln_f.weight"}
MOMENTS = {2: (6, 4), 3: (4,), 4: (6,)}
TRAINED = {"text_embedding.weight": (3, 4), "text_head.bias": (3,), "gpt.ln_f.weight": (4,)}


def mapped(**changes: object) -> dict[str, MomentsLocation]:
    facts = {
        "order": [0, 1, 2, 3, 4],
        "moments": MOMENTS,
        "weights": WEIGHTS,
        "parameter_names": PARAMETERS,
        "trained": TRAINED,
        "base_size": BASE_SIZE,
    }
    return map_moments(**{**facts, **changes})  # type: ignore[arg-type]


def test_names_follow_the_order_of_the_model_without_buffers_and_second_names():
    assert mapped() == {
        "text_embedding.weight": MomentsLocation(2, BASE_SIZE),
        "text_head.bias": MomentsLocation(4, BASE_SIZE),
        "gpt.ln_f.weight": MomentsLocation(3, 0),
    }


def test_indices_come_from_the_groups():
    moved = mapped(order=[9, 7, 5, 3, 1], moments={5: (6, 4), 3: (4,), 1: (6,)})
    assert {name: where.index for name, where in moved.items()} == {
        "text_embedding.weight": 5,
        "gpt.ln_f.weight": 3,
        "text_head.bias": 1,
    }


def test_a_run_without_frozen_rows_takes_complete_tables():
    whole = {name: WEIGHTS[name] for name in TRAINED}
    assert {where.first_row for where in mapped(trained=whole).values()} == {0}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"order": [0, 1, 2, 3]}, r"4 parameters.* 5"),
        ({"moments": {2: (6, 4), 3: (4,)}}, "no moments of text_head.bias"),
        ({"moments": {}}, "no moments of text_embedding.weight"),
        ({"moments": {1: (6, 4), **MOMENTS}}, r"encoder\.bias .*\(6, 4\)"),
        ({"moments": {**MOMENTS, 2: (7, 4)}}, r"\(7, 4\).*\(6, 4\)"),
        ({"base_size": 2}, r"\(3, 4\)"),
        ({"trained": {**TRAINED, "new.weight": (1,)}}, "no moments of new.weight"),
    ],
)
def test_a_misfit_names_the_parameter_or_shape(changes: dict, reason: str):
    with pytest.raises(ValueError, match=reason):
        mapped(**changes)


class Model(nn.Module):
    """A weight that is used twice, buffers before and after, and an encoder that has no gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.BatchNorm1d(4)
        self.text_embedding = nn.Embedding(6, 4)
        self.norm = nn.LayerNorm(4)
        self.second_name = nn.ModuleDict({"norm": self.norm})
        self.text_head = nn.Linear(4, 6)
        self.register_buffer("positions", torch.arange(3))


def test_the_moments_of_a_real_adamw_are_found_under_the_right_names():
    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    for _ in range(2):
        model.text_head(model.norm(model.text_embedding(torch.tensor([0, 4, 5])))).square().sum().backward()
        optimizer.step()
    saved = optimizer.state_dict()
    by_identity = {
        name: optimizer.state[parameter]["exp_avg"]
        for name, parameter in model.named_parameters()
        if parameter in optimizer.state
    }
    trained = {
        name: ((shape[0] - BASE_SIZE, *shape[1:]) if name.startswith("text_") else tuple(shape))
        for name, shape in ((name, moment.shape) for name, moment in by_identity.items())
    }
    moved = map_moments(
        order=[index for group in saved["param_groups"] for index in group["params"]],
        moments={index: tuple(state["exp_avg"].shape) for index, state in saved["state"].items()},
        weights={name: tuple(tensor.shape) for name, tensor in model.state_dict().items()},
        parameter_names=frozenset(name for name, _ in model.named_parameters()),
        trained=trained,
        base_size=BASE_SIZE,
    )
    assert set(moved) == {
        "text_embedding.weight",
        "text_head.weight",
        "text_head.bias",
        "norm.weight",
        "norm.bias",
    }
    for name, where in moved.items():
        found = saved["state"][where.index]["exp_avg"][where.first_row :]
        assert torch.equal(found, by_identity[name][where.first_row :])
        assert found.shape == trained[name]
        assert found.abs().sum() > 0
