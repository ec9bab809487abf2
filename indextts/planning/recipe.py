"""Recipes: named settings of a training, with their source, conditions and measured result. No torch.

Each is a YAML file of the folder `recipes`, in the order of the menu. `reports.yaml` has what others state of
their trainings; docs/training.md shows both as tables.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, model_validator

from indextts.commands.train import Train
from indextts.planning.preflight import SHORTENED
from indextts.system.yaml_files import read_section

FOLDER = Path(__file__).with_name("recipes")
REPORTS = Path(__file__).with_name("reports.yaml")


class Recipe(BaseModel, frozen=True, extra="forbid"):
    """Values for fields of the Train command.

    Args:
        id: a stable name, for drafts, run files and model cards.
        origin: of the values, as the end of the id of a message.
        base: the model that it is for; empty for any.
        hours: of speech from which on it is chosen.
        is_measured: somebody has published a result with these settings.
        settings: values by field, None for an automatic one. Automatic fields that are missing are automatic;
            the other fields of the form keep their value.
    """

    id: str
    origin: str
    base: str = ""
    gpu_gib: int = 0
    hours: float = 0
    is_measured: bool = False
    settings: dict[str, Any]

    @model_validator(mode="after")
    def _leaves_the_rest_to_the_machine(self) -> Self:
        automatic = {name: None for name in sorted(Train.automatic) if name not in self.settings}
        self.settings.update(automatic)
        return self

    @property
    def label(self) -> str:
        return f"planning.recipe_{self.id}"

    @property
    def source(self) -> str:
        """The id of the message that says where the values come from, and what was measured with them."""
        return f"planning.from_{self.origin}"


class Report(BaseModel, frozen=True, extra="forbid"):
    """What an author states of a training: base, language, hours of speech, trained weights, result."""

    base: str
    language: str
    hours: float
    method: str
    result: str
    source: str


@cache
def reports() -> tuple[Report, ...]:
    """Return the reports, by base and hours."""
    found = read_section(list[Report], REPORTS, "use the file of this program")
    return tuple(sorted(found, key=lambda report: (report.base, report.hours)))


@cache
def recipes() -> tuple[Recipe, ...]:
    paths = sorted(FOLDER.glob("*.yaml"))
    return tuple(read_section(Recipe, path, "use the file of this program") for path in paths)


def find_recipe(id: str) -> Recipe:
    return next(recipe for recipe in recipes() if recipe.id == id)


def recommended(base: str, hours: float, memory_bytes: int | None) -> Recipe | None:
    """Return the recipe for base, hours and a GPU's bytes, a measured one first; None if none fits."""
    # a GPU of 16 GB has a little less than 16 GiB
    fitting = [
        each
        for each in recipes()
        if each.base == base
        and each.hours <= hours
        and (memory_bytes is None or each.gpu_gib <= memory_bytes / 0.9 / 2**30)
    ]
    measured = [each for each in fitting if each.is_measured]
    return next(iter(measured or fitting), None)


def recipe_of(settings: Mapping[str, Any]) -> str:
    """Return the id of the recipe that a run follows, "" for none; `settings` may have chosen values."""

    def follows(name: str, value: Any) -> bool:  # also with the shorter values of a short run
        found = settings.get(name)
        return bool(value is None or found == value or (name in SHORTENED and found and found < value))

    for recipe in recipes():
        if all(follows(name, value) for name, value in recipe.settings.items()):
            return recipe.id
    return ""
