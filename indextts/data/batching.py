"""Utterances into batches: of similar length, and no larger than memory allows."""

import logging
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from indextts.data.manifest import Utterance

logger = logging.getLogger(__name__)

SORTED_CLIPS = 512  # are looked at together to find clips of similar length

ItemT = TypeVar("ItemT")


class BatchLimit:
    """Seconds of audio that a batch may have with its padding; where memory runs out, they get fewer.

    Args:
        seconds: 0 for one clip at a time.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._turn = threading.Lock()

    def now(self) -> float:
        """Return the seconds that a batch of several clips may have at this moment."""
        return self.seconds or math.inf

    def lower(self, tried_s: float, problem: str) -> None:
        """Halve what may be tried, after a batch of `tried_s` did not fit."""
        with self._turn:
            half_s = tried_s / 2
            if 0 < self.seconds <= half_s:
                return  # a batch that was begun before the limit was lowered
            self.seconds = half_s
        logger.warning(
            "Out of memory (%s): batches of at most %.1f s from now on, this one is done again",
            problem,
            half_s,
        )


def batches_of(utterances: Sequence[Utterance], limit: BatchLimit) -> Iterator[list[Utterance]]:
    """Yield all utterances, those of similar length together; never far from their order."""
    for start in range(0, len(utterances), SORTED_CLIPS):
        window = utterances[start : start + SORTED_CLIPS]
        if not limit.seconds:
            yield from ([utterance] for utterance in window)
            continue
        by_length = sorted(window, key=lambda utterance: utterance.duration_s)
        yield from parts_within(by_length, lambda utterance: utterance.duration_s, limit.now)


def parts_within(
    items: Sequence[ItemT], size: Callable[[ItemT], float], limit: Callable[[], float]
) -> Iterator[list[ItemT]]:
    """Yield the items in parts that keep the limit with their padding, or are one item.

    Args:
        items: sorted by size, so that the last of a part says what the others are padded to.
        size: of an item.
        limit: asked for every item: it may change meanwhile.
    """
    part: list[ItemT] = []
    for item in items:
        if part and (len(part) + 1) * size(item) > limit():
            yield part
            part = []
        part.append(item)
    if part:
        yield part
