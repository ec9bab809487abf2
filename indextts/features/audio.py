"""Read and check audio files, and the length limits of reference recordings.

This module does not import torch, so programs that only inspect files start quickly.

Axes: S samples, C channels, T frames, K frequencies.

A problem with a recording has a message for people and a stable code for programs:

    missing        the file does not exist           truncated   the file ends before its header says
    unreadable     the file is not audio             not_finite  some samples are NaN or infinite
    empty          the file has no samples           too_short   too few codes for the model
    too_long       more codes than the model accepts
    reader_died    the process that read the file died twice
    out_of_memory  the recording does not fit in memory, even alone
    changed        the file changed while it was encoded
"""

import io
import math
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import numpy as np
import soundfile
import soxr
from numpy.typing import NDArray

from indextts.errors import UserError

ReasonCode = Literal[
    "missing",
    "unreadable",
    "empty",
    "truncated",
    "not_finite",
    "too_short",
    "too_long",
    "reader_died",
    "out_of_memory",
    "changed",
]

MAX_MISSING_S = 0.05  # tolerated at the end: lossy encoders round, a truncated file lacks more
MAX_CHANNELS = 32
PLACEHOLDER_BYTES = 0x7FFF0000  # programs that write to a pipe put 2 or 4 GB into the header
MAX_OGG_PAGE_BYTES = 65_307

# Limits of a recording that a voice is taken from.
MIN_REFERENCE_S = 1.0
SHORT_REFERENCE_S = 3.0
MAX_REFERENCE_S = 15  # the published model uses no more
MAX_RECORDING_S = 600.0

LOWEST_DB = -120.0  # the loudness of digital silence, instead of minus infinity
BLOCK_S = 0.4  # of the loudness

MAX_OFFSET = 0.005  # of the mean of a recording; a larger one is a fault of the device, and is removed

# Of channels. In 10,000 pairs of clips, the coherence of frames was at most 0.45. One voice with a
# delay of 10 ms, an echo of 0.2 s or noise at 5 dB has 0.57 and more, and its levels correlate by 0.77.
FRAME_S = 0.05
MIN_COHERENCE, SURE_COHERENCE, MIN_LEVELS, MIN_CORRELATION = 0.5, 0.9, 0.6, 0.5
DEAD_POWER = 0.01  # of the loudest channel
SILENT_POWER = 1e-6

NOT_FINITE = "some samples are NaN or infinite; replace the file"

# libsndfile logs this for a chunk of samples that is shorter than its header says.
SHORT_CHUNK = re.compile(r"(?:data|SSND|riff|Data Size)\s*:\s*(\d+)\s*\(should be (\d+)\)")


class RecordingError(UserError):
    """A recording that cannot be used.

    Args:
        path: the recording; the message begins with it.
    """

    def __init__(self, path: Path, code: ReasonCode, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.code: ReasonCode = code
        self.reason = reason

    def __reduce__(self) -> tuple[type[Self], tuple[Path, ReasonCode, str]]:
        return type(self), (self.path, self.code, self.reason)


def load_audio(path: Path, sample_rate_hz: int, max_duration_s: float = math.inf) -> NDArray[np.float32]:
    """Return a recording as mono samples in [-1, 1] at `sample_rate_hz`: (S,).

    Channels become one as in `to_mono`. A file whose header gives more than `max_duration_s` is not decoded.

    Raises:
        RecordingError: the file is missing, not audio, truncated, too long or empty, or has samples that are
            not finite.
    """
    channels, file_rate_hz = read_channels(path, max_duration_s)
    samples: NDArray[np.float32] = soxr.resample(
        to_mono(channels, file_rate_hz), file_rate_hz, sample_rate_hz
    )
    return samples


def to_mono(channels: NDArray[np.float32], rate_hz: int) -> NDArray[np.float32]:
    """Return the samples (S, C) of a whole recording as mono, without an offset: (S,)."""
    weights = None
    if channels.shape[1] > 1:
        blocks = (channels[start : start + 10 * rate_hz] for start in range(0, len(channels), 10 * rate_hz))
        weights = mixing_weights(blocks, rate_hz)
    if weights is None:
        weights = np.full(channels.shape[1], 1 / channels.shape[1])
    mono: NDArray[np.float32] = channels @ weights.astype(np.float32)
    offset = mono.mean(dtype=np.float64)
    return mono - np.float32(offset) if abs(offset) > MAX_OFFSET else mono


def mixing_weights(blocks: Iterable[NDArray[np.float32]], rate_hz: int) -> NDArray[np.float64] | None:
    """Return the weight of each channel in the mono sound: (C,); None if they have different sounds.

    Channels much quieter than the loudest are dead and get 0. The others have its sound if they are coherent
    and loud at the same times. They are added, or subtracted if their polarity is opposite; one with another
    delay, as of a second microphone, gets 0, because the sum would be an echo.

    Args:
        blocks: of the whole recording, each (S, C).
    """
    cross: Any = 0  # (K, C, C)
    levels = []
    size = max(4, round(FRAME_S * rate_hz))
    window = np.hanning(size)[:, None]
    for block in blocks:
        padded = np.pad(block, ((0, -len(block) % size), (0, 0)), mode="edge")
        spectra = np.fft.rfft(padded.reshape(-1, size, block.shape[1]) * window, axis=1)  # (T, K, C)
        spectra = spectra[:, 2:].transpose(1, 2, 0)  # without the offset: (K, C, T)
        cross = cross + spectra @ spectra.conj().swapaxes(1, 2)
        levels.append(np.linalg.norm(spectra, axis=0).T)  # (T, C)
    total = cross.sum(axis=0).real  # (C, C)
    power = total.diagonal()
    loudest = int(power.argmax())
    if not SILENT_POWER <= power[loudest] < np.inf:  # NaN too, if a sample is none
        return np.full(len(power), 1 / len(power))
    scale = np.sqrt(power[loudest] * power)  # (C,)
    level = np.concatenate(levels)  # (T, C)
    level -= level.mean(axis=0)
    spread = np.linalg.norm(level, axis=0)  # (C,)
    weights: NDArray[np.float64] = np.zeros(len(power))
    for channel in np.flatnonzero(power > DEAD_POWER * power[loudest]):
        correlation = total[loudest, channel] / scale[channel]
        coherence = np.abs(cross[:, loudest, channel]).sum() / scale[channel]
        common = level[:, loudest] @ level[:, channel]
        is_like = coherence > SURE_COHERENCE or common > MIN_LEVELS * spread[loudest] * spread[channel]
        if coherence < MIN_COHERENCE or not is_like:
            return None
        if abs(correlation) >= MIN_CORRELATION:
            weights[channel] = np.sign(correlation)
    weights *= np.sign(weights[np.flatnonzero(weights)[0]]) / np.abs(weights).sum()
    return weights


def read_channels(path: Path, max_duration_s: float = math.inf) -> tuple[NDArray[np.float32], int]:
    """Return the samples of a file in [-1, 1], (S, C), and their sample rate in Hz.

    Raises:
        RecordingError: as `load_audio`.
    """
    with _open(path) as file:
        duration_s = file.frames / file.samplerate
        if duration_s > max_duration_s:
            reason = f"lasts {duration_s:.1f} s, the model accepts {max_duration_s:.1f} s; cut the recording"
            raise RecordingError(path, "too_long", reason)
        # In one call: libsndfile decodes MP3 to different samples when it reads in parts.
        channels = file.read(file.frames, dtype="float32", always_2d=True)  # (S, C)
        file_rate_hz = file.samplerate
    if len(channels) < (duration_s - MAX_MISSING_S) * file_rate_hz or len(channels) == 0:
        found_s = len(channels) / file_rate_hz
        raise RecordingError(path, "truncated", too_short(found_s, duration_s))
    if not np.isfinite(channels).all():
        raise RecordingError(path, "not_finite", NOT_FINITE)
    return channels, file_rate_hz


def unprepared(samples: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the samples unchanged: the `prepare` of a backend that needs no preparation."""
    return samples


class Header(NamedTuple):
    """Facts of a file as libsndfile reads them: duration, format ("WAV") and its log."""

    duration_s: float
    format: str
    log: str
    num_read: int  # position in the file after its last sample, in bytes


def audio_duration_s(path: Path) -> float:
    """Return the duration in the file's header, as `read_header`."""
    return read_header(path).duration_s


def read_header(path: Path) -> Header:
    """Return a file's header, after reading the last sample to detect truncation.

    Raises:
        RecordingError: the file is missing, not audio, empty or truncated.
    """
    with _open(path) as file:
        duration_s = file.frames / file.samplerate
        file.seek(file.frames - 1)
        if len(file.read(1)) != 1:
            reason = f"is truncated, its header says {duration_s:.3f} s; replace the file"
            raise RecordingError(path, "truncated", reason)
        num_read = os.lseek(file.name, 0, os.SEEK_CUR)
        return Header(duration_s, file.format, file.extra_info, num_read)


@contextmanager
def _open(path: Path) -> Iterator[soundfile.SoundFile]:
    """Open a recording that has samples and, judging by its headers, is not truncated."""
    _require_file(path)
    try:
        # By its descriptor, which tells how far libsndfile reads.
        with path.open("rb") as opened, soundfile.SoundFile(opened.fileno(), closefd=False) as file:
            if reason := _truncated(file):
                raise RecordingError(path, "truncated", reason)
            if file.format == "OGG" and _ends_inside_a_page(path):
                reason = f"is truncated after {file.frames / file.samplerate:.3f} s; replace the file"
                raise RecordingError(path, "truncated", reason)
            if file.frames < 1:
                raise RecordingError(path, "empty", "the recording has no samples; replace the file")
            if file.frames >= 2**62:
                raise RecordingError(
                    path, "unreadable", "the header does not contain the length; convert the file again"
                )
            if file.channels > MAX_CHANNELS:
                raise RecordingError(
                    path, "unreadable", f"has {file.channels} channels; convert it to 1 channel"
                )
            yield file
    except soundfile.LibsndfileError as error:
        reason = error.error_string.strip().rstrip(".") or "corrupt data"
        raise RecordingError(
            path, "unreadable", f"cannot be read as audio ({reason}); replace the file"
        ) from None
    except OSError as error:
        raise RecordingError(path, "unreadable", f"cannot be read ({error.strerror})") from None


def _require_file(path: Path) -> None:
    if not path.exists():
        raise RecordingError(path, "missing", "the file does not exist; restore it or remove its line")
    if not path.is_file():
        raise RecordingError(path, "missing", "the path is not a file; use the path of the recording")
    if path.stat().st_size == 0:
        raise RecordingError(path, "empty", "the file is empty; replace it")
    if path.suffix.lower() == ".raw":
        raise RecordingError(
            path, "unreadable", "a .raw file does not contain its sample rate; convert it to .wav"
        )


def _truncated(file: soundfile.SoundFile) -> str:
    """Return a reason if the file has fewer samples than a header says; libsndfile only logs that."""
    found_s = file.frames / file.samplerate
    for declared, found in SHORT_CHUNK.findall(file.extra_info):
        declared_s = int(declared) / max(1, int(found)) * found_s
        if declared_s - found_s > MAX_MISSING_S and int(declared) < PLACEHOLDER_BYTES:
            return too_short(found_s, declared_s)
    return ""


def too_short(found_s: float, declared_s: float) -> str:
    """Return the reason against a recording that is shorter than its header says."""
    return (
        f"contains {found_s:.3f} s, its header says {declared_s:.3f} s; replace the file or convert it again"
    )


def _ends_inside_a_page(path: Path) -> bool:
    """Return whether the last page of an Ogg file is incomplete; libsndfile skips such a page.

    A page is "OggS", 22 more bytes, the number of its segments, their lengths, the segments (RFC 3533).
    """
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(-min(size, MAX_OGG_PAGE_BYTES + 27), 2)
        tail = file.read()
    start = tail.rfind(b"OggS")
    if start < 0:
        return True
    page = tail[start:]
    if len(page) < 27 or len(page) < 27 + page[26]:
        return True
    num_segments = page[26]
    return len(page) < 27 + num_segments + sum(page[27 : 27 + num_segments])


def require_reference_length(path: Path, duration_s: float) -> None:
    """Raise a UserError unless a recording of this length can be a reference for a voice."""
    if not MIN_REFERENCE_S <= duration_s <= MAX_RECORDING_S:
        raise UserError(
            f"{path}: lasts {duration_s:.1f} s, a reference recording must last {MIN_REFERENCE_S:g} to "
            f"{MAX_RECORDING_S:g} s; use {SHORT_REFERENCE_S:g} to {MAX_REFERENCE_S} s of one voice"
        )


def loudness_lufs(mono: NDArray[np.float32], rate_hz: int) -> float:
    """Return the loudness in LUFS (ITU-R BS.1770) of mono samples (S,); a shorter clip is a single block."""
    block_s = min(BLOCK_S, len(mono) / rate_hz * (1 - 1e-9))  # a rounded-up block would not fit
    if not mono.any():
        return LOWEST_DB
    import pyloudnorm  # it imports scipy, which takes seconds

    loudness = pyloudnorm.Meter(rate_hz, block_size=block_s).integrated_loudness(mono)
    return max(float(loudness), LOWEST_DB)


def flac(samples: NDArray[np.float32], rate_hz: int, subtype: str) -> bytes:
    """Return samples (S,) as the content of a FLAC file."""
    encoded = io.BytesIO()  # soundfile does not report a full disk
    soundfile.write(encoded, np.clip(samples, -1, 1), rate_hz, format="FLAC", subtype=subtype)
    return encoded.getvalue()
