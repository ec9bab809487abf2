"""Reading and checking reference recordings of a voice or an emotion, cut as published.

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
from indextts.features.vad import SAMPLE_RATE_HZ as VAD_RATE_HZ
from indextts.features.vad import find_speech

logger = logging.getLogger(__name__)

MIN_LOUDNESS_DB = -50.0  # of the loudest 100 ms, relative to full scale


def load_speech(path: Path, rate_hz: int) -> NDArray[np.float32]:
    """Return the first 15 s of a recording that contains speech: (S,) at `rate_hz`.

    Raises:
        UserError: the recording cannot be read, is too short or too long, or these 15 s are silent or contain
            no speech.
    """
    duration_s = audio_duration_s(path)
    require_reference_length(path, duration_s)
    if duration_s < SHORT_REFERENCE_S:
        logger.warning(
            "%s lasts only %.1f s; a longer reference describes the voice better", path, duration_s
        )
    if duration_s > MAX_REFERENCE_S:
        logger.warning("%s lasts %.1f s; only the first %d s are used", path, duration_s, MAX_REFERENCE_S)
    samples = load_audio(path, rate_hz)[: MAX_REFERENCE_S * rate_hz]
    if _loudness_db(samples, rate_hz) < MIN_LOUDNESS_DB:
        raise UserError(
            f"{path}: silent in the first {MAX_REFERENCE_S} s (the loudest 100 ms are below "
            f"{MIN_LOUDNESS_DB:g} dB of full scale); use a recording with speech"
        )
    if not find_speech(soxr.resample(samples, rate_hz, VAD_RATE_HZ)):
        raise UserError(
            f"{path}: no speech found in the first {MAX_REFERENCE_S} s; use a recording of one speaker "
            "without music"
        )
    return samples


def _loudness_db(samples: NDArray[np.float32], rate_hz: int) -> float:
    """Return the level of the loudest 100 ms."""
    window = rate_hz // 10
    whole = samples[: len(samples) // window * window].reshape(-1, window)
    loudest = float(np.sqrt((whole.astype(np.float64) ** 2).mean(axis=1)).max(initial=0.0))
    return 20 * math.log10(max(loudest, 1e-10))
