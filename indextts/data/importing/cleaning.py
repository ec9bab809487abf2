"""Optional clean-up of imported clips: shorter silence at the edges, and a common loudness.

Axes: S samples, C channels.

    recording   |.........|====== ====  =======|..............|     . silence   = speech
    clip             |....|====== ====  =======|....|               with the margin of --trim, then a gain

The gain never raises the peak above PEAK_DBFS. A clip in which Silero's detector finds no speech stays as it
is, and so does a long recording. Clips cut by subtitles are trimmed already.
"""

import math
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import soundfile
import soxr
from numpy.typing import NDArray

from indextts.data.importing.items import Passage
from indextts.features.audio import RecordingError, flac, loudness_lufs, read_channels, to_mono
from indextts.features.vad import END_THRESHOLD, SAMPLE_RATE_HZ, WINDOW_S, speech_probabilities, speech_spans

CLEANING_VERSION = 1  # raise it when the rules change, to clean imported clips again
PEAK_DBFS = -1.0
MAX_CLIP_S = 60.0  # longer ones are not decoded: they need much memory, and none can be trained on

_FINE_SUBTYPES = ("PCM_24", "PCM_32", "FLOAT", "DOUBLE")

TRIMMED, LEVELLED, LIMITED = "trimmed", "set to the loudness", "limited by their peak"
NO_SPEECH, TOO_LONG = "unchanged without speech", f"unchanged above {MAX_CLIP_S:g} s"


@dataclass(frozen=True)
class OutputFile:
    """Temporary output file, or the link to an original, which is never moved or removed."""

    path: Path
    duration_s: float
    is_link: bool = False
    cut: Passage | None = None  # set for a clip of a long recording
    gain_db: float | None = None  # as applied by the clean-up; None without --loudness
    is_cleaned: bool = False  # the clean-up made the file from the original
    outcomes: tuple[str, ...] = ()  # of the reading, the clean-up and --link, for the log


def clean_clip(file: OutputFile, target: Path, margin_s: float, wanted_lufs: float) -> OutputFile:
    """Write a clip as mono FLAC at its rate if the clean-up changes it; return the file that counts.

    The FLAC file has 24 bits if the clip has more than 16, else 16 bits.

    Args:
        margin_s: the longest silence to keep before and after the speech; 0 to keep all.
        wanted_lufs: the integrated loudness after ITU-R BS.1770; 0 to keep the level.

    Raises:
        RecordingError: the clip cannot be read.
        soundfile.LibsndfileError: FLAC does not support its rate.
        OSError: `target` cannot be written.
    """
    try:
        channels, rate_hz = read_channels(file.path, MAX_CLIP_S)  # (S, C)
    except RecordingError as error:
        if error.code == "too_long":
            return replace(file, outcomes=(*file.outcomes, TOO_LONG))
        raise
    mono = to_mono(channels, rate_hz)  # (S,)
    edges = _speech_edges(mono, rate_hz)
    if edges is None:
        return replace(file, outcomes=(*file.outcomes, NO_SPEECH))
    outcomes = list(file.outcomes)
    kept, gain_db = mono, None
    if margin_s:
        first, last = edges[0] - margin_s, edges[1] + margin_s
        kept = mono[max(0, round(first * rate_hz)) : round(last * rate_hz)]
        outcomes += [TRIMMED] if len(kept) < len(mono) else []
    if wanted_lufs:
        wanted_db = wanted_lufs - loudness_lufs(kept - kept.mean(), rate_hz)
        limit_db = PEAK_DBFS - 20 * math.log10(float(np.abs(kept).max()))
        gain_db = math.floor(100 * min(wanted_db, limit_db)) / 100
        outcomes += [LEVELLED, LIMITED] if wanted_db > limit_db else [LEVELLED]
    if outcomes == list(file.outcomes):
        return file
    samples = kept * np.float32(10 ** ((gain_db or 0.0) / 20))
    subtype = "PCM_24" if soundfile.info(file.path).subtype in _FINE_SUBTYPES else "PCM_16"
    target.write_bytes(flac(samples, rate_hz, subtype))
    duration_s = len(kept) / rate_hz
    return OutputFile(target, duration_s, gain_db=gain_db, is_cleaned=True, outcomes=tuple(outcomes))


def _speech_edges(mono: NDArray[np.float32], rate_hz: int) -> tuple[float, float] | None:
    """Return start and end of the speech in seconds; None without speech.

    Words that are too short for a span of speech count too: a clip can begin with one, long before a span.
    """
    duration_s = len(mono) / rate_hz
    probabilities = speech_probabilities(soxr.resample(mono - mono.mean(), rate_hz, SAMPLE_RATE_HZ))
    if not speech_spans(probabilities, duration_s):
        return None
    windows = np.flatnonzero(probabilities >= END_THRESHOLD)
    return float(windows[0]) * WINDOW_S, min(float(windows[-1] + 1) * WINDOW_S, duration_s)
