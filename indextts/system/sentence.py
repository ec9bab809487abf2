"""A sentence as its template and its values, so that a table can translate it."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Sentence:
    """What is said to a person.

    Args:
        template: with `{name}` for each of `values`; a text that is whole already has no values.
    """

    template: str
    values: Mapping[str, str | int] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.template.format(**self.values) if self.values else self.template
