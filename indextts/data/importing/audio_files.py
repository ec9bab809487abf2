"""Find the audio files of a source, and decode those that libsndfile cannot read.

PyAV decodes other formats to FLAC, in a process of its own (track_decoder.py); ffmpeg, if it is installed,
decodes what PyAV cannot. Both may only open the given file: other protocols and playlist formats, which can
refer to any file of this machine, are disabled.
"""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import soundfile

from indextts.data.importing.inner_archives import InnerArchives
from indextts.data.importing.items import AUDIO_SUFFIXES, SNDFILE_SUFFIXES
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
_PYAV_PROGRAM = Path(__file__).with_name("track_decoder.py")

Problem = tuple[str, str]  # code and reason of a rejection


class AudioFinder:
    """Finder of the recordings of rows, within allowed folders.

    Args:
        allowed: the allowed folders; empty for the entire machine.
        archives: those in the source, which are searched if a folder does not have a recording.
    """

    USUAL_FOLDERS: ClassVar[tuple[str, ...]] = ("wavs", "wav", "audio", "clips")

    def __init__(self, allowed: Sequence[Path] = (), archives: InnerArchives | None = None) -> None:
        self.allowed = tuple(folder.resolve() for folder in allowed)
        self.archives = archives

    def find(self, named: str, folders: Sequence[Path]) -> Path | Problem:
        """Return the recording for the name in a row, with or without suffix, or the problem.

        Raises:
            UserError: an archive of the source is corrupt or refused.
        """
        path = self._find(named, folders) or self._find(named, self._unpacked(folders))
        if path is not None:
            return path if self.may_read(path) else self._outside(named)
        if not self.may_read(folders[-1] / named):
            return self._outside(named)
        return "missing_audio", f"{named}: the recording does not exist; restore it or remove its row"

    def folders_in(self, folder: Path, depth: int) -> list[Path]:
        """Return a folder of the source and those in it, also from archives."""
        places = [folder, *self._unpacked([folder])]
        return [
            found
            for place in places
            for level in range(depth + 1)
            for found in ([place] if level == 0 else sorted(place.glob("*/" * level)))
        ]

    def _find(self, named: str, folders: Sequence[Path]) -> Path | None:
        for folder in folders:
            for place in (folder, *(folder / usual for usual in self.USUAL_FOLDERS)):
                for written in dict.fromkeys((named, named.replace("\\", "/"))):  # Windows paths
                    path = _existing(place / written)
                    if path is not None:
                        return path
        return None

    def _unpacked(self, folders: Sequence[Path]) -> list[Path]:
        if self.archives is None:
            return []
        return [place for folder in folders if (place := self.archives.unpacked(folder)) is not None]

    def may_read(self, path: Path) -> bool:
        """Return whether the file, after resolving symlinks, is within the allowed folders."""
        if not self.allowed:
            return True
        unpacked = self.archives.folder if self.archives is not None else None
        allowed = (*self.allowed, unpacked) if unpacked is not None else self.allowed
        try:
            real = path.resolve()
        except (OSError, RuntimeError):  # a symlink loop
            return False
        return any(real.is_relative_to(folder) for folder in allowed)

    @staticmethod
    def _outside(named: str) -> Problem:
        return "outside", f"{named} is outside the allowed folders"


def _existing(path: Path) -> Path | None:
    """Return the file, or the preferred audio file of that name with a suffix in lower or upper case."""
    try:
        if path.is_file():
            return path
        if path.suffix.lower() in AUDIO_SUFFIXES:
            return None
        for suffix in sorted(AUDIO_SUFFIXES, key=_preference):
            for spelled in (suffix, suffix.upper()):
                with_suffix = path.with_name(path.name + spelled)
                if with_suffix.is_file():
                    return with_suffix
    except (OSError, ValueError):  # a name that is too long or invalid
        pass
    return None


def _preference(suffix: str) -> tuple[bool, bool, str]:
    return suffix not in SNDFILE_SUFFIXES, suffix not in (".wav", ".flac"), suffix


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
    code, reason = _decode_with_pyav(path, aside, timeout)
    if code == "ok":
        return None
    if code == "disk_full":
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(aside))
    if code != "unreadable":
        return "no_sound" if code == "no_sound" else "unreadable_audio", reason
    if shutil.which("ffmpeg") is None or shutil.which("ffprobe") is None:
        reason = f"neither libsndfile nor PyAV can read it ({reason}); replace the file or install ffmpeg"
        return "unreadable_audio", reason
    return _decode_with_ffmpeg(path, aside, timeout)


def _decode_with_pyav(path: Path, aside: Path, timeout: float) -> tuple[str, str]:
    """Return code and reason as track_decoder.py prints them."""
    argv = [sys.executable, "-P", str(_PYAV_PROGRAM), str(path), str(aside), _FORMATS, str(timeout)]
    answer = subprocess.run(
        [*argv, str(_MAX_DECODED_BYTES)], capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    if answer.returncode == -signal.SIGALRM:
        return "refused", f"decoding took more than {timeout:.0f} s"
    if answer.returncode:
        return "unreadable", f"the decoder failed, {_last_line(answer.stderr)}, status {answer.returncode}"
    result = json.loads(answer.stdout)
    return result["code"], result["reason"]


def _decode_with_ffmpeg(path: Path, aside: Path, timeout: float) -> Problem | None:
    limits = ["-protocol_whitelist", "file", "-format_whitelist", _FORMATS]
    probe = ["ffprobe", "-v", "error", *limits, "-select_streams", "a", "-show_entries", "stream=index"]
    try:
        answer = _run([*probe, "-of", "csv=p=0", "-i", f"file:{path}"], timeout)
        if answer.returncode:
            reason = f"libsndfile, PyAV and ffmpeg cannot read it ({_last_line(answer.stderr)})"
            return "unreadable_audio", reason
        if not answer.stdout.strip():
            return "no_sound", "the file has no audio track"
        # "file:" prefix: names may start with a dash or contain a colon.
        decode = ["ffmpeg", "-nostdin", "-v", "error", *limits, "-i", f"file:{path}", "-map", "0:a:0"]
        decode += ["-ac", "1", "-sample_fmt", "s16", "-c:a", "flac", "-fs", str(_MAX_DECODED_BYTES)]
        answer = _run([*decode, "-f", "flac", "-y", f"file:{aside}"], timeout)
        if answer.returncode:
            return "unreadable_audio", f"ffmpeg cannot decode it ({_last_line(answer.stderr)})"
        audio_duration_s(aside)
    except subprocess.TimeoutExpired:
        return "unreadable_audio", f"ffmpeg took more than {timeout:.0f} s"
    except UserError:
        return "no_sound", "the audio track is empty"
    return None


def _run(argv: list[str], timeout: float) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv, capture_output=True, text=True, errors="replace", timeout=timeout, stdin=subprocess.DEVNULL
    )


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1].rpartition(": ")[2][:200] if lines else "unknown reason"
