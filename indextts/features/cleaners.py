"""Removal of the hum of the mains from speech, and what that cost the speech.

Axes: S samples, T frames, K bands.
"""

import numpy as np
from numpy.typing import NDArray

_HUM_DB = 12.0  # a line of hum above the spectrum around it, at most times of the clip
_MAX_HUM_HZ = 1000
_MIN_LINES = 3  # fewer may be held tones
_NOTCH_HZ = 4.0  # width
# fmt: off
_EDGE_HZ = (80, 160, 250, 350, 450, 570, 700, 840, 1000, 1170, 1370, 1600, 1850, 2150, 2500, 2900, 3400, 4000)
# fmt: on
_ABOVE_NOISE_DB = 15.0
_BELOW_PEAK_DB = 40.0
_LOST_DB = 6.0


def lost_speech(before: NDArray[np.float32], after: NDArray[np.float32], rate_hz: int) -> float:
    """Return the share of the speech that cleaning has removed.

    DNSMOS does not see it: it rewards the absence of noise. Speech is what is clearly above the noise of its
    band and near the loudest sound; it is removed where cleaning takes more than 6 dB.

    Args:
        before, after: (S,), of the same length.
    """
    found, kept = _band_levels(before, rate_hz), _band_levels(after, rate_hz)  # (T, K), in dB
    noise = np.quantile(found, 0.2, axis=0)  # (K,)
    is_speech = (found > noise + _ABOVE_NOISE_DB) & (found > found.max(initial=-200) - _BELOW_PEAK_DB)
    return float(((found - kept)[is_speech] > _LOST_DB).mean()) if is_speech.any() else 1.0


def _band_levels(samples: NDArray[np.float32], rate_hz: int) -> NDArray[np.float64]:
    """Return the level of each band in frames of 32 ms, every 16 ms, in dB: (T, K)."""
    size = int(0.032 * rate_hz)
    padded = np.pad(samples, (0, max(0, size - len(samples))))
    frames = np.lib.stride_tricks.sliding_window_view(padded, size)[:: size // 2] * np.hanning(size)
    power = np.abs(np.fft.rfft(frames)) ** 2
    edges = [round(hz * 0.032) for hz in _EDGE_HZ if hz <= rate_hz / 2]
    levels: NDArray[np.float64] = 10 * np.log10(np.add.reduceat(power, edges, axis=1)[:, :-1] + 1e-9)
    return levels


def without_hum(samples: NDArray[np.float32], rate_hz: int) -> NDArray[np.float32] | None:
    """Return a recording (S,) without the hum of the mains; None if it has none."""
    from scipy import signal  # imported here because it takes seconds

    hz, power = signal.welch(samples, rate_hz, nperseg=min(rate_hz, len(samples)), average="median")
    level = 10 * np.log10(power + 1e-20)
    lines: list[int] = []
    for mains_hz in (50, 60):
        multiples = [line for line in range(mains_hz, _MAX_HUM_HZ + 1, mains_hz) if line < rate_hz / 2.1]
        found = [line for line in multiples if _stands_out(level, hz, line)]
        if len(found) >= _MIN_LINES and found[0] <= 2 * mains_hz:  # not the multiples of a note
            lines = max(lines, found, key=len)
    if not lines:
        return None
    cleaned = samples.astype(np.float64)
    for line in lines:
        cleaned = signal.filtfilt(*signal.iirnotch(line, line / _NOTCH_HZ, rate_hz), cleaned)
    return cleaned.astype(np.float32)


def _stands_out(level: NDArray[np.float64], hz: NDArray[np.float64], line: int) -> bool:
    distance = np.abs(hz - line)
    around = level[(distance >= 4) & (distance <= 20)]
    return bool(level[distance < 2].max() > np.median(around) + _HUM_DB)
