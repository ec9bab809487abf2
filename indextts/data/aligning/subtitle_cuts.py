"""Cut a long recording into clips in its silences, by the boundaries of subtitles.

    subtitles   [ first          ][ second   ]           [ third        ]
    speech       ===== ====  ====    ==== ===  ==          ======= =====
    clips       [first          ] [second   ]            [third          ]

A boundary requires a silence near it; subtitles without a silence between them become one clip. Each clip is
trimmed to its speech plus some padding, at most to the middle of the silence. Speech without a subtitle
belongs to no clip. A subtitle that would be cut within speech is rejected.
"""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from indextts.data.importing.items import Location, Passage, Problem, Rejection
from indextts.data.silences import PADDING_S, Limits, silences_of, trimmed
from indextts.features.vad import Span

NEAR_S = 0.5  # maximum distance of a silence from a boundary, which people set by hand
NEAR_ROLLING_S = 0.2  # boundaries of rolling captions may be at any word, and a far silence would move words
JOINED_S = 0.5  # subtitles with a smaller gap have no other speech between them
LENGTH_BONUS = 0.3  # seconds of distance that a second of silence outweighs


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
