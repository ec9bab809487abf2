"""Recipes: named settings of a training, with their source, conditions and measured result. No torch.

Each is a YAML file of the folder `recipes`, in the order of the menu. docs/training.md shows them as a table.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, model_validator

from indextts.commands.train import Train
from indextts.system.yaml_files import read_section

FOLDER = Path(__file__).with_name("recipes")


class Recipe(BaseModel, frozen=True, extra="forbid"):
    """Values for fields of the Train command.

    Args:
        id: a stable name, for drafts, run files and model cards.
        origin: of the values, as the end of the id of a message.
        base: the model that it is for; empty for any.
        gpu_gib: memory of the GPU that it needs.
        is_measured: somebody has published a result with these settings.
        settings: values by field, None for an automatic one. Automatic fields that are missing are automatic;
            the other fields of the form keep their value.
    """

    id: str
    origin: str
    base: str = ""
    gpu_gib: int = 0
    is_measured: bool = False
    settings: dict[str, Any]

    @model_validator(mode="after")
    def _leaves_the_rest_to_the_machine(self) -> Self:
        automatic = {name: None for name in sorted(Train.automatic) if name not in self.settings}
        self.settings.update(automatic)
        return self

    @property
    def label(self) -> str:
        """The id of its name."""
        return f"planning.recipe_{self.id}"

    @property
    def source(self) -> str:
        """The id of the message that says where the values come from, and what was measured with them."""
        return f"planning.from_{self.origin}"


@cache
def recipes() -> tuple[Recipe, ...]:
    """Return all recipes."""
    paths = sorted(FOLDER.glob("*.yaml"))
    return tuple(read_section(Recipe, path, "use that of this program") for path in paths)


def find_recipe(id: str) -> Recipe:
    """Return the recipe with an id."""
    return next(recipe for recipe in recipes() if recipe.id == id)


def recommended(base: str, memory_bytes: int | None) -> Recipe | None:
    """Return the first measured recipe for a base that fits into a GPU; None if nobody measured one.

    Args:
        memory_bytes: of the GPU; None without one.
    """
    of_base = [recipe for recipe in recipes() if recipe.base == base and recipe.is_measured]
    # a GPU of 16 GB has a little less than 16 GiB
    fitting = [each for each in of_base if memory_bytes is None or each.gpu_gib <= memory_bytes / 0.9 / 2**30]
    return next(iter(fitting), None)


def recipe_of(settings: Mapping[str, Any]) -> str:
    """Return the id of the recipe that a run follows; empty for none.

    Args:
        settings: the fields of the Train command; automatic ones may have been chosen.
    """
    for recipe in recipes():
        fixed = {name: value for name, value in recipe.settings.items() if value is not None}
        if all(settings.get(name) == value for name, value in fixed.items()):
            return recipe.id
    return ""
