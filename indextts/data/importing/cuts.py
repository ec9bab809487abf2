"""Cut a long recording into clips in its silences: plans by subtitles, or by the places of sentences.

By the boundaries of subtitles:

    subtitles   [ first          ][ second   ]           [ third        ]
    speech       ===== ====  ====    ==== ===  ==          ======= =====
    clips       [first          ] [second   ]            [third          ]

A boundary requires a silence near it; subtitles without a silence between them become one clip. Each clip is
trimmed to its speech plus some padding, at most to the middle of the silence. Speech without a subtitle
belongs to no clip. A subtitle that would be cut within speech is rejected.

By the places of sentences that a recognizer found (aligning.py):

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

from indextts.data.importing.items import Location, Passage, Problem, Rejection
from indextts.data.manifest import Provenance
from indextts.features.vad import Span

MIN_SILENCE_S = 0.1
PADDING_S = 0.15  # before and after the speech: the detector misses soft consonants
NEAR_S = 0.5  # maximum distance of a silence from a boundary, which people set by hand
NEAR_ROLLING_S = 0.2  # boundaries of rolling captions may be at any word, and a far silence would move words
JOINED_S = 0.5  # subtitles with a smaller gap have no other speech between them
LENGTH_BONUS = 0.3  # seconds of distance that a second of silence outweighs

TEXT_PADDING_S = 0.1
TEXT_NEAR_S = 0.25  # of a pause from the letters beside it: the output of the model is not exact
SHORT_S = 2.0
LONG_S = 15.0
JOINED_PAUSE_S = 1.0  # longest pause within a clip of several parts
WORD_PAUSE_S = 0.15


@dataclass(frozen=True)
class Limits:
    """Lengths of clips, in seconds."""

    min_s: float
    max_s: float


def plan_cuts(
    subtitles: Path,
    cues: Sequence[Passage],
    speech: Sequence[Span],
    duration_s: float,
    limits: Limits,
    *,
    is_rolling: bool = False,
) -> list[Passage | Rejection]:
    """Return the clips of a recording in order, and the rejected subtitles.

    Args:
        subtitles: the file of the subtitles.
        cues: in the order of their start; those without text are only boundaries.
        speech: the spans with speech, in order.
    """
    inside = [cue for cue in cues if cue.start_s < duration_s]
    outside = [cue for cue in cues if cue.start_s >= duration_s and cue.text]
    silences = silences_of(speech, duration_s)
    near = NEAR_ROLLING_S if is_rolling else NEAR_S
    plan: list[Passage | Rejection] = []
    group: list[Passage] = []
    before = _nearest(silences, inside[0].start_s, inside[0].start_s, near) if inside else None
    for cue, following in pairwise([*inside, None]):
        assert cue is not None
        group.append(cue)
        after, next_before, is_joined = _boundary(cue, following, silences, near)
        if is_joined:
            continue
        if any(each.text for each in group):
            clip = _clip(group, before, after, limits)
            line = next(each.line for each in group if each.text)
            plan.append(clip if isinstance(clip, Passage) else Rejection(Location(subtitles, line), *clip))
        before, group = next_before, []
    reason = f"the subtitle starts after the end of the recording at {duration_s:.2f} s"
    return plan + [Rejection(Location(subtitles, cue.line), "bad_time", reason) for cue in outside]


def silences_of(speech: Sequence[Span], duration_s: float) -> list[Span]:
    """Return the silences, including those at both ends of the recording even if they are empty."""
    ends = [0.0, *(span.end_s for span in speech)]
    starts = [*(span.start_s for span in speech), duration_s]
    silences = [Span(end, max(end, start)) for end, start in zip(ends, starts, strict=True)]
    inner = [silence for silence in silences[1:-1] if silence.duration_s >= MIN_SILENCE_S]
    return [silences[0], *inner, silences[-1]] if speech else [Span(0.0, duration_s)]


def _boundary(
    first: Passage, second: Passage | None, silences: Sequence[Span], near_s: float
) -> tuple[Span | None, Span | None, bool]:
    """Return the silences at the end of a subtitle and at the start of the next; whether they are joined."""
    if second is not None and second.start_s - first.end_s <= JOINED_S:
        low, high = sorted((first.end_s, second.start_s))
        silence = _nearest(silences, low, high, near_s)
        return silence, silence, silence is None
    end = _nearest(silences, first.end_s, first.end_s, near_s)
    start = None if second is None else _nearest(silences, second.start_s, second.start_s, near_s)
    return end, start, False


def _nearest(silences: Sequence[Span], low_s: float, high_s: float, near_s: float) -> Span | None:
    """Return the silence nearest to a boundary, with a preference for long silences."""

    def distance(silence: Span) -> float:
        return max(0.0, silence.start_s - high_s, low_s - silence.end_s)

    close = [silence for silence in silences if distance(silence) <= near_s]
    return min(
        close,
        key=lambda silence: distance(silence) - LENGTH_BONUS * min(1.0, silence.duration_s),
        default=None,
    )


def _clip(
    group: Sequence[Passage], before: Span | None, after: Span | None, limits: Limits
) -> Passage | Problem:
    if not all(cue.text for cue in group):
        return "no_pause", "no silence between it and a rejected subtitle"
    if before is None or after is None:
        return "no_pause", f"no silence at its {'start' if before is None else 'end'}"
    if before.end_s >= after.start_s:
        return "no_speech", "no speech during the subtitle"
    voices = {cue.voice for cue in group}
    if len(voices) > 1:
        return "dialogue", "no silence between two speakers"
    times = trimmed(before, after, PADDING_S, limits, is_single=len(group) == 1)
    if not isinstance(times, Span):
        return times
    text = " ".join(cue.text for cue in group)
    original = " ".join(cue.original or cue.text for cue in group)
    original = original if original != text else ""
    return Passage(times.start_s, times.end_s, text, group[0].line, voices.pop(), original=original)


def trimmed(
    before: Span, after: Span, padding_s: float, limits: Limits, *, is_single: bool
) -> Span | Problem:
    """Return the times of a clip between two silences, at most to their middles; or why it is unusable.

    Args:
        is_single: of a single subtitle or sentence, which cannot be cut.
    """
    start = max(before.end_s - padding_s, (before.start_s + before.end_s) / 2)
    end = min(after.start_s + padding_s, (after.start_s + after.end_s) / 2)
    length = end - start
    if length > limits.max_s:
        reason = f"{length:.1f} s from silence to silence, the maximum is {limits.max_s:g} s"
        return "too_long" if is_single else "no_pause", reason
    if length < limits.min_s:
        return "too_short", f"{length:.2f} s of speech, the minimum is {limits.min_s:g} s"
    return Span(start, end)


@dataclass(frozen=True)
class Part:
    """Part of a recording: a sentence or some of its words, or speech without a text.

    Args:
        start_s, end_s: of its letters, in seconds.
        line: of the text file.
        score: in nats per letter; None for speech without a text.
        other: the nearest line, or what was heard; shown in the review.
        is_doubtful: a person has to decide.
        words: the word and the times of its first and last letter, of words after which the part may be cut.
    """

    start_s: float
    end_s: float
    text: str
    line: int
    score: float | None
    other: str = ""
    is_doubtful: bool = False
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
        text_file: the file of the sentences.
        parts: in the order of the recording.
        pauses: with those at both ends of the recording, even if they are empty.
        recognizer: its name, for the transcripts.
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
