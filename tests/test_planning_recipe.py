"""Tests of indextts/planning/recipe.py: the trainer accepts the values, and they match the docs."""

import re

import pytest
import yaml

from indextts.commands.terminal import parse
from indextts.commands.train import Train
from indextts.planning.recipe import Recipe, find_recipe, recipe_of, recipes, recommended
from indextts.system.messages import Message
from tests.conftest import REPOSITORY

PATHS = [
    f"--{name}=x"
    for name in ("train-manifest", "val-manifest", "tokenizer", "config", "base-checkpoint", "output-dir")
]


@pytest.mark.parametrize("recipe", recipes(), ids=lambda recipe: recipe.id)
def test_the_trainer_accepts_every_recipe_and_a_run_is_named_after_it(recipe: Recipe):
    command = parse(Train, PATHS)
    given = {name: value for name, value in recipe.settings.items() if value is not None}
    changed = Train.model_validate({**command.model_dump(), **given})
    assert {name: getattr(changed, name) for name in given} == given
    assert recipe.settings.keys() - given.keys() <= Train.automatic
    assert str(Message(recipe.source)).count(" ") > 5
    assert recipe_of(changed.model_dump(mode="json")) == recipe.id


@pytest.mark.parametrize(("id", "hours"), [("hours_10", "10"), ("hours_50", "50"), ("hours_200", "200")])
def test_the_recipes_by_hours_match_the_table_in_the_docs(id: str, hours: str):
    text = (REPOSITORY / "docs/training.md").read_text(encoding="utf-8")
    [row] = re.findall(rf"^\| {hours} \| (\w).*? \| (\d+) \| (\d+) \| [\d,]+ \|", text, re.MULTILINE)
    set_name, warmup, epochs = row
    [values] = re.findall(rf"^\| {set_name} \| ([\de-]+) \| ([\d.]+) / ([\d.]+) \|", text, re.MULTILINE)
    fields = find_recipe(id).settings
    assert (fields["warmup_steps"], fields["epochs"]) == (int(warmup), int(epochs))
    rate, text_weight, mel_weight = map(float, values)
    assert (fields["learning_rate"], fields["text_loss_weight"], fields["mel_loss_weight"]) == (
        rate,
        text_weight,
        mel_weight,
    )
    assert fields["step_pairs"] == 32  # what the table's steps count on
    assert not [name for name in Train.automatic - {"step_pairs"} if fields[name] is not None]
    assert fields["weight_decay"] == 0.01


def test_the_demo_recipe_matches_the_demo_project():
    asked = yaml.safe_load((REPOSITORY / "demo/project.yaml").read_text(encoding="utf-8"))["train"]
    assert asked.items() <= find_recipe("demo").settings.items()
    assert Train.automatic - {"step_pairs"} <= asked.keys()  # it means the same on every machine


def test_the_measured_recipe_that_fits_is_recommended():
    for memory_bytes in (80 << 30, 15 << 30, None):
        assert recommended("2.5", memory_bytes) == find_recipe("lora")
    assert recommended("2.5", 8 << 30) is None
    assert recommended("2.0", 24 << 30) is None  # nobody measured those by hours
    assert recipe_of({"epochs": 1}) == ""
