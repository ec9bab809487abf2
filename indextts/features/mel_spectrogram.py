"""Inputs of the acoustic model: mel spectrogram, Kaldi log-mel frames, and the resampler between them.

Axes: B rows, S samples, T mel frames, N log-mel frames, M mel bands.

    samples at 22,050 Hz (B, S)                     -> reference mel (B, 80, T = S // 256)
      -> samples at 16,000 Hz (B, ceil(320 S / 441)) -> Kaldi frames (N = 1 + (S' - 400) // 160, 80)

This module reproduces torchaudio, because the published weights depend on its details: the resampler equals
torchaudio's, and the frames equal those of `kaldi.fbank` for samples in [-1, 1], so that quiet passages reach
the floor. The maintained `kaldi-native-fbank` differs from it by up to 4e-4, which changes the style vectors.
"""

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from indextts.features.log_mel import corners_hz, slaney_filters

SAMPLE_RATE_HZ = 22_050  # of the reference mel and of the generated audio
NUM_MELS = 80
MEL_WINDOW, MEL_HOP = 1024, 256
MIN_MAGNITUDE = 1e-5

KALDI_RATE_HZ = 16_000
KALDI_WINDOW, KALDI_HOP, KALDI_FFT = 400, 160, 512
KALDI_LOWEST_HZ = 20.0
PREEMPHASIS = 0.97
POVEY_POWER = 0.85
MIN_ENERGY = 1.1920928955078125e-07

SINC_ZEROS = 6  # zero crossings on each side of the resampling kernel
ROLLOFF = 0.99


def reference_mel(samples: Tensor) -> Tensor:
    """Return the natural logarithm of the mel magnitudes: (B, NUM_MELS, S // MEL_HOP).

    Args:
        samples: (B, S), at SAMPLE_RATE_HZ in [-1, 1], S more than (MEL_WINDOW - MEL_HOP) / 2.
    """
    basis = mel_basis().to(samples.device)
    return (basis @ magnitudes(samples)).clamp_min(MIN_MAGNITUDE).log()


def magnitudes(samples: Tensor) -> Tensor:
    """Return the magnitude spectra of `samples` (B, S): (B, MEL_WINDOW/2 + 1, T)."""
    beyond = (MEL_WINDOW - MEL_HOP) // 2
    padded = F.pad(samples[:, None], (beyond, beyond), mode="reflect")[:, 0]
    window = torch.hann_window(MEL_WINDOW, device=samples.device)
    spectrum = torch.stft(
        padded, MEL_WINDOW, MEL_HOP, window=window, center=False, return_complex=True
    )  # (B, bins, T)
    return (spectrum.real.square() + spectrum.imag.square() + 1e-9).sqrt()


def mel_basis() -> Tensor:
    """Return filters on Slaney's scale, each of area 1 over Hz: (NUM_MELS, MEL_WINDOW/2 + 1)."""
    corners = corners_hz(SAMPLE_RATE_HZ, NUM_MELS)
    areas = (corners[2:] - corners[:-2]) / 2  # (NUM_MELS,)
    filters = slaney_filters(SAMPLE_RATE_HZ, MEL_WINDOW, NUM_MELS) / areas[:, None]
    return torch.from_numpy(filters.astype(np.float32))


def kaldi_frames(samples: Tensor) -> Tensor:
    """Return log-mel frames (N, NUM_MELS) of `samples` (S,) at KALDI_RATE_HZ, S at least KALDI_WINDOW."""
    frames = samples.unfold(0, KALDI_WINDOW, KALDI_HOP)  # (N, KALDI_WINDOW)
    frames = frames - frames.mean(dim=1, keepdim=True)
    before = F.pad(frames[:, None], (1, 0), mode="replicate")[:, 0, :-1]
    frames = (frames - PREEMPHASIS * before) * povey_window().to(samples.device)
    power = torch.fft.rfft(frames, KALDI_FFT).abs().square()  # (N, KALDI_FFT/2 + 1)
    energies: Tensor = power[:, :-1] @ kaldi_banks().to(samples.device).T  # (N, NUM_MELS)
    return energies.clamp_min(MIN_ENERGY).log()


def povey_window() -> Tensor:
    """Return Povey's window, a symmetric Hann window to the power of 0.85: (KALDI_WINDOW,)."""
    return torch.hann_window(KALDI_WINDOW, periodic=False).pow(POVEY_POWER)


def kaldi_banks() -> Tensor:
    """Return filters that are triangular in mel, on all bins but the last: (NUM_MELS, KALDI_FFT/2)."""
    lowest, highest = (1127 * math.log1p(hz / 700) for hz in (KALDI_LOWEST_HZ, KALDI_RATE_HZ / 2))
    step = (highest - lowest) / (NUM_MELS + 1)
    bins_hz = torch.arange(KALDI_FFT // 2, dtype=torch.float32) * (KALDI_RATE_HZ / KALDI_FFT)
    mels = 1127 * (1 + bins_hz / 700).log()  # (KALDI_FFT/2,)
    # Corners in float32, as in Kaldi: float64 corners would change narrow bands by 1.6e-4.
    corners = lowest + torch.arange(NUM_MELS + 2, dtype=torch.float32)[:, None] * step
    left, peak, right = corners[:-2], corners[1:-1], corners[2:]  # (NUM_MELS, 1) each
    rising, falling = (mels - left) / (peak - left), (right - mels) / (right - peak)
    return torch.minimum(rising, falling).clamp_min(0)


def resample(samples: Tensor, from_hz: int, to_hz: int) -> Tensor:
    """`samples` (B, S) at another rate: (B, ceil(S to / from))."""
    divisor = math.gcd(from_hz, to_hz)
    old, new = from_hz // divisor, to_hz // divisor
    kernel = resampling_kernel(old, new).to(samples.device)  # (new, 1, taps)
    width = (kernel.shape[2] - old) // 2
    padded = F.pad(samples[:, None], (width, width + old))
    phases = F.conv1d(padded, kernel, stride=old)  # (B, new, S // old + 1)
    length = math.ceil(new * samples.shape[1] / old)
    return phases.transpose(1, 2).flatten(1)[:, :length]


def resampling_kernel(old: int, new: int) -> Tensor:
    """A sinc under a squared cosine, for each of `new` phases: (new, 1, taps); no common factor."""
    base = ROLLOFF * min(old, new)
    width = math.ceil(SINC_ZEROS * old / base)
    taps = torch.arange(-width, width + old, dtype=torch.float64) / old
    phases = torch.arange(new, dtype=torch.float64)[:, None] / new
    u = ((taps - phases) * base).clamp(-SINC_ZEROS, SINC_ZEROS)  # (new, taps)
    window = (math.pi * u / (2 * SINC_ZEROS)).cos().square()
    return (base / old * window * torch.sinc(u)).float()[:, None]
