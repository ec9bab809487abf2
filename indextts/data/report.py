"""A report, ready to print: facts, then notices (for the user to judge), then problems (the check fails)."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

MAX_SPEAKERS_SHOWN = 20


@dataclass(frozen=True)
class Report:
    """A report; the same data give the same text."""

    title: str
    facts: list[str]
    notices: list[str]
    problems: list[str]

    def __str__(self) -> str:
        lines = [self.title, *(f"  {fact}" for fact in self.facts)]
        lines += [f"  Notice: {notice}" for notice in self.notices]
        lines += [f"  Problem: {problem}" for problem in self.problems] or ["  No problems"]
        return "\n".join(lines)


def spread(values: Sequence[float]) -> str:
    return f"min {min(values):.4g}, median {statistics.median(values):.4g}, max {max(values):.4g}"
