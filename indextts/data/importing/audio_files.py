"""Find the audio files of a source, and decode those that libsndfile cannot read.

PyAV decodes other formats to FLAC, in a separate process (track_decoder.py). It may only open the given
file: other protocols and playlist formats, which can refer to any file of this machine, are disabled.
"""

import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import ClassVar

import soundfile

from indextts.data.importing.archive import InnerArchives
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
_DECODER = Path(__file__).with_name("track_decoder.py")

Problem = tuple[str, str]  # code and reason of a rejection


class AudioFinder:
    """Finder of the recordings of rows, within allowed folders. Each folder is listed only once.

    Args:
        allowed: the allowed folders; empty for the entire machine.
        archives: those in the source, which are searched if a folder does not have a recording.
        files_in: returns the names of the files in a folder; empty if it does not exist.
    """

    USUAL_FOLDERS: ClassVar[tuple[str, ...]] = ("wavs", "wav", "audio", "clips")

    def __init__(
        self,
        allowed: Sequence[Path] = (),
        archives: InnerArchives | None = None,
        files_in: Callable[[Path], Iterable[str]] | None = None,
    ) -> None:
        self.allowed = tuple(folder.resolve() for folder in allowed)
        self.archives = archives
        self._files_in = files_in or _files_on_disk
        self._listed: dict[Path, dict[str, str]] = {}

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
                    path = Path(os.path.normpath(place / written))
                    name = self._names(path.parent).get(path.name)
                    if name is not None:
                        return path.with_name(name)
        return None

    def _names(self, folder: Path) -> dict[str, str]:
        """Return the files of a folder by name, and audio files by their name without suffix too."""
        if folder not in self._listed:
            names = sorted(self._files_in(folder), key=_preference, reverse=True)
            audio = {Path(name).stem: name for name in names if Path(name).suffix.lower() in AUDIO_SUFFIXES}
            self._listed[folder] = audio | {name: name for name in names}
        return self._listed[folder]

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
        except (OSError, RuntimeError, ValueError):  # a symlink loop, or no valid name
            return False
        return any(real.is_relative_to(folder) for folder in allowed)

    @staticmethod
    def _outside(named: str) -> Problem:
        return "outside", f"{named} is outside the allowed folders"


def _files_on_disk(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            # an entry's own is_file() fails for a symlink that leads to itself
            return [
                each.name for each in entries if each.is_file(follow_symlinks=False) or Path(each).is_file()
            ]
    except (OSError, ValueError):  # it does not exist, or is no valid name
        return []


def _preference(name: str) -> tuple[bool, bool, str]:
    """Return the rank of a recording among those of the same name with other suffixes."""
    suffix = Path(name).suffix
    lower = suffix.lower()
    return lower not in SNDFILE_SUFFIXES, lower not in (".wav", ".flac"), lower


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
