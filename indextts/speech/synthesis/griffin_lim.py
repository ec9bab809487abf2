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
    # frame by frame, so that longer speech begins with the phases of shorter speech
    parts = torch.rand(first_frame + num_frames, num_bins, 2, generator=generator)[first_frame:] - 0.5
    spectra = torch.view_as_complex(parts)  # (N, K); sums and squares of complex numbers are slower
    magnitudes = magnitudes.T.contiguous()  # (N, K)
    window = torch.hann_window(WINDOW)
    # an audio sample is WINDOW / 2 after the first sample of the first frame, less half a frame, because the
    # frames here lie half a frame later than the samples on which their windows are centred
    half_frame = SAMPLES_PER_FRAME // 2
    first, last = WINDOW // 2, WINDOW // 2 + length - half_frame
    envelope = _overlap_add(window.expand(num_frames, -1), window)
    weights = torch.zeros_like(envelope)
    weights[first:last] = 1 / envelope[first:last]
    scale = torch.zeros_like(spectra)
    _scale_to(spectra, magnitudes, scale)
    previous = torch.zeros_like(parts)
    for step in range(PHASE_STEPS):
        audio = _overlap_add(torch.fft.irfft(spectra, WINDOW), window).mul_(weights)
        rebuilt = torch.view_as_real(torch.fft.rfft(audio.unfold(0, WINDOW, SAMPLES_PER_FRAME) * window))
        torch.lerp(previous, rebuilt, 1 + _momentum(step), out=parts)
        _scale_to(spectra, magnitudes, scale)
        previous = rebuilt
    audio = _overlap_add(torch.fft.irfft(spectra, WINDOW), window).mul_(weights)
    return torch.nn.functional.pad(audio[first:last], (half_frame, 0))


def _scale_to(spectra: Tensor, magnitudes: Tensor, scale: Tensor) -> None:
    """Give complex `spectra` these magnitudes; `scale` is a complex buffer with imaginary parts of 0."""
    real, imaginary = spectra.real, spectra.imag
    inverse = torch.addcmul(real * real, imaginary, imaginary).clamp_min_(1e-18).rsqrt_()
    torch.mul(inverse, magnitudes, out=scale.real)
    spectra.mul_(scale)  # by real numbers, it would copy them to complex ones first


def _momentum(step: int) -> float:
    return FIRST_MOMENTUM + (LAST_MOMENTUM - FIRST_MOMENTUM) * min(1, (step + 1) / MOMENTUM_STEPS)


def _overlap_add(frames: Tensor, window: Tensor) -> Tensor:
    """Return the sum of windowed frames (N, WINDOW), each SAMPLES_PER_FRAME after the one before: (S,)."""
    num_frames, hop = len(frames), SAMPLES_PER_FRAME
    starts = range(0, WINDOW, hop)
    total = frames.new_zeros(num_frames + len(starts) - 1, hop)
    for number, start in enumerate(starts):
        piece = slice(start, min(start + hop, WINDOW))
        part = total[number : number + num_frames, : piece.stop - start]
        part.addcmul_(frames[:, piece], window[piece])
    return total.flatten()[: (num_frames - 1) * hop + WINDOW]
