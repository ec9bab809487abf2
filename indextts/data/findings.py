"""What a check found: kinds of damage, each with its places."""

from collections import defaultdict
from collections.abc import Sequence

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
