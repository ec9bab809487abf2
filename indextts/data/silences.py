"""Silences of a recording, and the clips between them: of an import, an alignment or a transcription."""

from collections.abc import Sequence
from dataclasses import dataclass

from indextts.data.importing.items import Problem
from indextts.features.vad import Span

MIN_SILENCE_S = 0.1
PADDING_S = 0.15  # before and after the speech: the detector misses soft consonants


@dataclass(frozen=True)
class Limits:
    """Lengths of clips, in seconds."""

    min_s: float
    max_s: float


def silences_of(speech: Sequence[Span], duration_s: float) -> list[Span]:
    """Return the silences, including those at both ends of the recording even if they are empty."""
    ends = [0.0, *(span.end_s for span in speech)]
    starts = [*(span.start_s for span in speech), duration_s]
    silences = [Span(end, max(end, start)) for end, start in zip(ends, starts, strict=True)]
    inner = [silence for silence in silences[1:-1] if silence.duration_s >= MIN_SILENCE_S]
    return [silences[0], *inner, silences[-1]] if speech else [Span(0.0, duration_s)]


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
