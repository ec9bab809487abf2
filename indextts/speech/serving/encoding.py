"""Audio as bytes: wav, pcm, flac, mp3, aac and opus at 24 kHz in one channel; and speech at another speed.

Axes: S samples.

An encoder takes the sound piece by piece and returns the bytes that are ready, so that a stream and a
complete file come from the same code. A streamed wav has no length in its header, as its end is not known.
"""

import io
from contextlib import suppress
from fractions import Fraction
from typing import Literal

import av
import numpy as np
import soxr
from av.filter import Graph
from numpy.typing import NDArray

RATE_HZ = 24_000  # clients expect it of pcm, and opus needs it

Format = Literal["wav", "pcm", "flac", "mp3", "aac", "opus"]
MEDIA_TYPES: dict[Format, str] = {
    "wav": "audio/wav",
    "pcm": "audio/pcm",
    "flac": "audio/flac",
    "mp3": "audio/mpeg",
    "aac": "audio/aac",
    "opus": "audio/ogg",
}
CODECS: dict[Format, tuple[str, str]] = {  # container and codec of ffmpeg
    "wav": ("wav", "pcm_s16le"),
    "pcm": ("s16le", "pcm_s16le"),
    "flac": ("flac", "flac"),
    "mp3": ("mp3", "libmp3lame"),
    "aac": ("adts", "aac"),
    "opus": ("ogg", "libopus"),
}


class Encoder:
    """Encoder of one sound.

    Args:
        is_stream: the bytes are wanted as soon as they are ready; else all are returned at the end, when a
            wav knows its length.
    """

    def __init__(self, format: Format, *, is_stream: bool) -> None:
        container, codec = CODECS[format]
        self._is_stream = is_stream
        self._sink = io.BytesIO()
        # without a seek at the end: what was returned is gone
        options = {"write_xing": "0"} if format == "mp3" else {}
        sink = _WriteOnly(self._sink) if is_stream else self._sink
        self._container = av.open(sink, "w", format=container, options={**options, "fflags": "+bitexact"})
        stream = self._container.add_stream(codec, rate=RATE_HZ, layout="mono")
        assert isinstance(stream, av.AudioStream)
        self._stream = stream
        self._stream.bit_rate = 64_000
        self._resampler = av.AudioResampler(self._stream.format, "mono", RATE_HZ)
        self._num_samples = 0

    def add(self, samples: NDArray[np.float32]) -> bytes:
        """Return the bytes that are ready after `samples` (S,) at RATE_HZ, in [-1, 1]."""
        frame = _frame_of(np.clip(samples, -1, 1), self._num_samples)
        self._num_samples += len(samples)
        for ready in self._resampler.resample(frame):
            self._container.mux(self._stream.encode(ready))
        return self._taken() if self._is_stream else b""

    def end(self) -> bytes:
        """Return the remaining bytes."""
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


def at_rate(samples: NDArray[np.float32], rate_hz: int, speed: float) -> NDArray[np.float32]:
    """Return samples (S,) at RATE_HZ, spoken `speed` times as fast at the same pitch."""
    resampled: NDArray[np.float32] = soxr.resample(samples, rate_hz, RATE_HZ)
    return resampled if speed == 1 else change_speed(resampled, speed)


def change_speed(samples: NDArray[np.float32], speed: float) -> NDArray[np.float32]:
    """Return samples (S,) `speed` times as fast at the same pitch."""
    graph = Graph()
    speeds = [speed**0.5] * 2 if speed < 0.5 else [speed]  # the filter of ffmpeg goes down to 0.5
    source = graph.add_abuffer(
        sample_rate=RATE_HZ, format="flt", layout="mono", time_base=Fraction(1, RATE_HZ)
    )
    graph.link_nodes(source, *(graph.add("atempo", str(part)) for part in speeds), graph.add("abuffersink"))
    graph.configure()
    graph.push(_frame_of(np.pad(samples, (0, RATE_HZ // 5)), 0))  # it keeps the last few ms back
    graph.push(None)
    pieces = []
    with suppress(EOFError):
        while True:
            pieces.append(graph.pull().to_ndarray()[0])
    return np.concatenate(pieces)[: int(len(samples) / speed)]


def _frame_of(samples: NDArray[np.float32], at: int) -> av.AudioFrame:
    frame = av.AudioFrame.from_ndarray(samples[None], format="flt", layout="mono")
    frame.sample_rate, frame.pts, frame.time_base = RATE_HZ, at, Fraction(1, RATE_HZ)
    return frame
