"""Read recordings of any format and length: decode, find speech, write parts.

Axes: S samples.

PyAV decodes to FLAC what libsndfile cannot read, or only a part of because of a wrong header, in a separate
process (track_decoder.py). It may only open the given file: other protocols and playlist formats, which can
refer to any file of this machine, are disabled. Memory does not grow with the length of a recording.
"""

import errno
import json
import mmap
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile
import soxr
from numpy.typing import NDArray

from indextts.commands.data import Channel
from indextts.features.audio import NOT_FINITE, Header, RecordingError, mixing_weights, read_header, too_short
from indextts.features.vad import SAMPLE_RATE_HZ, WINDOW_SAMPLES, Span, speech_probabilities, speech_spans

MAX_UNREAD_S = 0.25  # encoders of MP3 add up to 0.2 s, which libsndfile removes
WRONG_LENGTH = "decoded because of a wrong length in the header"  # outcomes
DIFFERENCE, ONE_CHANNEL = "taken from the difference of the channels", "taken from one channel"

Problem = tuple[str, str]  # code and reason, as of rejections of an import

_TIMEOUT_S = 60.0
_TIMEOUT_PER_MB_S = 2.0  # for a slow disk and an old processor
_MAX_DECODED_BYTES = 8 * 2**30
_BLOCK_S = 10
_CHUNK_SAMPLES = 300 * SAMPLE_RATE_HZ // WINDOW_SAMPLES * WINDOW_SAMPLES  # per call of the detector
_WARM_UP_SAMPLES = 2 * SAMPLE_RATE_HZ // WINDOW_SAMPLES * WINDOW_SAMPLES  # repeated before each call
_HEAD_BYTES = 2**20
_MP3_LENGTH = re.compile(rb"Xing|Info|VBRI")  # tags; without one, the length is an estimate
_START_OF = {"OGG": b"OggS\0\2", "FLAC": b"fLaC\0\0\0\x22"}
_FORMATS_OF_CHUNKS = ("WAV", "WAVEX", "RF64", "AIFF")
_UNKNOWN_CHUNK = re.compile("Unknown chunk marker|Have 0 marker|Chunk size .* > file")  # in libsndfile's log
_DECODER = Path(__file__).with_name("track_decoder.py")


@dataclass(frozen=True)
class Readable:
    """A recording that libsndfile reads to its end, and whose channels have one sound."""

    path: Path  # the recording itself, or a mono FLAC file made from it
    duration_s: float
    outcomes: tuple[str, ...] = ()  # what was wrong with it, for the log


def readable_by_libsndfile(path: Path) -> bool:
    """Return whether libsndfile supports the format; the file may still be truncated."""
    try:
        soundfile.info(path)
    except soundfile.LibsndfileError:
        return False
    return True


def as_readable(path: Path, aside: Path, channel: Channel = "auto") -> Readable | Problem:
    """Return a recording that libsndfile reads: `path`, or `aside` after decoding or mixing, or the problem.

    Args:
        channel: the one to take of several, as --channel.

    Raises:
        OSError: `aside` cannot be written.
    """
    try:
        found = _complete(path, aside)
        if isinstance(found, Readable) and not _is_finite(found.path):
            return "unreadable_audio", NOT_FINITE
        return found if isinstance(found, tuple) else _mixed(found, aside, channel)
    except soundfile.LibsndfileError as error:
        return "unreadable_audio", str(error)


def _complete(path: Path, aside: Path) -> Readable | Problem:
    """Return a recording with all of its sound; PyAV decodes what libsndfile cannot, or only in part."""
    try:
        header = read_header(path)
    except RecordingError as error:
        problem = "unreadable_audio", error.reason
        if error.code == "missing" or path.suffix.lower() == ".raw" or not path.stat().st_size:
            return problem
        if not readable_by_libsndfile(path):
            return _decode(path, aside)
        facts = soundfile.info(path)
        if error.code != "truncated":
            return _decode(path, aside, (WRONG_LENGTH,))
        if "MPEG" not in facts.subtype:
            return problem
        with path.open("rb") as file:
            is_estimate = not _MP3_LENGTH.search(file.read(_HEAD_BYTES))
        return _decode(path, aside, (WRONG_LENGTH,), 0.0 if is_estimate else facts.duration)
    if not _may_contain_more(path, header):
        return Readable(path, header.duration_s)
    decoded = _decode(path, aside, (WRONG_LENGTH,))
    if isinstance(decoded, Readable) and 0 <= decoded.duration_s - header.duration_s <= MAX_UNREAD_S:
        aside.unlink()
        return Readable(path, header.duration_s)
    return decoded


def _may_contain_more(path: Path, header: Header) -> bool:
    """Return whether a file may have more sound than libsndfile reads; chunks and tags after it are none."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        start = _START_OF.get(header.format)
        if start is not None and content.find(start, 1) > 0:  # of another recording
            return True
        unread_s = header.duration_s * (len(content) / header.num_read - 1)
        if unread_s < MAX_UNREAD_S or not content[header.num_read :].strip(b"\0"):
            return False
    return header.format not in _FORMATS_OF_CHUNKS or bool(_UNKNOWN_CHUNK.search(header.log))


def _is_finite(path: Path) -> bool:
    with soundfile.SoundFile(path) as file:
        blocks = file.blocks(_BLOCK_S * file.samplerate, dtype="float32")
        return file.subtype not in ("FLOAT", "DOUBLE") or all(np.isfinite(block).all() for block in blocks)


def _mixed(found: Readable, aside: Path, channel: Channel) -> Readable | Problem:
    """Return a recording whose mean of the channels is its sound; write it as mono FLAC if it has none."""
    with soundfile.SoundFile(found.path) as file:
        if file.channels == 1:
            return found
        weights = np.full(file.channels, 1 / file.channels)
        if channel in ("left", "right"):
            weights = np.eye(file.channels)[("left", "right").index(channel)]
        elif channel == "auto":
            blocks = file.blocks(_BLOCK_S * file.samplerate, dtype="float32", always_2d=True)
            if (mixed := mixing_weights(blocks, file.samplerate)) is None:
                reason = f"its {file.channels} channels have different sounds, such as two speakers"
                return "channels", f"{reason}; choose one with --channel of the import, or split the file"
            weights = mixed
        is_mean = bool(np.ptp(weights) == 0)
        if is_mean and found.path != aside:
            return found
        target = aside.with_name(f"mono-{aside.name}")
        file.seek(0)
        with soundfile.SoundFile(target, "w", file.samplerate, 1, "PCM_16", format="FLAC") as mono:
            for block in file.blocks(_BLOCK_S * file.samplerate, dtype="float32", always_2d=True):
                mono.write(np.clip(block @ weights.astype(np.float32), -1, 1))
    target.replace(aside)
    outcome = DIFFERENCE if weights.min() < 0 else ONE_CHANNEL
    return Readable(aside, found.duration_s, (*found.outcomes, *([] if is_mean else [outcome])))


def _decode(
    path: Path, aside: Path, outcomes: tuple[str, ...] = (), declared_s: float = 0.0
) -> Readable | Problem:
    """Write the first audio track as 16-bit FLAC at its sample rate; refuse less than `declared_s`."""
    timeout = _TIMEOUT_S + _TIMEOUT_PER_MB_S * path.stat().st_size / 1e6
    files = str(path.resolve()), str(aside)
    argv = [sys.executable, "-P", str(_DECODER), *files, str(timeout), str(_MAX_DECODED_BYTES)]
    answer = subprocess.run(argv, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    code = "unreadable_audio"
    if answer.returncode == -signal.SIGALRM:
        reason = f"decoding took more than {timeout:.0f} s"
    elif answer.returncode:
        lines = answer.stderr.strip().splitlines() or ["unknown reason"]
        reason = f"the decoder failed, {lines[-1].rpartition(': ')[2][:200]}, status {answer.returncode}"
        reason += "; replace the file"
    else:
        code, reason = json.loads(answer.stdout)
    if code == "disk_full":
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(aside))
    if not code:
        decoded_s = soundfile.info(aside).duration
        if declared_s - decoded_s <= MAX_UNREAD_S:
            return Readable(aside, decoded_s, outcomes)
        code, reason = "unreadable_audio", too_short(decoded_s, declared_s)
    aside.unlink(missing_ok=True)
    return code, reason


def find_speech_in_file(path: Path) -> tuple[list[Span], float]:
    """Return the spans with speech of a file, and its duration in seconds."""
    probabilities: list[NDArray[np.float32]] = []
    num_samples = 0
    before = np.zeros(0, np.float32)
    for chunk in read_chunks(path, SAMPLE_RATE_HZ, _CHUNK_SAMPLES):
        heard = np.concatenate([before, chunk])
        probabilities.append(speech_probabilities(heard)[len(before) // WINDOW_SAMPLES :])
        before = chunk[-_WARM_UP_SAMPLES:] if len(chunk) == _CHUNK_SAMPLES else before[:0]
        num_samples += len(chunk)
    duration_s = num_samples / SAMPLE_RATE_HZ
    joined = np.concatenate(probabilities) if probabilities else np.zeros(0, np.float32)
    return speech_spans(joined, duration_s), duration_s


def write_parts(path: Path, spans: Sequence[Span], targets: Sequence[Path]) -> list[float]:
    """Write parts of a recording as mono FLAC at its rate; return their durations in seconds.

    The file is read sequentially, because seeking is not exact in every format; once more for each part that
    overlaps one before it.
    """
    durations = [0.0] * len(spans)
    waiting = sorted(range(len(spans)), key=lambda number: spans[number].start_s)
    while waiting:
        overlapping = []
        with soundfile.SoundFile(path) as file:
            rate, position = file.samplerate, 0
            for number in waiting:
                first, last = round(spans[number].start_s * rate), round(spans[number].end_s * rate)
                if first < position:
                    overlapping.append(number)
                    continue
                position += sum(map(len, _mono_blocks(file, first - position)))
                start = position
                with soundfile.SoundFile(targets[number], "w", rate, 1, "PCM_16", format="FLAC") as part:
                    for block in _mono_blocks(file, last - position):
                        part.write(np.clip(block, -1, 1))
                        position += len(block)
                durations[number] = (position - start) / rate
        waiting = overlapping
    return durations


def read_chunks(path: Path, sample_rate_hz: int, num_samples: int) -> Iterator[NDArray[np.float32]]:
    """Yield a recording as mono at another rate, in chunks of `num_samples` except for the last."""
    with soundfile.SoundFile(path) as file:
        resampler = soxr.ResampleStream(file.samplerate, sample_rate_hz, 1, dtype="float32")
        waiting: list[NDArray[np.float32]] = []
        num_waiting = 0
        is_last = False
        while not is_last:
            block = _read_mono(file, _BLOCK_S * file.samplerate)
            is_last = len(block) == 0
            resampled = resampler.resample_chunk(block, last=is_last)
            waiting.append(resampled)
            num_waiting += len(resampled)
            while num_waiting >= num_samples or (is_last and num_waiting):
                joined = np.concatenate(waiting)
                yield joined[:num_samples]
                waiting = [joined[num_samples:]]
                num_waiting = len(waiting[0])


def _mono_blocks(file: soundfile.SoundFile, num_frames: int) -> Iterator[NDArray[np.float32]]:
    while num_frames > 0 and len(block := _read_mono(file, min(_BLOCK_S * file.samplerate, num_frames))):
        num_frames -= len(block)
        yield block


def _read_mono(file: soundfile.SoundFile, num_frames: int) -> NDArray[np.float32]:
    samples = file.read(num_frames, dtype="float32", always_2d=True)  # (S, channels)
    mono: NDArray[np.float32] = samples.mean(axis=1, dtype=np.float32)  # (S,)
    return mono
