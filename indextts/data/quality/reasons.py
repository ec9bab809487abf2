"""Reasons to flag a clip, from reasons.toml. No torch here.

A hard reason rejects a clip: later stages skip it unless a person keeps it. A soft reason is a warning. The
limits are flags of `check_amharic_data.py`; docs/check.md explains them.
"""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True)
class Measure:
    """Texts about a number of each clip, "" where it is not shown."""

    flagged: str = ""  # in the description of a flag
    title: str = ""  # of its histogram
    spread: str = ""  # of its minimum, median and maximum in the report


@dataclass(frozen=True)
class Reason:
    """Reason to flag a clip."""

    is_hard: bool  # whether it rejects the clip
    name: str  # the flag in files and filters
    what: str  # a short description
    measure: str = ""  # a key of the clip's measures; empty for a reason without a number
    limit: str = ""  # a field of QualityLimits, whose name tells the side; empty for clips above 0
    harder: str = ""  # the reason for the same number that replaces this one

    @property
    def side(self) -> Literal["below", "above"]:
        """The side of the limit on which clips are flagged."""
        return "below" if "min_" in self.limit else "above"


_TABLES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
MEASURES = {name: Measure(**texts) for name, texts in _TABLES["measures"].items()}
REASONS = tuple(
    Reason(is_hard, name, **fields)
    for is_hard, table in ((True, "reject"), (False, "warn"))
    for name, fields in _TABLES[table].items()
)
REASON_OF = {reason.name: reason for reason in REASONS}


@dataclass(frozen=True)
class Flag:
    """Reason that applies to a clip."""

    reason: str
    severity: float  # distance beyond the limit, comparable within a reason
    description: str  # the reason with its number

    @property
    def is_hard(self) -> bool:
        return REASON_OF[self.reason].is_hard
