"""A report, ready to print: facts, then notices (for the user to judge), then problems (the check fails).

What a check found: kinds of damage, each with its places.
"""

import statistics
from collections import defaultdict
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


MAX_EXAMPLES = 5


class Findings:
    """Problems by kind, in the order in which the kinds were found."""

    def __init__(self) -> None:
        self._places: dict[str, list[str]] = defaultdict(list)

    def add(self, kind: str, place: str) -> None:
        self._places[kind].append(place)

    @property
    def counts(self) -> dict[str, int]:
        return {kind: len(places) for kind, places in self._places.items()}

    def lines(self) -> list[str]:
        return [f"{len(places)} {kind}: {_examples(places)}" for kind, places in self._places.items()]


def _examples(places: Sequence[str]) -> str:
    more = len(places) - MAX_EXAMPLES
    return "; ".join(places[:MAX_EXAMPLES]) + (f"; and {more} more" if more > 0 else "")
