"""Where to cut a long recording: at the silences nearest to the borders of its subtitles.

    subtitles   [ first          ][ second   ]           [ third        ]
    speech       ===== ====  ====    ==== ===  ==          ======= =====
    clips       [first          ] [second   ]            [third          ]

A border counts where a silence lies near it; subtitles without one between them become one clip. Each clip is
trimmed to its speech and a little more, never beyond the middle of the silence. Speech that no subtitle
covers belongs to no clip, and nothing is cut in the middle of speech: such subtitles are rejected.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from indextts.data.importing.subtitles import Cue
from indextts.features.vad import Span

MIN_SILENCE_S = 0.1
PADDING_S = 0.15  # kept before and after the speech: soft consonants are quieter than the detector hears
NEAR_S = 0.5  # a silence may be this far from a border: people set subtitles by hand
NEAR_ROLLING_S = 0.2  # where borders fall on any word, the words on the wrong side of a silence are lost
JOINED_S = 0.5  # subtitles that are less apart follow each other without other speech between
LENGTH_BONUS = 0.3  # seconds of distance that a second of silence is worth


@dataclass(frozen=True, slots=True)
class Cut:
    """A clip of a recording, in seconds from its start; `line` is that of its first subtitle."""

    start_s: float
    end_s: float
    text: str
    line: int
    voice: str | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """A subtitle, or several without a silence between them, that make no clip."""

    line: int
    code: str
    reason: str


@dataclass(frozen=True)
class Limits:
    """The lengths of clips, in seconds."""

    min_s: float
    max_s: float


@dataclass(frozen=True)
class _Border:
    """Between two subtitles: the silence where the first ends and the one where the second begins."""

    end: Span | None
    start: Span | None
    is_joined: bool = False


def plan_cuts(
    cues: Sequence[Cue],
    speech: Sequence[Span],
    duration_s: float,
    limits: Limits,
    *,
    is_rolling: bool = False,
) -> list[Cut | Refused]:
    """Return the clips of a recording in order, and the subtitles that make none.

    Args:
        cues: in the order of their start; those without text are borders only.
        speech: where somebody speaks, in order.
    """
    inside = [cue for cue in cues if cue.start_s < duration_s]
    outside = [cue for cue in cues if cue.start_s >= duration_s and cue.text]
    silences = _silences(speech, duration_s)
    near = NEAR_ROLLING_S if is_rolling else NEAR_S
    borders = _borders(inside, silences, near)
    plan: list[Cut | Refused] = []
    for first, last in _groups(borders):
        group = inside[first : last + 1]
        if any(cue.text for cue in group):
            plan.append(_clip(group, borders[first].start, borders[last + 1].end, limits))
    reason = f"it begins after the end of the recording at {duration_s:.2f} s"
    return plan + [Refused(cue.line, "bad_time", reason) for cue in outside]


def _silences(speech: Sequence[Span], duration_s: float) -> list[Span]:
    """Return the silences, the ends of the recording among them even where they are empty."""
    ends = [0.0, *(span.end_s for span in speech)]
    starts = [*(span.start_s for span in speech), duration_s]
    silences = [Span(end, max(end, start)) for end, start in zip(ends, starts, strict=True)]
    inner = [silence for silence in silences[1:-1] if silence.duration_s >= MIN_SILENCE_S]
    return [silences[0], *inner, silences[-1]] if speech else [Span(0.0, duration_s)]


def _borders(cues: Sequence[Cue], silences: Sequence[Span], near_s: float) -> list[_Border]:
    """Return the border before each subtitle, and the one after the last."""
    if not cues:
        return []
    borders = [_Border(None, _nearest(silences, cues[0].start_s, cues[0].start_s, near_s))]
    for first, second in pairwise(cues):
        low, high = sorted((first.end_s, second.start_s))
        if second.start_s - first.end_s <= JOINED_S:
            silence = _nearest(silences, low, high, near_s)
            borders.append(_Border(silence, silence, is_joined=silence is None))
        else:
            end = _nearest(silences, first.end_s, first.end_s, near_s)
            borders.append(_Border(end, _nearest(silences, second.start_s, second.start_s, near_s)))
    borders.append(_Border(_nearest(silences, cues[-1].end_s, cues[-1].end_s, near_s), None))
    return borders


def _nearest(silences: Sequence[Span], low_s: float, high_s: float, near_s: float) -> Span | None:
    """Return the silence that is nearest to a border, a long one rather than a short one."""

    def distance(silence: Span) -> float:
        return max(0.0, silence.start_s - high_s, low_s - silence.end_s)

    close = [silence for silence in silences if distance(silence) <= near_s]
    return min(
        close,
        key=lambda silence: distance(silence) - LENGTH_BONUS * min(1.0, silence.duration_s),
        default=None,
    )


def _groups(borders: Sequence[_Border]) -> Iterator[tuple[int, int]]:
    """Yield the first and the last subtitle of each clip."""
    first = 0
    for number in range(1, len(borders)):
        if not borders[number].is_joined:
            yield first, number - 1
            first = number


def _clip(group: Sequence[Cue], before: Span | None, after: Span | None, limits: Limits) -> Cut | Refused:
    line = next(cue.line for cue in group if cue.text)
    if not all(cue.text for cue in group):
        return Refused(
            line, "no_pause", "no silence between it and a subtitle that is no speech of one voice"
        )
    if before is None or after is None:
        return Refused(line, "no_pause", f"no silence where it {'begins' if before is None else 'ends'}")
    if before.end_s >= after.start_s:
        return Refused(line, "no_speech", "nobody speaks while it is shown")
    voices = {cue.voice for cue in group}
    if len(voices) > 1:
        return Refused(line, "dialogue", "no silence between two persons")
    start = max(before.end_s - PADDING_S, (before.start_s + before.end_s) / 2)
    end = min(after.start_s + PADDING_S, (after.start_s + after.end_s) / 2)
    length = end - start
    if length > limits.max_s:
        code = "no_pause" if len(group) > 1 else "too_long"
        reason = f"{length:.1f} s from silence to silence, {limits.max_s:g} are allowed"
        return Refused(line, code, reason)
    if length < limits.min_s:
        return Refused(line, "too_short", f"{length:.2f} s of speech, {limits.min_s:g} are needed")
    return Cut(start, end, " ".join(cue.text for cue in group), line, voices.pop())
