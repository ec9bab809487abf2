"""Recordings: reading and checking files. No torch here: programs that only look at files start at once.

Axes: S samples, C channels.
"""

from pathlib import Path

import numpy as np
import soundfile
import soxr
from numpy.typing import NDArray

from indextts.errors import UserError


def load_audio(path: Path, sample_rate_hz: int) -> NDArray[np.float32]:
    """Return a recording as mono samples in [-1, 1] at `sample_rate_hz`: (S,).

    Channels are averaged.

    Raises:
        UserError: the file is missing, is no audio, breaks off, or has no or infinite samples.
    """
    channels, file_rate_hz = read_channels(path)
    samples: NDArray[np.float32] = soxr.resample(
        channels.mean(axis=1, dtype=np.float32), file_rate_hz, sample_rate_hz
    )
    return samples


def read_channels(path: Path) -> tuple[NDArray[np.float32], int]:
    """Return a recording as it is in its file, in [-1, 1], and its sample rate in Hz: (S, C).

    Raises:
        UserError: the file is missing, is no audio, breaks off, or has no or infinite samples.
    """
    _require_file(path)
    try:
        with soundfile.SoundFile(path) as file:
            num_samples, file_rate_hz = file.frames, file.samplerate
            channels = file.read(dtype="float32", always_2d=True)  # (S, C)
    except soundfile.LibsndfileError as error:
        raise UserError(f"{path}: cannot be read as audio ({error.error_string}), replace the file") from None
    if num_samples < 1:
        raise UserError(f"{path}: the recording is empty, replace the file")
    if len(channels) < num_samples:
        raise UserError(f"{path}: the recording breaks off, replace the file")
    if not np.isfinite(channels).all():
        raise UserError(f"{path}: the recording has samples that are no numbers, replace the file")
    return channels, file_rate_hz


def audio_duration_s(path: Path) -> float:
    """Return the duration that the file's header says, after reading its last sample: nothing was cut off.

    Raises:
        UserError: the file is missing, is no audio, is empty or breaks off.
    """
    _require_file(path)
    try:
        with soundfile.SoundFile(path) as file:
            num_samples: int = file.frames
            if num_samples < 1:
                raise UserError(f"{path}: the recording is empty, replace the file")
            file.seek(num_samples - 1)
            if len(file.read(1)) != 1:
                raise UserError(f"{path}: the recording breaks off, replace the file")
            return num_samples / float(file.samplerate)
    except soundfile.LibsndfileError as error:
        raise UserError(f"{path}: cannot be read as audio ({error.error_string}), replace the file") from None


def _require_file(path: Path) -> None:
    if not path.exists():
        raise UserError(f"{path}: there is no such file, restore it or remove its line")
    if not path.is_file():
        raise UserError(f"{path}: this is no file, give the recording itself")
    if path.suffix.lower() == ".raw":
        raise UserError(f"{path}: a .raw file does not say its sample rate, convert it to .wav")
