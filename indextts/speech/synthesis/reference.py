"""Recordings that say how a voice or an emotion sounds: read, checked, cut as published.

Axes: S samples.
"""

import logging
import math
from pathlib import Path

import numpy as np
import soxr
from numpy.typing import NDArray

from indextts.errors import UserError
from indextts.features.audio import (
    MAX_REFERENCE_S,
    SHORT_REFERENCE_S,
    audio_duration_s,
    load_audio,
    require_reference_length,
)
from indextts.features.mel_spectrogram import KALDI_RATE_HZ, SAMPLE_RATE_HZ
from indextts.features.vad import SAMPLE_RATE_HZ as VAD_RATE_HZ
from indextts.features.vad import find_speech

logger = logging.getLogger(__name__)

MIN_LOUDNESS_DB = -50.0  # of the loudest 100 ms, relative to full scale


def load_reference(path: Path) -> NDArray[np.float32]:
    """Return the voice to speak with: (S,) at 22,050 Hz, its first 15 s.

    Raises:
        UserError: the recording cannot be read, its length does not fit, or nothing
            can be heard in those 15 s.
    """
    return _load(path, SAMPLE_RATE_HZ)


def load_emotion(path: Path) -> NDArray[np.float32]:
    """Return the recording of an emotion: (S,) at 16,000 Hz, its first 15 s; errors as for `load_reference`.

    Published inference reads it at this rate at once, also where it is the voice's own recording.
    """
    return _load(path, KALDI_RATE_HZ)


def load_speech(path: Path, rate_hz: int) -> NDArray[np.float32]:
    """Return a recording in which somebody speaks: (S,) at `rate_hz`, its first 15 s.

    Raises:
        UserError: as for `load_reference`; or no speech is found in it.
    """
    samples = _load(path, rate_hz)
    if not find_speech(soxr.resample(samples, rate_hz, VAD_RATE_HZ)):
        raise UserError(
            f"{path}: no speech is found in its first {MAX_REFERENCE_S} s; give a recording of one person "
            "who speaks, without music"
        )
    return samples


def _load(path: Path, rate_hz: int) -> NDArray[np.float32]:
    duration_s = audio_duration_s(path)
    require_reference_length(path, duration_s)
    if duration_s < SHORT_REFERENCE_S:
        logger.warning("%s lasts only %.1f s; a longer reference tells more of the voice", path, duration_s)
    if duration_s > MAX_REFERENCE_S:
        logger.warning("%s lasts %.1f s; only the first %d s are used", path, duration_s, MAX_REFERENCE_S)
    samples = load_audio(path, rate_hz)[: MAX_REFERENCE_S * rate_hz]
    if _loudness_db(samples, rate_hz) < MIN_LOUDNESS_DB:
        raise UserError(
            f"{path}: nothing is heard in its first {MAX_REFERENCE_S} s (the loudest 100 ms are below "
            f"{MIN_LOUDNESS_DB:g} dB of full scale); give a recording with speech"
        )
    return samples


def _loudness_db(samples: NDArray[np.float32], rate_hz: int) -> float:
    """Return the level of the loudest 100 ms."""
    window = rate_hz // 10
    whole = samples[: len(samples) // window * window].reshape(-1, window)
    loudest = float(np.sqrt((whole.astype(np.float64) ** 2).mean(axis=1)).max(initial=0.0))
    return 20 * math.log10(max(loudest, 1e-10))
