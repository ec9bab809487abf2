"""Tests of indextts/planning/recipe.py: the trainer accepts the values, and they match the docs."""

import pytest
import yaml

from indextts.commands.terminal import parse
from indextts.commands.train import Train
from indextts.planning.preflight import shortened
from indextts.planning.recipe import Recipe, find_recipe, recipe_of, recipes, recommended, reports
from indextts.system.messages import Message
from tests.conftest import REPOSITORY

TRAINING = (REPOSITORY / "docs/training.md").read_text(encoding="utf-8")
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
    shorter = changed.model_copy(update=shortened(changed, steps=6))
    assert shorter.warmup_steps == shorter.save_interval == shorter.listen_interval == 1
    assert recipe_of(shorter.model_dump(mode="json")) == recipe.id


def test_a_short_run_of_a_recipe_warms_up_in_a_fifth_and_saves_five_times():
    command = parse(Train, [*PATHS, "--warmup-steps=1000", "--save-interval=100", "--listen-interval=0"])
    assert shortened(command, steps=2250) == {"warmup_steps": 450, "val_interval": 450}
    assert shortened(command, steps=5000) == {}


@pytest.mark.parametrize("recipe", recipes(), ids=lambda recipe: recipe.id)
def test_the_docs_show_every_recipe(recipe: Recipe):
    [row] = [line for line in TRAINING.splitlines() if line.startswith(f"| `{recipe.id}` |")]
    _, base, start, gpu, rate, warmup, epochs, weights = (cell.strip() for cell in row.split("|")[1:9])
    fields = recipe.settings
    assert (float(rate), int(warmup), int(epochs)) == tuple(
        fields[name] for name in ("learning_rate", "warmup_steps", "epochs")
    )
    assert weights == f"{fields['text_loss_weight']} / {fields['mel_loss_weight']}"
    if recipe.base:
        assert (base, gpu) == (recipe.base, f"{recipe.gpu_gib} GB")
        assert start == (f"{recipe.hours:g} h" if recipe.hours else "any hours")
        assert fields["step_pairs"] == 32  # what the numbers of steps below the table count on


def test_the_docs_show_what_others_report():
    for report in reports():
        values = [report.base, report.language, f"{report.hours:,.0f}", report.method, report.result]
        assert f"| {' | '.join(values)} | {report.source} |" in TRAINING


def test_the_demo_recipe_matches_the_demo_project():
    asked = yaml.safe_load((REPOSITORY / "demo/project.yaml").read_text(encoding="utf-8"))["train"]
    assert asked.items() <= find_recipe("demo").settings.items()
    assert Train.automatic - {"step_pairs"} <= asked.keys()  # it means the same on every machine


def test_a_measured_recipe_is_recommended_or_else_one_for_these_hours():
    for memory_bytes in (80 << 30, 15 << 30, None):
        assert recommended("2.5", 5, memory_bytes) == find_recipe("lora")
        for hours, id in ((0.1, "hours_10"), (29, "hours_10"), (30, "hours_50"), (150, "hours_200")):
            assert recommended("2.0", hours, memory_bytes) == find_recipe(id)
    assert recommended("2.5", 5, 8 << 30) is None
    assert recipe_of({"epochs": 1}) == ""
