"""Tones in the pauses of a recording: music, a song or mains hum under the speech.

Speech hides quiet music, its pauses do not. A pause counts from 60 ms after the speech to 60 ms before it, so
that no voice is in it. A tone is a narrow peak of a spectrum; breath, steps and other noise have none.

    tones_db    power of the peaks of a spectrum of the pauses, relative to the mean power of the spectra of
                the speech; the first quartile, since music sounds in almost all spectra and the end of a word
                that passes for a pause does not; None for a recording with less than 0.4 s of pauses

Music 20 dB below synthetic speech has -36 to -19 dB, 10 dB below and louder -28 to -11 dB. Of 417 clean clips
with pauses, 416 have less than -50 dB. In a room with a long echo, vowels still sound in short pauses:
verdicts.py compares a clip with the others of its speaker.

Axes: S samples, T spectra, K frequencies.
"""

from collections.abc import Sequence

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from indextts.features import vad

WINDOW, HOP = 1024, 256  # samples: 64 and 16 ms
LOWEST, HIGHEST = 6, 256  # frequencies: 94 Hz to 4 kHz
MARGIN_S = 0.06
MIN_SPECTRA = 24  # 0.4 s; in fewer, the end of a vowel passes for a tone
QUANTILE = 0.25
MAX_SPECTRA = 200  # of long pauses: more would not change the quartile
NEIGHBOURS = 15  # frequencies on each side
PEAK_RATIO = 10.0  # over the median of the neighbours
LOWEST_DB = -90.0


def tones_db(samples: NDArray[np.float32], speech: Sequence[vad.Span]) -> float | None:
    """Return the level of tones in the pauses of samples (S,) at vad.SAMPLE_RATE_HZ; None without any."""
    padded = np.pad(samples, (0, max(0, WINDOW - len(samples))))
    frames = sliding_window_view(padded, WINDOW)[::HOP]  # (T, WINDOW)
    middles = (np.arange(len(frames)) * HOP + WINDOW / 2) / vad.SAMPLE_RATE_HZ  # (T,)
    is_speech = are_near(middles, speech)
    pauses = np.flatnonzero(~are_near(middles, speech, MARGIN_S))
    if not is_speech.any() or len(pauses) < MIN_SPECTRA:
        return None
    pauses = pauses[np.linspace(0, len(pauses) - 1, min(len(pauses), MAX_SPECTRA)).round().astype(int)]
    voice = float(_power(frames[is_speech]).sum(axis=1, dtype=np.float64).mean())
    power = _power(frames[pauses])  # (T, K)
    around = sliding_window_view(
        np.pad(power, ((0, 0), (NEIGHBOURS, NEIGHBOURS)), "edge"), 2 * NEIGHBOURS + 1, 1
    )
    peaks = np.where(power > PEAK_RATIO * np.median(around, axis=-1), power, 0).sum(axis=1, dtype=np.float64)
    level = float(np.quantile(peaks, QUANTILE)) / max(voice, 1e-30)
    return max(LOWEST_DB, 10 * float(np.log10(max(level, 1e-30))))


def are_near(
    times: NDArray[np.float64], speech: Sequence[vad.Span], margin_s: float = 0.0
) -> NDArray[np.bool_]:
    """Return for each time whether it is in the speech, or less than the margin before or after it."""
    found = np.zeros(len(times), bool)
    for span in speech:
        found |= (times > span.start_s - margin_s) & (times < span.end_s + margin_s)
    return found


def _power(frames: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the power of each frequency from LOWEST to HIGHEST: (T, K)."""
    spectra = np.fft.rfft(frames * np.hanning(WINDOW).astype(np.float32), axis=1)[:, LOWEST:HIGHEST]
    power: NDArray[np.float32] = np.square(np.abs(spectra)).astype(np.float32)
    return power
