"""Loudness of a recording after ITU-R BS.1770."""

import numpy as np
from numpy.typing import NDArray

LOWEST_DB = -120.0  # the level of digital silence, instead of minus infinity
BLOCK_S = 0.4


def loudness_lufs(mono: NDArray[np.float32], rate_hz: int) -> float:
    """Return the loudness in LUFS of mono samples (S,); a clip shorter than a block is a single block."""
    block_s = min(BLOCK_S, len(mono) / rate_hz * (1 - 1e-9))  # a rounded-up block would not fit
    if not mono.any():
        return LOWEST_DB
    import pyloudnorm  # it imports scipy, which takes seconds

    loudness = pyloudnorm.Meter(rate_hz, block_size=block_s).integrated_loudness(mono)
    return max(float(loudness), LOWEST_DB)
