"""Log-mel input of w2v-BERT 2.0, and Slaney mel filters.

This module does not import torch, so processes that only read recordings start quickly.

Axes: S samples at 16 kHz, N log-mel frames (100 per second), M mel bands, T pairs of frames (50 per second),
W = 2 M width of a pair.

    samples (S,) times 2^15
      N = 1 + (S - 400) // 160 frames of 25 ms: mean removed, pre-emphasis 0.97, Povey's window (Hann ^ 0.85),
      power spectrum of 512 points, M = 80 triangular filters on Kaldi's mel scale from 20 Hz, logarithm
      each band scaled to mean 0 and variance 1 over the clip
      T = N // 2 concatenated pairs; if N is odd, the last frame only contributes to the scaling. The
      published inference keeps it, followed by PADDING, as a further pair that the others cannot see

The values equal those of transformers' SeamlessM4TFeatureExtractor. That class computes frame by frame and
takes three times as long.

Slaney's mel scale ("Auditory Toolbox", Interval Research report 1998-010), on which `slaney_filters` are
evenly spaced, is linear up to 1 kHz (200/3 Hz per mel), then logarithmic (27 steps for a factor of 6.4).
"""

from functools import cache
from typing import Any

import numpy as np
import soxr
from numpy.typing import NDArray

SAMPLE_RATE_HZ = 16_000
RECORDED_RATE_HZ = 24_000  # of the input of `prepare`: the published training resampled through this rate
WINDOW, HOP = 400, 160  # samples
FRAMES_PER_VECTOR = 2
NUM_BANDS = 80
WIDTH = FRAMES_PER_VECTOR * NUM_BANDS
FFT_LENGTH = 512
PRE_EMPHASIS = 0.97
LOWEST_HZ = 20
MIN_POWER = 2.0**-23
MIN_VARIANCE = 1e-7
PADDING = 1.0  # after scaling, as published


def prepare(audio: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the model's input for samples at RECORDED_RATE_HZ: (T, W)."""
    return log_mel_pairs(at_16_khz(audio))


def at_16_khz(audio: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return samples at RECORDED_RATE_HZ, resampled to 16 kHz: (S,)."""
    samples: NDArray[np.float32] = soxr.resample(audio, RECORDED_RATE_HZ, SAMPLE_RATE_HZ)
    return samples


def num_vectors(num_samples: int) -> int:
    """Return the number of frame pairs of a clip at 16 kHz."""
    return max(0, 1 + (num_samples - WINDOW) // HOP) // FRAMES_PER_VECTOR


def log_mel_pairs(samples: NDArray[np.float32], *, keeps_odd_frame: bool = False) -> NDArray[np.float32]:
    """Return the model's input for one clip (S,), without padding: (T, W).

    Args:
        keeps_odd_frame: whether an odd last frame and PADDING make a last pair.
    """
    length = num_vectors(len(samples))
    if length == 0:
        return np.zeros((0, WIDTH), np.float32)
    bands = _log_mel(samples)  # (M, N)
    # Reduce along the frames in memory order: another order of summation changes the last digit.
    frames = bands.T  # (N, M)
    scaled = (frames - frames.mean(0)) / np.sqrt(frames.var(0, ddof=1) + MIN_VARIANCE)
    if keeps_odd_frame and len(scaled) % FRAMES_PER_VECTOR:
        scaled = np.concatenate([scaled, np.full((1, NUM_BANDS), PADDING, np.float32)])
        length += 1
    pairs: NDArray[np.float32] = scaled[: FRAMES_PER_VECTOR * length].reshape(length, WIDTH)
    return pairs


def _log_mel(samples: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the logarithmic power of each band: (M, N)."""
    scaled = (samples * np.float32(2**15)).astype(np.float64)
    frames = np.lib.stride_tricks.sliding_window_view(scaled, WINDOW)[::HOP]  # (N, WINDOW)
    frames = frames - frames.mean(axis=1, keepdims=True)
    emphasised = frames - PRE_EMPHASIS * np.concatenate([frames[:, :1], frames[:, :-1]], axis=1)
    spectrum = np.fft.rfft(emphasised * _window(), FFT_LENGTH).astype(np.complex64)  # (N, 257)
    power = np.abs(spectrum, dtype=np.float64) ** 2
    floored = np.maximum(MIN_POWER, _filters() @ power.T)  # (M, N)
    bands: NDArray[np.float32] = np.log(floored).astype(np.float32)
    return bands


@cache
def _window() -> NDArray[np.float64]:
    return np.hanning(WINDOW) ** 0.85


@cache
def _filters() -> NDArray[np.float64]:
    """Return triangular filters on the bins of the spectrum, with peaks of at most 1: (M, 257)."""
    bins = mel_of(np.arange(FFT_LENGTH // 2 + 1) * SAMPLE_RATE_HZ / FFT_LENGTH)  # (257,)
    lowest, highest = mel_of(np.array([LOWEST_HZ, SAMPLE_RATE_HZ / 2]))
    return _triangles(bins, np.linspace(lowest, highest, NUM_BANDS + 2))


def mel_of(frequencies_hz: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return frequencies on Kaldi's mel scale."""
    mels: NDArray[np.float64] = 1127 * np.log1p(frequencies_hz / 700)
    return mels


def _triangles(bins: NDArray[Any], corners: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return filters on `bins` (N,) that rise, peak at 1 and fall between `corners` (M + 2,): (M, N)."""
    left, peak, right = (corners[start : len(corners) - 2 + start, None] for start in range(3))  # (M, 1) each
    rising, falling = (bins - left) / (peak - left), (right - bins) / (right - peak)
    filters: NDArray[np.float64] = np.maximum(0, np.minimum(rising, falling))
    return filters


def corners_hz(sample_rate_hz: int, num_bands: int) -> NDArray[np.float64]:
    """Return start, peak and end frequencies of the filters, from 0 to half the sample rate: (M + 2,)."""
    top_mel = 15 + np.log(sample_rate_hz / 2 / 1000) * 27 / np.log(6.4)
    mels = np.linspace(0, top_mel, num_bands + 2)  # (M + 2,)
    corners: NDArray[np.float64] = np.where(
        mels < 15, mels * 200 / 3, 1000 * np.exp((mels - 15) * np.log(6.4) / 27)
    )
    return corners


def slaney_filters(sample_rate_hz: int, window: int, num_bands: int) -> NDArray[np.float64]:
    """Return triangular filters on Slaney's scale, with peaks of at most 1: (M, window/2 + 1)."""
    corners = corners_hz(sample_rate_hz, num_bands)
    bins_hz = np.fft.rfftfreq(window, 1 / sample_rate_hz)  # (window/2 + 1,)
    return _triangles(bins_hz, corners)
