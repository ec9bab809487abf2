"""Cut a long recording into clips at the silences nearest to the boundaries of its subtitles.

Axes: S samples.

    subtitles   [ first          ][ second   ]           [ third        ]
    speech       ===== ====  ====    ==== ===  ==          ======= =====
    clips       [first          ] [second   ]            [third          ]

A boundary requires a silence near it; subtitles without a silence between them become one clip. Each clip is
trimmed to its speech plus some padding, at most to the middle of the silence. Speech without a subtitle
belongs to no clip. A subtitle that would be cut within speech is rejected. Memory does not grow with the
length of the recording.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import soundfile
import soxr
from numpy.typing import NDArray

from indextts.data.importing.items import Location, Problem, Rejection
from indextts.data.importing.subtitles import Cue
from indextts.data.manifest import Provenance
from indextts.features.vad import (
    SAMPLE_RATE_HZ,
    WINDOW_SAMPLES,
    Span,
    speech_probabilities,
    speech_spans,
)

MIN_SILENCE_S = 0.1
PADDING_S = 0.15  # before and after the speech: the detector misses soft consonants
NEAR_S = 0.5  # maximum distance of a silence from a boundary, which people set by hand
NEAR_ROLLING_S = 0.2  # boundaries of rolling captions may be at any word, and a far silence would move words
JOINED_S = 0.5  # subtitles with a smaller gap have no other speech between them
LENGTH_BONUS = 0.3  # seconds of distance that a second of silence outweighs

_BLOCK_S = 10
_CHUNK_SAMPLES = 300 * SAMPLE_RATE_HZ // WINDOW_SAMPLES * WINDOW_SAMPLES  # per call of the detector
_WARM_UP_SAMPLES = 2 * SAMPLE_RATE_HZ // WINDOW_SAMPLES * WINDOW_SAMPLES  # repeated before each call


@dataclass(frozen=True, slots=True)
class Cut:
    """A clip of a recording, in seconds from its start; `line` is that of its first subtitle."""

    start_s: float
    end_s: float
    text: str
    line: int
    voice: str | None = None
    provenance: Provenance | None = None


@dataclass(frozen=True)
class Limits:
    """Lengths of clips, in seconds."""

    min_s: float
    max_s: float


@dataclass(frozen=True)
class _Boundary:
    """Boundary of two subtitles: the silence at the end of the first and that at the start of the second."""

    end: Span | None
    start: Span | None
    is_joined: bool = False


def plan_cuts(
    subtitles: Path,
    cues: Sequence[Cue],
    speech: Sequence[Span],
    duration_s: float,
    limits: Limits,
    *,
    is_rolling: bool = False,
) -> list[Cut | Rejection]:
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
    boundaries = _boundaries(inside, silences, near)
    plan: list[Cut | Rejection] = []
    for first, last in _groups(boundaries):
        group = inside[first : last + 1]
        if any(cue.text for cue in group):
            clip = _clip(group, boundaries[first].start, boundaries[last + 1].end, limits)
            line = next(cue.line for cue in group if cue.text)
            plan.append(clip if isinstance(clip, Cut) else Rejection(Location(subtitles, line), *clip))
    reason = f"the subtitle starts after the end of the recording at {duration_s:.2f} s"
    return plan + [Rejection(Location(subtitles, cue.line), "bad_time", reason) for cue in outside]


def silences_of(speech: Sequence[Span], duration_s: float) -> list[Span]:
    """Return the silences, including those at both ends of the recording even if they are empty."""
    ends = [0.0, *(span.end_s for span in speech)]
    starts = [*(span.start_s for span in speech), duration_s]
    silences = [Span(end, max(end, start)) for end, start in zip(ends, starts, strict=True)]
    inner = [silence for silence in silences[1:-1] if silence.duration_s >= MIN_SILENCE_S]
    return [silences[0], *inner, silences[-1]] if speech else [Span(0.0, duration_s)]


def _boundaries(cues: Sequence[Cue], silences: Sequence[Span], near_s: float) -> list[_Boundary]:
    """Return the boundary before each subtitle, and the one after the last."""
    if not cues:
        return []
    boundaries = [_Boundary(None, _nearest(silences, cues[0].start_s, cues[0].start_s, near_s))]
    for first, second in pairwise(cues):
        low, high = sorted((first.end_s, second.start_s))
        if second.start_s - first.end_s <= JOINED_S:
            silence = _nearest(silences, low, high, near_s)
            boundaries.append(_Boundary(silence, silence, is_joined=silence is None))
        else:
            end = _nearest(silences, first.end_s, first.end_s, near_s)
            boundaries.append(_Boundary(end, _nearest(silences, second.start_s, second.start_s, near_s)))
    boundaries.append(_Boundary(_nearest(silences, cues[-1].end_s, cues[-1].end_s, near_s), None))
    return boundaries


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


def _groups(boundaries: Sequence[_Boundary]) -> Iterator[tuple[int, int]]:
    """Yield the indices of the first and the last subtitle of each clip."""
    first = 0
    for number in range(1, len(boundaries)):
        if not boundaries[number].is_joined:
            yield first, number - 1
            first = number


def _clip(group: Sequence[Cue], before: Span | None, after: Span | None, limits: Limits) -> Cut | Problem:
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
    return Cut(times.start_s, times.end_s, text, group[0].line, voices.pop())


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


def find_speech_in_file(path: Path) -> tuple[list[Span], float]:
    """Return the spans with speech of a file, and its duration in seconds."""
    probabilities: list[NDArray[np.float32]] = []
    num_samples = 0
    before = np.zeros(0, np.float32)
    for chunk in read_chunks(path, SAMPLE_RATE_HZ, _CHUNK_SAMPLES):
        heard = np.concatenate([before, chunk])
        probabilities.append(speech_probabilities(heard)[len(before) // WINDOW_SAMPLES :])
        before = chunk[-_WARM_UP_SAMPLES:] if len(chunk) == _CHUNK_SAMPLES else before[:0]
        num_samples += len(chunk)
    duration_s = num_samples / SAMPLE_RATE_HZ
    joined = np.concatenate(probabilities) if probabilities else np.zeros(0, np.float32)
    return speech_spans(joined, duration_s), duration_s


def write_cuts(path: Path, cuts: Sequence[Cut], target_of: Callable[[int], Path]) -> list[float]:
    """Write the clips as mono FLAC at the rate of the recording; return their durations in seconds.

    The file is read sequentially, because seeking is not exact in every format.

    Args:
        cuts: in order, without overlap.
        target_of: returns the file of a clip, by its index.
    """
    durations = []
    with soundfile.SoundFile(path) as file:
        rate = file.samplerate
        position = 0
        held = np.zeros(0, np.float32)  # samples from `position` on
        for number, cut in enumerate(cuts):
            first, last = round(cut.start_s * rate), round(cut.end_s * rate)
            parts = []
            while True:
                end = position + len(held)
                if end > first:
                    parts.append(held[max(0, first - position) : max(0, last - position)])
                if end >= last:
                    break
                position, held = end, _read_mono(file, _BLOCK_S * rate)
                if not len(held):
                    break
            samples = np.concatenate(parts) if parts else held[:0]
            soundfile.write(target_of(number), np.clip(samples, -1, 1), rate, format="FLAC", subtype="PCM_16")
            durations.append(len(samples) / rate)
    return durations


def read_chunks(path: Path, sample_rate_hz: int, num_samples: int) -> Iterator[NDArray[np.float32]]:
    """Yield a recording as mono at another rate, in chunks of `num_samples` except for the last."""
    with soundfile.SoundFile(path) as file:
        resampler = soxr.ResampleStream(file.samplerate, sample_rate_hz, 1, dtype="float32")
        waiting: list[NDArray[np.float32]] = []
        num_waiting = 0
        is_last = False
        while not is_last:
            block = _read_mono(file, _BLOCK_S * file.samplerate)
            is_last = len(block) == 0
            resampled = resampler.resample_chunk(block, last=is_last)
            waiting.append(resampled)
            num_waiting += len(resampled)
            while num_waiting >= num_samples or (is_last and num_waiting):
                joined = np.concatenate(waiting)
                yield joined[:num_samples]
                waiting = [joined[num_samples:]]
                num_waiting = len(waiting[0])


def _read_mono(file: soundfile.SoundFile, num_frames: int) -> NDArray[np.float32]:
    samples = file.read(num_frames, dtype="float32", always_2d=True)  # (S, channels)
    mono: NDArray[np.float32] = samples.mean(axis=1, dtype=np.float32)  # (S,)
    return mono
