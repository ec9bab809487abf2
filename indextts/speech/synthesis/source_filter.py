"""Speech from the parameters of its frames: a source of harmonics and noise through a filter.

Axes: N frames of 10 ms, S = 240 N samples, K bins of a spectrum, E bands of the envelope, A bands of the
noise.

    pitch (N,) -> all harmonics with equal amplitude (S,) ---- shaped ---+
                                                                         +-> overlap-add (S,)
    white noise (S,) ----------------------------------------- shaped ---+

The parameters are those of WORLD (Morise, Yokomori and Ozawa 2016, "WORLD: a vocoder-based high-quality
speech synthesis system for real-time applications"): the spectral envelope as power, here in mel bands, the
share of noise in the amplitude in decibels at 3, 6 and 9 kHz, and the pitch. The filter has minimum phase,
which is computed from the cepstrum of the envelope.
"""

import math
from functools import cache

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from indextts.features.backend import SAMPLE_RATE_HZ
from indextts.features.builtin import SAMPLES_PER_FRAME, SpeechParameters
from indextts.features.builtin_networks import ENVELOPE_BANDS
from indextts.features.log_mel import mel_of

FFT_SIZE = 1024
NUM_BINS = FFT_SIZE // 2 + 1
NOISE_HZ = (0, 3000, 6000, 9000, 12_000)  # without noise at the first, nothing but noise at the last
LEAST_NOISE_DB = -60.0
PITCH_HZ = (50, 600)
MIN_POWER = 1e-14
MAX_PEAK = 0.95


def render(spoken: SpeechParameters, seed: int = 0, first_frame: int = 0) -> NDArray[np.float32]:
    """Return audio at 24 kHz, with peaks of at most MAX_PEAK: (240 N,).

    Args:
        seed: of the noise.
        first_frame: number of frames before them; a part has the noise of the complete speech.
    """
    num_frames = len(spoken.envelope)
    if num_frames == 0:
        return np.zeros(0, np.float32)
    power = (spoken.envelope @ _bins_of_bands()).exp()  # (N, K)
    noise = _noise_amplitudes(spoken)
    pitch = spoken.log_pitch.exp().clamp(*PITCH_HZ)
    is_voiced = spoken.is_voiced.repeat_interleave(SAMPLES_PER_FRAME)
    generator = torch.Generator().manual_seed(seed)
    # frame by frame, so that longer speech begins with the noise of shorter speech
    white = torch.randn(first_frame + num_frames, SAMPLES_PER_FRAME, generator=generator)[first_frame:]
    spectra = _spectra(harmonics(pitch, is_voiced)) * (power * (1 - noise.square())).sqrt()
    spectra = spectra + _spectra(white.flatten()) * (power.sqrt() * noise)
    frames = torch.fft.irfft(spectra * _minimum_phase(power), FFT_SIZE)  # (N, FFT_SIZE)
    length = (num_frames - 1) * SAMPLES_PER_FRAME + FFT_SIZE
    added = F.fold(frames.T[None], (1, length), (1, FFT_SIZE), stride=(1, SAMPLES_PER_FRAME))[0, 0, 0]
    audio = added[SAMPLES_PER_FRAME // 2 :][: num_frames * SAMPLES_PER_FRAME]
    peak = float(audio.abs().max())
    if peak > MAX_PEAK:
        audio = audio * (MAX_PEAK / peak)
    samples: NDArray[np.float32] = audio.numpy()
    return samples


def harmonics(pitch: Tensor, is_voiced: Tensor) -> Tensor:
    """Return the harmonics of the pitch (N,) in Hz below 12 kHz, with the power of white noise: (S,).

    Args:
        is_voiced: (S,); the others are silent. The phase begins anew after silence, so that a part of the
            speech has the sound of the whole.
    """
    hertz = F.interpolate(pitch[None, None], scale_factor=SAMPLES_PER_FRAME, mode="linear")[0, 0]
    total = (hertz.double() / SAMPLE_RATE_HZ * is_voiced).cumsum(0)
    turns = (total - torch.where(is_voiced, 0, total).cummax(0).values).remainder(1).float()
    # The sum of 2 cos(k x), k = 1 ... n, is sin((2 n + 1) x / 2) / sin(x / 2) - 1.
    half, count = math.pi * turns, (SAMPLE_RATE_HZ / 2 / hertz - 1e-3).floor()
    below = half.sin()
    is_pulse = below.abs() < 1e-4
    ratio = ((2 * count + 1) * half).sin() / torch.where(is_pulse, 1.0, below)
    pulses: Tensor = torch.where(is_pulse, 2 * count + 1, ratio) - 1
    sound: Tensor = torch.where(is_voiced, pulses * (hertz / SAMPLE_RATE_HZ).sqrt(), 0.0)
    return sound


def _spectra(samples: Tensor) -> Tensor:
    """Return the spectra of windows of two frames: (N, K)."""
    padded = F.pad(samples, (SAMPLES_PER_FRAME // 2, SAMPLES_PER_FRAME + SAMPLES_PER_FRAME // 2))
    windows = padded.unfold(0, 2 * SAMPLES_PER_FRAME, SAMPLES_PER_FRAME)[: len(samples) // SAMPLES_PER_FRAME]
    spectra: Tensor = torch.fft.rfft(windows * torch.hann_window(2 * SAMPLES_PER_FRAME), FFT_SIZE)
    return spectra


def _noise_amplitudes(spoken: SpeechParameters) -> Tensor:
    """Return the share of noise in the amplitude, 0 to 1: (N, K)."""
    decibels = F.pad(F.pad(spoken.noise_db, (1, 0), value=LEAST_NOISE_DB), (0, 1)).clamp(LEAST_NOISE_DB, 0)
    found = 10 ** (decibels @ _bins_of_noise() / 20)
    return torch.where(spoken.is_voiced[:, None], found, 1.0)


def _minimum_phase(power: Tensor) -> Tensor:
    """Return the phase factors of minimum-phase filters with these power spectra: (N, K)."""
    cepstrum = torch.fft.irfft(0.5 * power.clamp_min(MIN_POWER).log(), FFT_SIZE)
    fold = torch.zeros(FFT_SIZE)
    fold[0] = fold[FFT_SIZE // 2] = 1
    fold[1 : FFT_SIZE // 2] = 2
    phase = torch.fft.rfft(cepstrum * fold).imag
    return torch.polar(torch.ones_like(phase), phase)


@cache
def _bins_of_bands() -> Tensor:
    """Return the weights that interpolate bins between the centres of the mel bands: (E, K)."""
    edges = np.linspace(0, mel_of(np.array(SAMPLE_RATE_HZ / 2)), ENVELOPE_BANDS + 2)
    return _interpolation(mel_of(_bins_hz()), edges[1:-1])


@cache
def _bins_of_noise() -> Tensor:
    """Return likewise the weights of the noise bands: (A + 2, K)."""
    return _interpolation(_bins_hz(), np.array(NOISE_HZ, np.float64))


def _bins_hz() -> NDArray[np.float64]:
    return np.linspace(0, SAMPLE_RATE_HZ / 2, NUM_BINS)


def _interpolation(at: NDArray[np.float64], points: NDArray[np.float64]) -> Tensor:
    rows = [np.interp(at, points, row) for row in np.eye(len(points))]
    return torch.from_numpy(np.stack(rows).astype(np.float32))
