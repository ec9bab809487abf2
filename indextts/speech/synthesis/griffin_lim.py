"""Low-quality audio from the codes of the built-in backend, without downloads.

Axes: S samples, T codes, N = 2 T log-mel frames, M mel bands, K bins of a spectrum.

    codes (T,) -> log-mel frames of their centroids (N, M) -> power spectra with these bands (K, N)
      -> phases by the Griffin-Lim algorithm -> samples (S = 480 T) at 24 kHz

The mel inversion is a non-negative least-squares fit by multiplicative updates (Lee and Seung 2001,
"Algorithms for Non-negative Matrix Factorization"). The phase reconstruction alternates between spectra and
samples with fixed magnitudes and the momentum of Perraudin, Balazs and Sondergaard (2013, "A fast Griffin-Lim
algorithm"). A momentum above 1 first and below 1 later reaches in 54 steps the spectral convergence of 60
steps at 0.99.
"""

from functools import partial

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

BAND_STEPS = 32
PHASE_STEPS = 54
FIRST_MOMENTUM, LAST_MOMENTUM, MOMENTUM_STEPS = 1.15, 0.9, 35  # falls in so many steps
MAX_PEAK = 0.95


def render_codes(
    backend: BuiltinBackend, codes: Tensor, seed: int = 0, first_code: int = 0
) -> NDArray[np.float32]:
    """Return audio for `codes` (T,) at 24 kHz, with peaks of at most MAX_PEAK: (480 T,).

    Args:
        first_code: number of codes before them in the speech that they are part of.
    """
    frames = backend.centroid_frames(codes)
    return frames_to_audio(frames, seed, first_frame=first_code * len(frames) // max(1, len(codes)))


def frames_to_audio(frames: Tensor, seed: int = 0, first_frame: int = 0) -> NDArray[np.float32]:
    """Return audio whose `builtin.log_mel` is near `frames` (N, M): (240 N,).

    Args:
        seed: of the initial phases.
        first_frame: number of frames before them; a part has the initial phases of the complete speech.
    """
    length = SAMPLES_PER_FRAME * len(frames)
    if length == 0:
        return np.zeros(0, np.float32)
    audio = _reconstruct_audio(invert_mel(frames.exp().T).sqrt(), length, seed, first_frame)
    peak = float(audio.abs().max())
    if peak > MAX_PEAK:
        audio = audio * (MAX_PEAK / peak)
    samples: NDArray[np.float32] = audio.numpy()
    return samples


def invert_mel(bands: Tensor) -> Tensor:
    """Return a non-negative power spectrum whose mel bands are near `bands` (M, N): (K, N)."""
    filters = torch.from_numpy(mel_filters())  # (M, K)
    target = filters.T @ bands  # (K, N)
    forward, back = filters.to_sparse(), filters.T.to_sparse()  # a bin belongs to two bands at most
    power = target.clone()
    for _ in range(BAND_STEPS):
        power = power * target / torch.sparse.mm(back, torch.sparse.mm(forward, power)).clamp_min(1e-12)
    return power


def _reconstruct_audio(magnitudes: Tensor, length: int, seed: int, first_frame: int) -> Tensor:
    """Return `length` samples whose spectra have approximately these `magnitudes` (K, N)."""
    generator = torch.Generator().manual_seed(seed)
    num_bins, num_frames = magnitudes.shape
    magnitudes = magnitudes.T.contiguous().T  # in memory frame by frame, as the spectra of torch.stft
    # frame by frame, so that longer speech begins with the phases of shorter speech
    parts = torch.rand(first_frame + num_frames, num_bins, 2, generator=generator)[first_frame:] - 0.5
    phases = torch.view_as_complex(parts).T  # (K, N), of any magnitude
    # the first half frame stays silent, because the frames here lie half a frame later than the samples on
    # which their windows are centred
    half_frame = SAMPLES_PER_FRAME // 2
    window = torch.hann_window(WINDOW)
    to_audio = partial(
        torch.istft, n_fft=WINDOW, hop_length=SAMPLES_PER_FRAME, window=window, length=length - half_frame
    )
    previous = torch.zeros_like(phases)
    for step in range(PHASE_STEPS):
        rebuilt = torch.stft(
            to_audio(magnitudes * phases.sgn()),
            WINDOW,
            SAMPLES_PER_FRAME,
            window=window,
            pad_mode="constant",
            return_complex=True,
        )
        phases = torch.lerp(previous, rebuilt, 1 + _momentum(step))
        previous = rebuilt
    return torch.nn.functional.pad(to_audio(magnitudes * phases.sgn()), (half_frame, 0))


def _momentum(step: int) -> float:
    return FIRST_MOMENTUM + (LAST_MOMENTUM - FIRST_MOMENTUM) * min(1, (step + 1) / MOMENTUM_STEPS)
