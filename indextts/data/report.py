"""Reports of data checks, their findings, statistics of values, and the hours that a stage passes on."""

import logging
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from indextts.data.manifest import Utterance

logger = logging.getLogger(__name__)

MAX_SPEAKERS_SHOWN = 20
MAX_EXAMPLES = 5
MAX_LOST = 0.2  # of the hours; more is a warning
DEVIATION_OF_MAD = 1.4826  # of a normal distribution, in median absolute deviations


@dataclass(frozen=True)
class Report:
    """Printable report; its text is deterministic."""

    title: str
    facts: list[str]  # statistics of the data
    notices: list[str]  # findings for the user to judge
    problems: list[str]  # findings that fail the check

    def __str__(self) -> str:
        lines = [self.title, *(f"  {fact}" for fact in self.facts)]
        lines += [f"  Notice: {notice}" for notice in self.notices]
        lines += [f"  Problem: {problem}" for problem in self.problems] or ["  No problems"]
        return "\n".join(lines)


def log_hours(what: str, before: Iterable[Utterance], after: Iterable[Utterance], reasons: str) -> None:
    """Log the hours of speech that a stage got and those that it passes on, and the reasons for the rest."""
    hours, left = (sum(utterance.duration_s for utterance in each) / 3600 for each in (before, after))
    level = logging.WARNING if left < (1 - MAX_LOST) * hours else logging.INFO
    percent = 100 * left / hours if hours else 100.0
    logger.log(level, "%s: %.2f of %.2f hours go on (%.0f %%); %s", what, left, hours, percent, reasons)


def robust_deviation(distances: Iterable[float]) -> float:
    """Return a standard deviation that half of the values cannot distort, from distances to their median."""
    return DEVIATION_OF_MAD * statistics.median(map(abs, distances))


def spread(values: Sequence[float]) -> str:
    """Return minimum, median and maximum as text."""
    return f"min {min(values):.4g}, median {statistics.median(values):.4g}, max {max(values):.4g}"


def speaker_lines(amounts: Mapping[str, str]) -> list[str]:
    """Return the number of speakers and a line for each of the first, with its amount."""
    lines = [f"  {name}: {amount}" for name, amount in amounts.items()]
    more = [f"  and {len(lines) - MAX_SPEAKERS_SHOWN} more"] if len(lines) > MAX_SPEAKERS_SHOWN else []
    return [f"speakers: {len(lines)}", *lines[:MAX_SPEAKERS_SHOWN], *more]


def histogram(values: Sequence[float], num_bins: int) -> tuple[list[int], list[float]]:
    """Return counts and edges of bins with equal width; a single bin of width 0 if all values are equal."""
    is_constant = min(values) == max(values)
    counts, edges = np.histogram(values, bins=[values[0], values[0]] if is_constant else num_bins)
    return counts.tolist(), edges.tolist()


class Findings:
    """Problems by kind, each with its places, in the order in which the kinds were found."""

    def __init__(self) -> None:
        self._places: dict[str, list[str]] = defaultdict(list)
        self.codes: dict[str, str] = {}  # of the kinds, "" for one without

    def add(self, kind: str, place: str, code: str = "") -> None:
        self._places[kind].append(place)
        self.codes[kind] = code

    @property
    def counts(self) -> dict[str, int]:
        return {kind: len(places) for kind, places in self._places.items()}

    def lines(self) -> list[str]:
        """Return a line for each kind: kind, count and examples."""
        lines = []
        for kind, places in self._places.items():
            more = len(places) - MAX_EXAMPLES
            examples = "; ".join(places[:MAX_EXAMPLES]) + (f"; and {more} more" if more > 0 else "")
            lines.append(f"{kind} ({len(places):,}): {examples}")
        return lines
