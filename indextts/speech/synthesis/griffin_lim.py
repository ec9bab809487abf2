"""Sound from the built-in backend's codes: rough, but with nothing to download.

Axes: S samples, T codes, N = 2 T log-mel frames, M mel bands, K bins of a spectrum.

    codes (T,) -> log-mel frames of their centroids (N, M) -> power spectra that have these bands (K, N)
      -> phases by Griffin and Lim's iteration -> samples (S = 480 T) at 24 kHz

A spectrum from its bands is the nearest one without negative values, by multiplicative updates (Lee and Seung
2001, "Algorithms for Non-negative Matrix Factorization"). The phases come from going back and forth between
spectra and sound, keeping the magnitudes, with the momentum of Perraudin, Balazs and Sondergaard (2013, "A
fast Griffin-Lim algorithm").
"""

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from indextts.features.builtin import (
    SAMPLES_PER_FRAME,
    WINDOW,
    BuiltinBackend,
    mel_filters,
)

BAND_STEPS = 50
PHASE_STEPS = 60
MOMENTUM = 0.99
MAX_PEAK = 0.95


def speak(backend: BuiltinBackend, codes: Tensor, seed: int = 0) -> NDArray[np.float32]:
    """Return the sound of `codes` (T,) at 24 kHz, peaks at most MAX_PEAK: (480 T,)."""
    return sound_of_frames(backend.centroid_frames(codes), seed)


def sound_of_frames(frames: Tensor, seed: int = 0) -> NDArray[np.float32]:
    """Return sound whose `builtin.log_mel` is near `frames` (N, M): (240 N,).

    Args:
        seed: of the phases that the iteration starts from.
    """
    length = SAMPLES_PER_FRAME * len(frames)
    if length == 0:
        return np.zeros(0, np.float32)
    sound = _sound_of_spectrum(spectrum_of_bands(frames.exp().T).sqrt(), length, seed)
    peak = float(sound.abs().max())
    if peak > MAX_PEAK:
        sound = sound * (MAX_PEAK / peak)
    samples: NDArray[np.float32] = sound.numpy()
    return samples


def spectrum_of_bands(bands: Tensor) -> Tensor:
    """Return a power spectrum without negative values whose mel bands are near `bands` (M, N): (K, N)."""
    filters = torch.from_numpy(mel_filters())  # (M, K)
    target = filters.T @ bands  # (K, N)
    power = target.clone()
    for _ in range(BAND_STEPS):
        power = power * target / (filters.T @ (filters @ power)).clamp_min(1e-12)
    return power


def _sound_of_spectrum(magnitudes: Tensor, length: int, seed: int) -> Tensor:
    """Return `length` samples whose spectra have about these `magnitudes` (K, N)."""
    generator = torch.Generator().manual_seed(seed)
    phases = 2 * math.pi * torch.rand(magnitudes.shape, generator=generator)
    window = torch.hann_window(WINDOW)
    # torch centres frame n on sample 240 n; a frame of ours lies half a frame later, so what is iterated
    # begins there.
    late = SAMPLES_PER_FRAME // 2
    spectra = torch.polar(magnitudes, phases)
    previous = torch.zeros_like(spectra)
    for _ in range(PHASE_STEPS):
        sound = torch.istft(spectra, WINDOW, SAMPLES_PER_FRAME, window=window, length=length - late)
        rebuilt = torch.stft(
            sound, WINDOW, SAMPLES_PER_FRAME, window=window, return_complex=True, pad_mode="constant"
        )[:, : magnitudes.shape[1]]
        hastened = rebuilt + MOMENTUM * (rebuilt - previous)
        spectra = magnitudes * hastened / hastened.abs().clamp_min(1e-9)
        previous = rebuilt
    sound = torch.istft(spectra, WINDOW, SAMPLES_PER_FRAME, window=window, length=length - late)
    return torch.nn.functional.pad(sound, (late, 0))
