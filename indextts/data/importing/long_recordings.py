"""Clips from a long recording and its subtitles, written one after another; memory does not grow with it.

Axes: S samples.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import soundfile
import soxr
from numpy.typing import NDArray

from indextts.data.importing.cutting import Cut, Limits, Refused, plan_cuts
from indextts.data.importing.found import Rejection, Where
from indextts.data.importing.rolling import unrolled
from indextts.data.importing.subtitle_language import (
    foreign_by_header,
    foreign_by_info,
    foreign_by_letters,
    foreign_by_script,
)
from indextts.data.importing.subtitles import Cue, cleaned, read_subtitles
from indextts.features.vad import (
    SAMPLE_RATE_HZ,
    WINDOW_SAMPLES,
    Span,
    speech_probabilities,
    speech_spans,
)

_BLOCK_S = 10
_CHUNK_SAMPLES = 300 * SAMPLE_RATE_HZ // WINDOW_SAMPLES * WINDOW_SAMPLES  # of one call of the detector
_WARM_UP_SAMPLES = 2 * SAMPLE_RATE_HZ // WINDOW_SAMPLES * WINDOW_SAMPLES  # that it hears again before a call
_MIN_LETTERS_TO_JUDGE = 3


def read_cues(subtitles: Path, audio: Path, language: str) -> tuple[list[Cue], bool, list[Rejection]]:
    """Return the subtitles that can be cut by, whether they roll, and what was refused.

    Args:
        language: that the data set is in; only Amharic has rules for its script.
    """
    read = read_subtitles(subtitles)
    cues, refused = cleaned(subtitles, read.cues)
    rejections = [*read.rejections, *refused]
    cues, is_rolling = unrolled(cues)
    text = " ".join(cue.text for cue in cues)
    foreign = None
    if language == "am" and text.strip():
        foreign = (
            foreign_by_header(read.headers) or foreign_by_info(subtitles, audio) or foreign_by_letters(text)
        )
    if foreign:
        return [], False, [*rejections, Rejection(Where(subtitles), "language", foreign)]
    if not text.strip():
        return (
            [],
            False,
            [*rejections, Rejection(Where(subtitles), "empty_text", "no subtitle with spoken text")],
        )
    if language == "am":
        cues, foreign_cues = _without_foreign(subtitles, cues)
        rejections += foreign_cues
    return cues, is_rolling, rejections


def _without_foreign(subtitles: Path, cues: Sequence[Cue]) -> tuple[list[Cue], list[Rejection]]:
    """Return the subtitles with those in another script as borders only."""
    kept, rejections = [], []
    for cue in cues:
        letters = sum(char.isalpha() for char in cue.text)
        reason = foreign_by_script(cue.text) if letters >= _MIN_LETTERS_TO_JUDGE else None
        if reason:
            rejections.append(Rejection(Where(subtitles, cue.line), "language", reason))
            cue = Cue(cue.start_s, cue.end_s, "", cue.line, cue.voice)
        kept.append(cue)
    return kept, rejections


def plan_clips(
    audio: Path, subtitles: Path, cues: Sequence[Cue], limits: Limits, *, is_rolling: bool
) -> tuple[list[Cut], list[Rejection]]:
    """Return the clips of a recording, and the subtitles that make none.

    Args:
        audio: a file that libsndfile reads.
    """
    speech, duration_s = find_speech_in_file(audio)
    plan = plan_cuts(cues, speech, duration_s, limits, is_rolling=is_rolling)
    refused = [item for item in plan if isinstance(item, Refused)]
    rejections = [Rejection(Where(subtitles, item.line), item.code, item.reason) for item in refused]
    return [item for item in plan if isinstance(item, Cut)], rejections


def find_speech_in_file(path: Path) -> tuple[list[Span], float]:
    """Return where somebody speaks in a file, and its duration in seconds."""
    probabilities: list[NDArray[np.float32]] = []
    num_samples = 0
    before = np.zeros(0, np.float32)
    for chunk in _chunks(path):
        heard = np.concatenate([before, chunk])
        probabilities.append(speech_probabilities(heard)[len(before) // WINDOW_SAMPLES :])
        before = chunk[-_WARM_UP_SAMPLES:] if len(chunk) == _CHUNK_SAMPLES else before[:0]
        num_samples += len(chunk)
    duration_s = num_samples / SAMPLE_RATE_HZ
    joined = np.concatenate(probabilities) if probabilities else np.zeros(0, np.float32)
    return speech_spans(joined, duration_s), duration_s


def write_cuts(path: Path, cuts: Sequence[Cut], target_of: Callable[[int], Path]) -> list[float]:
    """Write the clips as FLAC, mono, at the rate of the recording; return their durations in seconds.

    The file is read from its start to its end: not every format finds a place exactly.

    Args:
        cuts: in order, not overlapping.
        target_of: the file of the clip with this number.
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


def _chunks(path: Path) -> Iterator[NDArray[np.float32]]:
    """Yield a recording at the detector's rate, in chunks of whole windows, the last as long as it is."""
    with soundfile.SoundFile(path) as file:
        resampler = soxr.ResampleStream(file.samplerate, SAMPLE_RATE_HZ, 1, dtype="float32")
        waiting: list[NDArray[np.float32]] = []
        num_waiting = 0
        is_last = False
        while not is_last:
            block = _read_mono(file, _BLOCK_S * file.samplerate)
            is_last = len(block) == 0
            resampled = resampler.resample_chunk(block, last=is_last)
            waiting.append(resampled)
            num_waiting += len(resampled)
            while num_waiting >= _CHUNK_SAMPLES or (is_last and num_waiting):
                joined = np.concatenate(waiting)
                yield joined[:_CHUNK_SAMPLES]
                waiting = [joined[_CHUNK_SAMPLES:]]
                num_waiting = len(waiting[0])


def _read_mono(file: soundfile.SoundFile, num_frames: int) -> NDArray[np.float32]:
    samples = file.read(num_frames, dtype="float32", always_2d=True)  # (S, channels)
    mono: NDArray[np.float32] = samples.mean(axis=1, dtype=np.float32)  # (S,)
    return mono
