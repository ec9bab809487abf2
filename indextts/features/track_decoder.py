"""Program that decodes the first audio track of a file to FLAC: 16 bit, at the rate of the track.

    python track_decoder.py FILE TARGET MAX_S MAX_BYTES

It prints ["no_sound", "the file has no audio track"]: a code and the reason. The code is that of a rejection
of an import, "disk_full" if TARGET cannot be written, or "" if TARGET contains the track.

decoding.py runs this as a separate process, because files are untrusted: a codec that crashes ends this
process and not the caller, and a timer ends it after MAX_S seconds even within a codec. Only FILE is opened:
protocols other than that of local files are disabled, and so are formats that refer to other files.

More channels than two become two. Standard library and PyAV only, so that the process starts in 0.1 s.
"""

import errno
import json
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import groupby

import av
from av.audio.frame import AudioFrame
from av.audio.resampler import AudioResampler
from av.audio.stream import AudioStream
from av.container import InputContainer

# Formats that contain the audio itself; playlist formats such as hls, concat and dash are excluded.
_FORMATS = (
    "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi,asf,flv,mpeg,mpegts,aac,amr,amrnb,amrwb,ac3,eac3,mp3,ogg,wav,"
    "flac,caf,aiff,au,w64"
)
# Formats whose header has the duration; in others it is an estimate, and times can jump.
_TIMED_FORMATS = ("mov,mp4,m4a,3gp,3g2,mj2", "matroska,webm", "flv", "asf", "flac")
_MAX_MISSING_S = 0.5
_MAX_MISSING_SHARE = 0.01  # of a long recording: some packets of a radio stream are often corrupt
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_BYTES_PER_SAMPLE = 2

Answer = tuple[str, str]  # code and reason


@dataclass
class _Track:
    """Times of the packets, in seconds; `length_s` is the sum of the packets of the track."""

    start_s: float | None = None
    end_s: float = 0.0
    length_s: float = 0.0
    file_end_s: float = 0.0
    ends_corrupt: bool = False


def main(argv: list[str]) -> int:
    source, target, max_s, max_bytes = argv
    signal.setitimer(signal.ITIMER_REAL, float(max_s))  # by default, SIGALRM ends the process
    try:
        answer = _decode(source, target, int(max_bytes))
    except (av.FFmpegError, ValueError) as error:  # ValueError: from PyAV, for parameters of a track
        reason = getattr(error, "strerror", "") or str(error)
        answer = _unreadable(reason)
        if getattr(error, "errno", None) in _DISK_FULL:
            answer = "disk_full", reason
    print(json.dumps(answer))  # noqa: T201 - the result of the program
    return 0


def _unreadable(reason: str) -> Answer:
    return "unreadable_audio", f"neither libsndfile nor PyAV can read it ({reason}); replace the file"


def _decode(source: str, target: str, max_bytes: int) -> Answer:
    # Sizes of samples in WAV files are often wrong: read to the end of the file.
    options = {"protocol_whitelist": "file", "format_whitelist": _FORMATS, "ignore_length": "1"}
    # "file:" prefix: a name can contain a colon.
    with av.open(f"file:{source}", options=options, metadata_errors="replace") as container:
        if not container.streams.audio:
            return "no_sound", "the file has no audio track"
        stream = container.streams.audio[0]
        if stream.codec_context is None:
            return _unreadable("unknown codec")
        track = _Track()
        num_samples, rate_hz = _write(_alike(_frames(container, stream, track)), target, max_bytes)
        declared_s = (container.duration or 0) / av.time_base
        is_timed = container.format.name in _TIMED_FORMATS
    if num_samples * _BYTES_PER_SAMPLE > max_bytes:
        return "unreadable_audio", f"decodes to more than {max_bytes / 2**30:.0f} GiB; split the recording"
    if track.ends_corrupt or (is_timed and _is_less(track.file_end_s, declared_s)):
        found = f"contains {track.file_end_s:.1f} s"
        return (
            "unreadable_audio",
            f"is truncated: {found}, its header says {declared_s:.1f} s; replace the file",
        )
    if not num_samples:
        return "no_sound", "the audio track is empty"
    span_s = track.end_s - (track.start_s or 0.0) if is_timed else 0.0
    expected_s, decoded_s = max(span_s, track.length_s), num_samples / rate_hz
    if _is_less(decoded_s, expected_s):
        reason = f"only {decoded_s:.1f} of {expected_s:.1f} s can be decoded; replace the file"
        return "unreadable_audio", reason
    return "", ""


def _is_less(found_s: float, expected_s: float) -> bool:
    return expected_s - found_s > max(_MAX_MISSING_S, _MAX_MISSING_SHARE * expected_s)


def _frames(container: InputContainer, stream: AudioStream, track: _Track) -> Iterator[AudioFrame]:
    """Yield the frames of a track without corrupt packets, and record the times in `track`."""
    for packet in container.demux():
        if not packet.size:  # flushes the decoder
            if packet.stream.index == stream.index:
                yield from stream.decode(packet)
            continue
        length_s = float((packet.duration or 0) * packet.time_base)
        end_s = float(packet.pts * packet.time_base) + length_s if packet.pts is not None else 0.0
        track.file_end_s = max(track.file_end_s, end_s)
        if packet.stream.index != stream.index:
            continue
        track.end_s = max(track.end_s, end_s)
        track.length_s += length_s
        if track.start_s is None and packet.pts is not None:
            track.start_s = end_s - length_s
        try:
            frames = stream.decode(packet)
        except av.FFmpegError:
            track.ends_corrupt = True
            continue
        track.ends_corrupt = False
        yield from frames


def _alike(frames: Iterator[AudioFrame]) -> Iterator[AudioFrame]:
    """Yield the frames as 16-bit mono or stereo at the rate of the first; their format may change."""
    rate_hz, layout = 0, ""

    def form(frame: AudioFrame) -> tuple[int, str, str, int]:
        return frame.sample_rate, frame.format.name, frame.layout.name, frame.layout.nb_channels

    for (found_hz, _, _, num_channels), alike in groupby(frames, form):
        rate_hz = rate_hz or found_hz
        layout = layout or ("mono" if num_channels == 1 else "stereo")
        resampler = AudioResampler("s16", layout, rate_hz)
        for frame in alike:
            frame.pts = None
            yield from resampler.resample(frame)
        yield from filter(None, resampler.resample(None))  # [None] if there was nothing to convert


def _write(frames: Iterator[AudioFrame], target: str, max_bytes: int) -> tuple[int, int]:
    """Write frames to a FLAC file until they are too large; return the number of samples and their rate."""
    num_samples = rate_hz = 0
    stream: AudioStream | None = None
    with av.open(f"file:{target}", "w", format="flac") as output:
        for frame in frames:
            if stream is None:
                rate_hz = frame.sample_rate
                stream = output.add_stream("flac", rate=rate_hz, layout=frame.layout.name)
            frame.pts, frame.time_base = num_samples, Fraction(1, rate_hz)
            num_samples += frame.samples
            if num_samples * _BYTES_PER_SAMPLE > max_bytes:
                return num_samples, rate_hz
            output.mux(stream.encode(frame))
        if stream is not None:
            output.mux(stream.encode(None))
    return num_samples, rate_hz


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
