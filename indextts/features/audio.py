"""Recordings: reading and checking files. No torch here: programs that only look at files start at once.

Axes: S samples, C channels.

What is wrong with a recording has a sentence, for the person, and a code that stays the same, for programs:

    missing      there is no such file             truncated   it ends before its header says
    unreadable   it is no audio                    not_finite  it has samples that are no numbers
    empty        it has no samples                 too_short   it has too few codes for the model
    too_long     it has more codes than the model takes
    reader_died  the process that read it died, twice
    out_of_memory  it does not fit into memory, alone
    changed      it became another file while it was encoded

How long a recording may be that says how a voice sounds. No torch here.
"""

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, Self

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

MISSING_S = 0.05  # that may be missing at the end: encoders of lossy formats round, a cut takes more
MOST_CHANNELS = 32
PLACEHOLDER = 0x7FFF0000  # programs that write into a pipe say that there are 2 or 4 GB
OGG_PAGE_BYTES = 65_307  # at most
# What libsndfile's log says where a chunk of samples is shorter than its header says.
CUT_CHUNK = re.compile(r"(?:data|SSND|riff|Data Size)\s*:\s*(\d+)\s*\(should be (\d+)\)")


class RecordingError(UserError):
    """A recording that cannot be used.

    Args:
        path: of the recording, with which the message begins.
        code: which kind of problem it is.
        reason: what is wrong, and what to do.
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

    Channels are averaged. Nothing is decoded of a file whose header says that it is longer than
    `max_duration_s`.

    Raises:
        RecordingError: the file is missing, is no audio, breaks off, is too long, or has no or infinite
            samples.
    """
    channels, file_rate_hz = read_channels(path, max_duration_s)
    samples: NDArray[np.float32] = soxr.resample(
        channels.mean(axis=1, dtype=np.float32), file_rate_hz, sample_rate_hz
    )
    return samples


def read_channels(path: Path, max_duration_s: float = math.inf) -> tuple[NDArray[np.float32], int]:
    """Return a recording as it is in its file, in [-1, 1], and its sample rate in Hz: (S, C).

    Raises:
        RecordingError: as `load_audio`.
    """
    with _open(path) as file:
        duration_s = file.frames / file.samplerate
        if duration_s > max_duration_s:
            raise RecordingError(path, "too_long", _longer(duration_s, max_duration_s))
        # at once: in parts, libsndfile decodes MP3 to other samples
        channels = file.read(file.frames, dtype="float32", always_2d=True)  # (S, C)
        file_rate_hz = file.samplerate
    if len(channels) < (duration_s - MISSING_S) * file_rate_hz or len(channels) == 0:
        found_s = len(channels) / file_rate_hz
        raise RecordingError(
            path,
            "truncated",
            f"holds {found_s:.3f} s, its header says {duration_s:.3f} s, replace the file or convert it anew",
        )
    if not np.isfinite(channels).all():
        raise RecordingError(
            path, "not_finite", "the recording has samples that are no numbers, replace the file"
        )
    return channels, file_rate_hz


def as_it_is(samples: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the samples: what a backend that needs no preparation does with them in a reader's process."""
    return samples


def audio_duration_s(path: Path) -> float:
    """Return the duration that the file's header says, after reading its last sample: nothing was cut off.

    Raises:
        RecordingError: the file is missing, is no audio, is empty or breaks off.
    """
    with _open(path) as file:
        num_samples: int = file.frames
        file.seek(num_samples - 1)
        if len(file.read(1)) != 1:
            raise RecordingError(path, "truncated", "the recording breaks off, replace the file")
        return num_samples / float(file.samplerate)


@contextmanager
def _open(path: Path) -> Iterator[soundfile.SoundFile]:
    """Open a recording that has samples and whose file was not cut, as far as its headers tell.

    Raises:
        RecordingError: also for what fails while it is read.
    """
    _require_file(path)
    try:
        with soundfile.SoundFile(path) as file:
            if _is_cut(file) or (file.format == "OGG" and _ends_inside_a_page(path)):
                raise RecordingError(path, "truncated", "the recording breaks off, replace the file")
            if file.frames < 1:
                raise RecordingError(path, "empty", "the recording is empty, replace the file")
            if file.frames >= 2**62:
                raise RecordingError(
                    path, "unreadable", "the header does not say how long it is, convert the file anew"
                )
            if file.channels > MOST_CHANNELS:
                raise RecordingError(
                    path, "unreadable", f"has {file.channels} channels, convert it to 1 channel"
                )
            yield file
    except soundfile.LibsndfileError as error:
        reason = error.error_string.strip().rstrip(".") or "damaged data"
        raise RecordingError(
            path, "unreadable", f"cannot be read as audio ({reason}), replace the file"
        ) from None
    except OSError as error:
        raise RecordingError(path, "unreadable", f"cannot be read ({error.strerror})") from None


def _require_file(path: Path) -> None:
    if not path.exists():
        raise RecordingError(path, "missing", "there is no such file, restore it or remove its line")
    if not path.is_file():
        raise RecordingError(path, "missing", "this is no file, give the recording itself")
    if path.stat().st_size == 0:
        raise RecordingError(path, "empty", "the file is empty, replace it")
    if path.suffix.lower() == ".raw":
        raise RecordingError(
            path, "unreadable", "a .raw file does not say its sample rate, convert it to .wav"
        )


def _is_cut(file: soundfile.SoundFile) -> bool:
    """Return whether less is there than a header says; libsndfile takes what is there, and notes it."""
    duration_s = file.frames / file.samplerate
    for said, found in CUT_CHUNK.findall(file.extra_info):
        missing_s = (int(said) / max(1, int(found)) - 1) * duration_s
        if missing_s > MISSING_S and int(said) < PLACEHOLDER:
            return True
    return False


def _ends_inside_a_page(path: Path) -> bool:
    """Return whether an Ogg file's last page is incomplete; libsndfile leaves such a page out.

    A page is "OggS", 22 more bytes, the number of its segments, their lengths, the segments (RFC 3533).
    """
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(-min(size, OGG_PAGE_BYTES + 27), 2)
        tail = file.read()
    start = tail.rfind(b"OggS")
    if start < 0:
        return True
    page = tail[start:]
    if len(page) < 27 or len(page) < 27 + page[26]:
        return True
    num_segments = page[26]
    return len(page) < 27 + num_segments + sum(page[27 : 27 + num_segments])


def _longer(duration_s: float, max_duration_s: float) -> str:
    return f"lasts {duration_s:.1f} s, the model takes {max_duration_s:.1f} s, cut the recording"


MAX_REFERENCE_S = 15  # what the published model listens to
SHORT_REFERENCE_S = 3.0
MIN_REFERENCE_S = 1.0
MAX_RECORDING_S = 600.0


def require_fitting_length(path: Path, duration_s: float) -> None:
    """Raise a UserError unless a voice can be taken from a recording of this length."""
    if not MIN_REFERENCE_S <= duration_s <= MAX_RECORDING_S:
        raise UserError(
            f"{path}: lasts {duration_s:.1f} s, a reference must last {MIN_REFERENCE_S:g} to "
            f"{MAX_RECORDING_S:g} s; best are {SHORT_REFERENCE_S:g} to {MAX_REFERENCE_S} s of one voice"
        )
