"""Read recordings of any format and length: decode, find speech, write parts.

Axes: S samples.

PyAV decodes what libsndfile cannot read to FLAC, in a separate process (track_decoder.py). It may only open
the given file: other protocols and playlist formats, which can refer to any file of this machine, are
disabled. Memory does not grow with the length of a recording.
"""

import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import soundfile
import soxr
from numpy.typing import NDArray

from indextts.data.importing.items import Problem
from indextts.errors import UserError
from indextts.features.audio import audio_duration_s
from indextts.features.vad import (
    SAMPLE_RATE_HZ,
    WINDOW_SAMPLES,
    Span,
    speech_probabilities,
    speech_spans,
)

_TIMEOUT_S = 60.0
_TIMEOUT_PER_MB_S = 2.0  # for a slow disk and an old processor
_MAX_DECODED_BYTES = 8 * 2**30
_BLOCK_S = 10
_CHUNK_SAMPLES = 300 * SAMPLE_RATE_HZ // WINDOW_SAMPLES * WINDOW_SAMPLES  # per call of the detector
_WARM_UP_SAMPLES = 2 * SAMPLE_RATE_HZ // WINDOW_SAMPLES * WINDOW_SAMPLES  # repeated before each call
_DECODER = Path(__file__).with_name("track_decoder.py")


def readable_by_libsndfile(path: Path) -> bool:
    """Return whether libsndfile supports the format; the file may still be truncated."""
    try:
        soundfile.info(path)
    except soundfile.LibsndfileError:
        return False
    return True


def as_readable(path: Path, aside: Path) -> Path | Problem:
    """Return a file that libsndfile reads: `path`, or `aside` after decoding, or the problem.

    Raises:
        OSError: `aside` cannot be written.
    """
    if path.suffix.lower() == ".raw" or readable_by_libsndfile(path):
        try:
            audio_duration_s(path)
        except UserError as error:
            return "unreadable_audio", str(error).removeprefix(f"{path}: ")
        return path
    if path.stat().st_size == 0:
        return "unreadable_audio", "the file is empty; replace it"
    problem = _decode(path.resolve(), aside)
    if problem is not None:
        aside.unlink(missing_ok=True)
    return problem or aside


def _decode(path: Path, aside: Path) -> Problem | None:
    """Write the first audio track as mono 16-bit FLAC at its sample rate; return a problem or None."""
    timeout = _TIMEOUT_S + _TIMEOUT_PER_MB_S * path.stat().st_size / 1e6
    argv = [sys.executable, "-P", str(_DECODER), str(path), str(aside), str(timeout), str(_MAX_DECODED_BYTES)]
    answer = subprocess.run(argv, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if answer.returncode == -signal.SIGALRM:
        return "unreadable_audio", f"decoding took more than {timeout:.0f} s"
    if answer.returncode:
        lines = answer.stderr.strip().splitlines() or ["unknown reason"]
        reason = f"the decoder failed, {lines[-1].rpartition(': ')[2][:200]}, status {answer.returncode}"
        return "unreadable_audio", f"{reason}; replace the file"
    code, reason = json.loads(answer.stdout)
    if code == "disk_full":
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(aside))
    return (code, reason) if code else None


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

    Args:
        targets: the file of each part.
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
                while position < first and len(
                    skipped := _read_mono(file, min(_BLOCK_S * rate, first - position))
                ):
                    position += len(skipped)
                samples = _read_mono(file, max(0, last - position))
                position += len(samples)
                soundfile.write(
                    targets[number], np.clip(samples, -1, 1), rate, format="FLAC", subtype="PCM_16"
                )
                durations[number] = len(samples) / rate
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


def _read_mono(file: soundfile.SoundFile, num_frames: int) -> NDArray[np.float32]:
    samples = file.read(num_frames, dtype="float32", always_2d=True)  # (S, channels)
    mono: NDArray[np.float32] = samples.mean(axis=1, dtype=np.float32)  # (S,)
    return mono
