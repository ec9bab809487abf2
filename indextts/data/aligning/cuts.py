"""Cut a long recording into clips in its pauses, by the places of sentences that a recognizer found.

    text      | sentence 1      | sentence 2    | sentence 3 |  (no text)    | sentence 4    |
    speech      ====== ========   == == =======   ====          ==== ======    ==== =======
    clips     [1               ] [2 and 3                  ]   [doubtful    ] [4            ]

Parts without a pause between them become one clip. A clip of less than SHORT_S is joined with the next if
the pause is short; one of more than LONG_S is cut in its longest pauses between words.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from indextts.data.importing.items import Location, Passage, Rejection
from indextts.data.manifest import Provenance
from indextts.data.silences import MIN_SILENCE_S, Limits, trimmed
from indextts.features.vad import Span

TEXT_PADDING_S = 0.1
TEXT_NEAR_S = 0.25  # of a pause from the letters beside it: the output of the model is not exact
SHORT_S = 2.0
LONG_S = 15.0
JOINED_PAUSE_S = 1.0  # longest pause within a clip of several parts
WORD_PAUSE_S = 0.15


@dataclass(frozen=True)
class Part:
    """Part of a recording: a sentence or some of its words, or speech without a text."""

    start_s: float  # of its first letter, in seconds
    end_s: float  # of its last letter
    text: str
    line: int  # of the text file
    score: float | None  # in nats per letter; None for speech without a text
    other: str = ""  # the nearest line, or what was heard; shown in the review
    is_doubtful: bool = False  # a person has to decide
    # the words after which it may be cut, each with the times of its first and last letter
    words: tuple[tuple[str, float, float], ...] = ()


@dataclass(frozen=True)
class _Block:
    """Parts between two pauses."""

    parts: tuple[Part, ...]
    before: Span
    after: Span

    @property
    def start_s(self) -> float:
        return self.before.end_s

    @property
    def end_s(self) -> float:
        return self.after.start_s

    @property
    def is_doubtful(self) -> bool:
        return any(part.is_doubtful for part in self.parts)


def plan_aligned(
    text_file: Path, parts: Sequence[Part], pauses: Sequence[Span], limits: Limits, recognizer: str
) -> list[Passage | Rejection]:
    """Return the clips of a recording in order, and the parts that cannot be cut.

    Args:
        parts: in the order of the recording.
        pauses: with those at both ends of the recording, even if they are empty.
    """
    longest = min(LONG_S, limits.max_s)
    blocks = [piece for block in _blocks(parts, pauses) for piece in _split(block, pauses, longest)]
    return [_aligned_clip(text_file, block, limits, recognizer) for block in _joined(blocks, longest)]


def _blocks(parts: Sequence[Part], pauses: Sequence[Span]) -> list[_Block]:
    if not parts:
        return []
    found = []
    group: list[Part] = []
    before = max((p for p in pauses if p.start_s <= parts[0].start_s), key=lambda p: p.end_s)
    for part, following in pairwise([*parts, None]):
        assert part is not None
        group.append(part)
        if following is None:
            after = min((p for p in pauses if p.end_s >= part.end_s), key=lambda p: p.start_s)
        else:
            between = _pause_between(pauses, part.end_s, following.start_s, before.end_s)
            if between is None:
                continue
            after = between
        found.append(_Block(tuple(group), before, after))
        before, group = after, []
    return found


def _pause_between(
    pauses: Sequence[Span], end_s: float, start_s: float, least_s: float, shortest_s: float = MIN_SILENCE_S
) -> Span | None:
    """Return the longest pause near the border of two parts."""
    low, high = sorted((end_s, start_s))
    near = [
        pause
        for pause in pauses
        if pause.start_s > least_s
        and pause.duration_s >= shortest_s
        and pause.start_s <= high + TEXT_NEAR_S
        and pause.end_s >= low - TEXT_NEAR_S
    ]
    return max(near, key=lambda pause: pause.duration_s, default=None)


def _split(block: _Block, pauses: Sequence[Span], longest_s: float) -> list[_Block]:
    """Return a block that is too long in pieces, cut in its longest pauses between words."""
    [part, *others] = block.parts
    if block.end_s - block.start_s <= longest_s or others or not part.words:
        return [block]
    least_s, most_s = block.start_s + SHORT_S, block.end_s - SHORT_S
    between = [
        (_pause_between(pauses, word[2], following[1], least_s, WORD_PAUSE_S), number)
        for number, (word, following) in enumerate(pairwise(part.words), start=1)
    ]
    usable = [(pause, number) for pause, number in between if pause is not None and pause.end_s <= most_s]
    if not usable:
        return [block]
    pause, number = max(usable, key=lambda each: each[0].duration_s)
    halves = [_words_of(part, part.words[:number]), _words_of(part, part.words[number:])]
    first = _Block((halves[0],), block.before, pause)
    second = _Block((halves[1],), pause, block.after)
    return [*_split(first, pauses, longest_s), *_split(second, pauses, longest_s)]


def _words_of(part: Part, words: tuple[tuple[str, float, float], ...]) -> Part:
    text = " ".join(word for word, _, _ in words)
    return replace(part, start_s=words[0][1], end_s=words[-1][2], text=text, words=words)


def _joined(blocks: Sequence[_Block], longest_s: float) -> list[_Block]:
    """Return the blocks, with short ones joined with a neighbour."""
    found: list[_Block] = []
    for block in blocks:
        last = found[-1] if found else None
        is_short = last is not None and min(last.end_s - last.start_s, block.end_s - block.start_s) < SHORT_S
        if (
            last is not None
            and is_short
            and not (last.is_doubtful or block.is_doubtful)
            and last.after == block.before
            and last.after.duration_s <= JOINED_PAUSE_S
            and block.end_s - last.start_s <= longest_s
        ):
            found[-1] = _Block((*last.parts, *block.parts), last.before, block.after)
        else:
            found.append(block)
    return found


def _aligned_clip(text_file: Path, block: _Block, limits: Limits, recognizer: str) -> Passage | Rejection:
    line = block.parts[0].line
    times = trimmed(block.before, block.after, TEXT_PADDING_S, limits, is_single=len(block.parts) == 1)
    if not isinstance(times, Span):
        return Rejection(Location(text_file, line), *times)
    scores = [part.score for part in block.parts if part.score is not None]
    provenance = Provenance(
        by=(recognizer,),
        kind="aligned",
        score=round(min(scores), 2) if scores else None,
        other=" ".join(part.other for part in block.parts if part.other),
        is_doubtful=block.is_doubtful,
    )
    text = " ".join(part.text for part in block.parts)
    return Passage(times.start_s, times.end_s, text, line, provenance=provenance)
