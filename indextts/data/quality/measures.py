"""Measures of a recording and of its text.

    level       RMS of the entire clip in dBFS; gated loudness in LUFS after ITU-R BS.1770
    silence     share without speech by Silero's detector, and its duration at the start and the end
    SNR         mean power of the frames with speech over that of the steady noise: music and single sounds do
                not count. The noise is the mean of the quietest frames, those up to 3 dB above the quietest
                3 %: closures of plosives suffice. Noise that varies is louder than these, so the median of
                the frames in the pauses replaces it, up to 6 dB more. Offsets do not count. Planted noise
                is read within 2 dB, babble from 20 dB on (docs/lab/verdicts.md)
    clipping    samples at or above 0.999 of full scale, in any channel, before resampling
    defects     offset, dropouts, clicks, flat tops, cut ends: see defects.py
    tones       music and hum in the pauses: see pauses.py
    bandwidth   the highest frequency with a mean power within 70 dB of the strongest: a former telephone
                recording of 8 kHz gives 3.9 kHz, whatever its sample rate is now

Axes: S samples, C channels, T frames, K frequencies.

Text is measured after normalisation, as the tokenizer sees it: numbers spelled out, punctuation in ASCII. The
speaking rate is in syllables: a fidel is a syllable, or the consonant at the end of one; letters of other
scripts are converted (`Language.letters_per_syllable`).
"""

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soxr
from numpy.typing import NDArray

from indextts.commands.normalizer_options import DEFAULT_OPTIONS, NormalizerOptions
from indextts.data.quality.copies import Fingerprint, fingerprint
from indextts.data.quality.defects import measure_defects, runs
from indextts.data.quality.pauses import are_near, tones_db
from indextts.features import vad
from indextts.features.audio import LOWEST_DB, loudness_lufs, read_channels, to_mono
from indextts.text.ethiopic import (
    ETHIOPIC_LETTERS,
    letters_of,
    merge_homophones,
    merge_labialised,
    tigrinya_share,
)
from indextts.text.languages import AMHARIC, find_language
from indextts.text.normalize import normalize

MEASURES_VERSION = 4  # raise it when the results of `measure_audio` change, to ignore stored measures
FULL_SCALE = 0.999
FRAME_S = 0.032
PAUSE_MARGIN_S = 0.04
MIN_PAUSE_FRAMES = 6
MAX_PAUSE_RATIO = 4.0  # of the noise in the pauses to that in the quietest frames
QUIETEST = 0.03  # of the frames; fewer would underestimate babble
QUIETEST_RANGE = 2.0  # times their power
SNR_RANGE_DB = (-20.0, 100.0)  # values outside are rounding errors
BANDWIDTH_RANGE_DB = 70.0
MIN_OWN_LETTERS = 0.5  # share of a text's letters: a Latin name does not make a text foreign

Measures = dict[str, float | None]  # None: undefined for this clip

_LATIN = re.compile("[A-Za-z\u00c0-\u024f]")
_DIGIT = re.compile("[\\d\u1369-\u137c]")  # the range is the Ethiopic numerals
_UNKNOWN_OF_AMHARIC = re.compile(  # without a rule, and not known to the published tokenizer from Amharic
    f"[^{ETHIOPIC_LETTERS}\u135d-\u135fA-Za-z\u00c0-\u024f\\d\u1369-\u137c\\s.,?!…'-]"
)


def measure_audio(path: Path) -> tuple[Measures, str, Fingerprint]:
    """Return the measures of a recording, the digest of its samples, and its fingerprint.

    The digest is that of the mono samples rounded to 16 bits, independent of the file's format.

    Raises:
        UserError: the recording is missing, not audio, empty or truncated, or has samples that are not
            finite.
    """
    channels, rate_hz = read_channels(path)
    mono = to_mono(channels, rate_hz)  # (S,)
    rounded = np.round(mono * 32767).astype("<i2")
    digest = hashlib.sha256(b"%d:" % rate_hz + rounded.tobytes()).hexdigest()
    mono -= mono.mean()  # an offset is inaudible
    duration_s = len(mono) / rate_hz
    rms_dbfs = _decibels(float(np.mean(np.square(mono, dtype=np.float64))))
    resampled: NDArray[np.float32] = soxr.resample(mono, rate_hz, vad.SAMPLE_RATE_HZ)
    speech = vad.find_speech(resampled)
    is_full: NDArray[np.bool_] = np.any(np.abs(channels) >= FULL_SCALE, axis=1)  # (S,)
    starts, ends = runs(is_full)
    power = _spectrum(mono, rate_hz)  # (T, K)
    snr_db = _snr_db(power, speech, rate_hz)
    measures: Measures = {
        "duration_s": duration_s,
        "rms_dbfs": rms_dbfs,
        "loudness_lufs": loudness_lufs(mono, rate_hz),
        "snr_db": snr_db,
        "silence_percent": 100 * max(0.0, 1 - sum(span.duration_s for span in speech) / duration_s),
        "edge_s": max(speech[0].start_s, duration_s - speech[-1].end_s) if speech else None,
        "clipped_percent": 100 * float(is_full.mean()),
        "clipped_run": float((ends - starts).max()) if len(starts) else 0.0,
        "bandwidth_hz": _bandwidth_hz(power, rate_hz),
        "tones_db": tones_db(resampled, speech),
        **measure_defects(channels, rate_hz, snr_db),
    }
    rounded_measures = {
        name: None if value is None else round(float(value), 4) for name, value in measures.items()
    }
    return rounded_measures, digest, fingerprint(resampled)


def _spectrum(mono: NDArray[np.float32], rate_hz: int) -> NDArray[np.float32]:
    """Return the power of each frequency in each frame, 0 for offsets: (T, K); frames overlap by half."""
    size = max(2, round(FRAME_S * rate_hz))
    padded = np.pad(mono, (0, max(0, size - len(mono))))
    frames = np.lib.stride_tricks.sliding_window_view(padded, size)[:: size // 2]  # (T, size)
    window = np.hanning(size).astype(np.float32)
    power: NDArray[np.float32] = np.square(np.abs(np.fft.rfft(frames * window, axis=1))).astype(np.float32)
    power[:, 0] = 0
    return power


def _snr_db(power: NDArray[np.float32], speech: list[vad.Span], rate_hz: int) -> float | None:
    """Return the signal-to-noise ratio; None without speech.

    Frames of digital silence are ignored: an editor inserted them, and they do not contain the noise.
    """
    size = max(2, round(FRAME_S * rate_hz))
    middles = (np.arange(len(power)) * (size // 2) + size / 2) / rate_hz  # (T,)
    is_speech = are_near(middles, speech)
    totals = power.sum(axis=1, dtype=np.float64)  # (T,)
    is_sound = totals > size**2 * 10 ** (LOWEST_DB / 10)
    if not (is_speech & is_sound).any():
        return None
    lowest = np.quantile(totals[is_sound], QUIETEST)
    noise = float(totals[is_sound & (totals <= QUIETEST_RANGE * lowest)].mean())
    quiet = totals[is_sound & ~are_near(middles, speech, PAUSE_MARGIN_S)]
    in_pauses = float(np.median(quiet)) if len(quiet) >= MIN_PAUSE_FRAMES else noise
    if in_pauses <= MAX_PAUSE_RATIO * noise:  # above it, the pauses contain speech or breath
        noise = in_pauses
    both = float(totals[is_speech & is_sound].mean())
    return float(np.clip(_decibels(both - noise) - _decibels(noise), *SNR_RANGE_DB))


def _bandwidth_hz(power: NDArray[np.float32], rate_hz: int) -> float | None:
    mean = power.mean(axis=0, dtype=np.float64)  # (K,)
    if not mean.any():
        return None
    strong = np.flatnonzero(mean > mean.max() * 10 ** (-BANDWIDTH_RANGE_DB / 10))
    return float(strong[-1]) * rate_hz / (2 * (len(mean) - 1))


def _decibels(power: float) -> float:
    return max(10 * float(np.log10(max(power, 1e-30))), LOWEST_DB)


@dataclass(frozen=True)
class TextMeasures:
    """Counts of one text."""

    num_syllables: float  # letters in the script of the language, as syllables
    is_mostly_own: bool  # at least half of its letters, and at least one, are in the script of the language
    script_percent: float  # their share of its letters; 0 without letters
    num_tigrinya: int  # letters that are frequent in Tigrinya and rare in Amharic; 0 in other languages
    tigrinya_percent: float
    num_latin: int  # left by the normaliser and of another script, as the next two
    num_digits: int
    num_other: int
    key: str  # its letters with homophones merged; equal for texts that sound the same


def measure_text(text: str, options: NormalizerOptions = DEFAULT_OPTIONS) -> TextMeasures:
    """Return the measures of a text of a manifest, normalised with `options`."""
    spoken = normalize(text, options)
    language = find_language(options.language)
    is_amharic = language.code == AMHARIC
    num_own, num_letters = language.count_letters(spoken)
    share = num_own / num_letters if num_letters else 0.0
    tigrinya = tigrinya_share(spoken) if is_amharic else 0.0
    num_latin = 0 if "Latn" in language.scripts else len(_LATIN.findall(spoken))
    return TextMeasures(
        num_syllables=num_own / language.letters_per_syllable,
        is_mostly_own=share >= MIN_OWN_LETTERS,
        script_percent=100 * share,
        num_tigrinya=round(tigrinya * num_own),
        tigrinya_percent=100 * tigrinya,
        num_latin=num_latin,
        num_digits=len(_DIGIT.findall(spoken)),
        num_other=(
            len(_UNKNOWN_OF_AMHARIC.findall(spoken)) if is_amharic else num_letters - num_own - num_latin
        ),
        key=letters_of(merge_labialised(merge_homophones(spoken, "strict"))),
    )
