"""Decode the audio files that libsndfile cannot read.

PyAV decodes other formats to FLAC, in a separate process (track_decoder.py). It may only open the given
file: other protocols and playlist formats, which can refer to any file of this machine, are disabled.
"""

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import soundfile

from indextts.data.importing.items import Problem
from indextts.errors import UserError
from indextts.features.audio import audio_duration_s

# Formats that contain the audio itself; playlist formats such as hls, concat and dash are excluded.
_FORMATS = (
    "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi,asf,flv,mpeg,mpegts,aac,amr,amrnb,amrwb,ac3,eac3,mp3,ogg,wav,"
    "flac,caf,aiff,au,w64"
)
_TIMEOUT_S = 60.0
_TIMEOUT_PER_MB_S = 2.0  # for a slow disk and an old processor
_MAX_DECODED_BYTES = 8 * 2**30
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
    argv = [sys.executable, "-P", str(_DECODER), str(path), str(aside), _FORMATS, str(timeout)]
    answer = subprocess.run(
        [*argv, str(_MAX_DECODED_BYTES)], capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    if answer.returncode == -signal.SIGALRM:
        return "unreadable_audio", f"decoding took more than {timeout:.0f} s"
    if answer.returncode:
        lines = answer.stderr.strip().splitlines() or ["unknown reason"]
        reason = f"the decoder failed, {lines[-1].rpartition(': ')[2][:200]}, status {answer.returncode}"
        return "unreadable_audio", f"{reason}; replace the file"
    result = json.loads(answer.stdout)
    code, reason = result["code"], result["reason"]
    if code == "disk_full":
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(aside))
    if code == "unreadable":
        return "unreadable_audio", f"neither libsndfile nor PyAV can read it ({reason}); replace the file"
    return None if code == "ok" else ("no_sound" if code == "no_sound" else "unreadable_audio", reason)
