"""Triangular filters on the bins of a spectrum, evenly spaced on Slaney's mel scale.

The scale ("Auditory Toolbox", Interval Research report 1998-010) is linear up to 1 kHz, 200/3 Hz per mel,
then logarithmic, 27 steps for a factor of 6.4.

Axes: M mel bands.
"""

import numpy as np
from numpy.typing import NDArray


def corners_hz(sample_rate_hz: int, num_bands: int) -> NDArray[np.float64]:
    """Return where triangles begin, peak and end, from 0 to half the rate: (M + 2,), shared by three."""
    top_mel = 15 + np.log(sample_rate_hz / 2 / 1000) * 27 / np.log(6.4)
    mels = np.linspace(0, top_mel, num_bands + 2)  # (M + 2,)
    corners: NDArray[np.float64] = np.where(
        mels < 15, mels * 200 / 3, 1000 * np.exp((mels - 15) * np.log(6.4) / 27)
    )
    return corners


def triangles(sample_rate_hz: int, window: int, num_bands: int) -> NDArray[np.float64]:
    """Return the filters, peaks at most 1: (M, window/2 + 1)."""
    corners = corners_hz(sample_rate_hz, num_bands)
    bins_hz = np.fft.rfftfreq(window, 1 / sample_rate_hz)  # (window/2 + 1,)
    left, peak, right = (corners[i : num_bands + i, None] for i in range(3))  # (M, 1) each
    rising, falling = (bins_hz - left) / (peak - left), (right - bins_hz) / (right - peak)
    filters: NDArray[np.float64] = np.maximum(0, np.minimum(rising, falling))
    return filters
