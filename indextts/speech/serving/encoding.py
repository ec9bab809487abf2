"""Audio as bytes: wav, pcm, mp3 and opus at 24 kHz in one channel; and speech at another speed.

Axes: S samples.

An encoder takes the sound piece by piece and returns the bytes that are ready, so that a stream and a
complete file come from the same code. A streamed wav has no length in its header, as its end is not known.
"""

import io
import struct
from typing import Literal, Protocol

import av
import numpy as np
import soxr
from numpy.typing import NDArray

RATE_HZ = 24_000  # clients expect it of pcm, and opus needs it
STRETCH_S = 0.02  # distance of the frames of a changed speed
UNKNOWN_LENGTH = 0xFFFFFFFF

Format = Literal["wav", "pcm", "mp3", "opus"]
MEDIA_TYPES: dict[Format, str] = {
    "wav": "audio/wav",
    "pcm": "audio/pcm",
    "mp3": "audio/mpeg",
    "opus": "audio/ogg",
}


class Encoder(Protocol):
    """Encoder of one sound."""

    def add(self, samples: NDArray[np.float32]) -> bytes:
        """Return the bytes that are ready after `samples` (S,) at RATE_HZ, in [-1, 1]."""

    def end(self) -> bytes:
        """Return the remaining bytes."""


class PcmEncoder:
    """16-bit samples in little-endian order, with or without a wav header."""

    def __init__(self, *, has_header: bool) -> None:
        self._head = wav_header(UNKNOWN_LENGTH) if has_header else b""

    def add(self, samples: NDArray[np.float32]) -> bytes:
        content, self._head = self._head + as_pcm(samples), b""
        return content

    def end(self) -> bytes:
        return b""


class CompressedEncoder:
    """mp3, or opus in ogg."""

    def __init__(self, container: str, codec: str) -> None:
        self._sink = io.BytesIO()
        # without a seek at the end: what was returned is gone
        options = {"write_xing": "0"} if container == "mp3" else {}
        self._container = av.open(_WriteOnly(self._sink), "w", format=container, options=options)
        stream = self._container.add_stream(codec, rate=RATE_HZ, layout="mono")
        assert isinstance(stream, av.AudioStream)
        self._stream = stream
        self._stream.bit_rate = 64_000
        self._resampler = av.AudioResampler(self._stream.format, "mono", RATE_HZ)
        self._num_samples = 0

    def add(self, samples: NDArray[np.float32]) -> bytes:
        frame = av.AudioFrame.from_ndarray(np.clip(samples, -1, 1)[None], format="flt", layout="mono")
        frame.sample_rate, frame.pts = RATE_HZ, self._num_samples
        self._num_samples += len(samples)
        for ready in self._resampler.resample(frame):
            self._container.mux(self._stream.encode(ready))
        return self._taken()

    def end(self) -> bytes:
        self._container.mux(self._stream.encode(None))
        self._container.close()
        return self._taken()

    def _taken(self) -> bytes:
        content = self._sink.getvalue()
        self._sink.seek(0)
        self._sink.truncate()
        return content


class _WriteOnly:
    """A sink without seek, for PyAV."""

    def __init__(self, sink: io.BytesIO) -> None:
        self.write = sink.write


def encoder_of(format: Format) -> Encoder:
    if format == "mp3":
        return CompressedEncoder("mp3", "libmp3lame")
    if format == "opus":
        return CompressedEncoder("ogg", "libopus")
    return PcmEncoder(has_header=format == "wav")


def as_pcm(samples: NDArray[np.float32]) -> bytes:
    return (np.clip(samples, -1, 1) * 32767).astype("<i2").tobytes()


def wav_header(num_bytes: int) -> bytes:
    """Return the header of a wav with `num_bytes` of 16-bit samples in one channel."""
    total = min(num_bytes + 36, UNKNOWN_LENGTH)
    kind = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, RATE_HZ, 2 * RATE_HZ, 2, 16)
    return b"RIFF" + struct.pack("<I", total) + b"WAVE" + kind + b"data" + struct.pack("<I", num_bytes)


def with_length(wav: bytes) -> bytes:
    """Return a complete wav of `PcmEncoder` with its length in the header."""
    head = len(wav_header(0))
    return wav_header(len(wav) - head) + wav[head:]


def at_rate(samples: NDArray[np.float32], rate_hz: int, speed: float) -> NDArray[np.float32]:
    """Return samples (S,) at RATE_HZ, spoken `speed` times as fast at the same pitch."""
    resampled: NDArray[np.float32] = soxr.resample(samples, rate_hz, RATE_HZ)
    return resampled if speed == 1 else change_speed(resampled, speed)


def change_speed(samples: NDArray[np.float32], speed: float) -> NDArray[np.float32]:
    """Return samples (S,) `speed` times as fast: overlapping frames, each where it fits the last one best."""
    hop = int(STRETCH_S * RATE_HZ)
    reach, size = hop // 2, 2 * hop
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(size) / size)  # two, one hop apart, add up to 1
    num_frames = max(1, int(len(samples) / speed) // hop + 1)
    padded = np.pad(samples, (reach, int(hop * speed) + 2 * size + reach))
    output = np.zeros((num_frames + 1) * hop, np.float64)
    at = reach
    for number in range(num_frames):
        ideal = reach + int(number * hop * speed)
        if number:
            expected = padded[at + hop : at + hop + size]
            around = padded[ideal - reach : ideal + reach + size]
            at = ideal - reach + int(np.argmax(np.correlate(around, expected, "valid")))
        frame = padded[at : at + size] * window
        if not number:
            frame[:hop] = padded[at : at + hop]
        output[number * hop : number * hop + size] += frame
    return output[: int(len(samples) / speed)].astype(np.float32)
