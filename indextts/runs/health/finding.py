"""What a check of a run's health found: sentences with their numbers, to be shown in any language."""

from dataclasses import dataclass
from typing import Literal

Level = Literal["problem", "warning"]


@dataclass(frozen=True)
class Finding:
    """What is not as it should be.

    Args:
        check: its name, a word that stays the same: "plateau".
        level: "problem" where the training is for nothing unless something is done, else "warning".
        what, evidence, advice: templates of `str.format` that take `values`: what is wrong, by which numbers
            and steps it is known, what to do.
    """

    check: str
    level: Level
    what: str
    evidence: str
    advice: str
    values: dict[str, int | float | str]

    def __str__(self) -> str:
        return " ".join(
            template.format(**self.values) for template in (self.what, self.evidence, self.advice)
        )
