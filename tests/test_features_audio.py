"""Tests of indextts/features/audio.py: problems of recordings."""

import pickle
import struct
from pathlib import Path

import numpy as np
import pytest
import soundfile

from indextts.features.audio import RecordingError, audio_duration_s, load_audio

RATE_HZ = 24_000


def write_noise(path: Path, duration_s: float = 2.0, num_channels: int = 1, **kind: str) -> Path:
    noise = np.random.default_rng(0).normal(0, 0.1, (round(duration_s * RATE_HZ), num_channels))
    soundfile.write(path, noise, RATE_HZ, **kind)
    return path


def problem_of(path: Path, **limits: float) -> RecordingError:
    with pytest.raises(RecordingError) as caught:
        load_audio(path, RATE_HZ, **limits)
    return caught.value


@pytest.mark.parametrize("suffix", ["wav", "aiff", "au", "w64", "flac", "ogg", "mp3"])
@pytest.mark.parametrize("share", [0.3, 0.9])
def test_a_truncated_file_is_detected_by_its_header_or_by_decoding(tmp_path, suffix, share):
    path = write_noise(tmp_path / f"a.{suffix}")
    assert len(load_audio(path, RATE_HZ)) == 2 * RATE_HZ
    assert audio_duration_s(path) == 2.0
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])
    assert problem_of(path).code == ("unreadable" if suffix == "flac" else "truncated")
    with pytest.raises(RecordingError):
        audio_duration_s(path)


def with_size_of_samples(path: Path, num_bytes: int) -> Path:
    content = bytearray(path.read_bytes())
    start = content.index(b"data") + 4
    content[start : start + 4] = struct.pack("<I", num_bytes)
    path.write_bytes(content)
    return path


def test_the_placeholder_size_of_a_piped_file_is_accepted(tmp_path):
    for placeholder in (0xFFFFFFFF, 0x7FFFFFFF, 0x7FFFF000):
        path = with_size_of_samples(write_noise(tmp_path / "a.wav"), placeholder)
        assert audio_duration_s(path) == 2.0
        assert len(load_audio(path, RATE_HZ)) == 2 * RATE_HZ


def test_a_few_missing_samples_are_accepted(tmp_path):
    path = write_noise(tmp_path / "a.wav")
    path.write_bytes(path.read_bytes()[:-8])
    assert len(load_audio(path, RATE_HZ)) == 2 * RATE_HZ - 4


def test_a_too_long_recording_is_recognised_by_its_header(tmp_path):
    path = write_noise(tmp_path / "a.flac", duration_s=40)
    content = path.read_bytes()
    path.write_bytes(content[:8192] + bytes(len(content) - 8192))  # decoding it fails
    assert problem_of(path, max_duration_s=36.3).code == "too_long"
    assert problem_of(path, max_duration_s=41).code == "unreadable"


def test_a_file_without_a_length_is_unreadable(tmp_path):
    path = write_noise(tmp_path / "a.flac")
    content = bytearray(path.read_bytes())
    content[21] &= 0xF0  # the 36 bits of the number of samples, in the first block of a FLAC file
    content[22:26] = bytes(4)
    path.write_bytes(content)
    assert problem_of(path).code == "unreadable"


def test_too_many_channels_are_refused(tmp_path):
    path = write_noise(tmp_path / "a.wav", duration_s=0.1, num_channels=64)
    assert "64 channels" in problem_of(path).reason


def test_a_recording_error_can_be_pickled(tmp_path):
    problem = problem_of(tmp_path / "a.wav")
    assert problem.code == "missing"
    copied = pickle.loads(pickle.dumps(problem))
    assert (str(copied), copied.code, copied.reason) == (str(problem), problem.code, problem.reason)
