"""Audio files of a source: where a row's recording lies, and reading what libsndfile cannot.

What libsndfile does not read, ffmpeg does if it is installed: its whole sound becomes a FLAC file. ffmpeg is
given a file and nothing else: other protocols and the playlist formats, which can name any file of this
machine, are switched off.
"""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import soundfile

from indextts.data.importing.found import AUDIO_SUFFIXES, SNDFILE_SUFFIXES
from indextts.errors import UserError
from indextts.features.audio import audio_duration_s

# Containers and streams that hold the sound themselves; hls, concat, dash and the like are left out.
_FFMPEG_FORMATS = (
    "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi,asf,flv,mpeg,mpegts,aac,amr,amrnb,amrwb,ac3,eac3,mp3,ogg,wav,"
    "flac,caf,aiff,au,w64"
)
_SECONDS_TO_BEGIN = 60.0
_SECONDS_PER_MB = 2.0  # a slow disk and an old processor
_MAX_DECODED_BYTES = 8 * 2**30

Trouble = tuple[str, str]  # code and reason of a rejection


class AudioFinder:
    """Finds the recordings that rows name, inside of the folders that may be read.

    Args:
        allowed: resolved folders; none for the whole machine.
    """

    USUAL_FOLDERS: ClassVar[tuple[str, ...]] = ("wavs", "wav", "audio", "clips")

    def __init__(self, allowed: Sequence[Path] = ()) -> None:
        self.allowed = tuple(folder.resolve() for folder in allowed)

    def find(self, named: str, folders: Sequence[Path]) -> Path | Trouble:
        """Return the recording that a row names, with or without its suffix, or why there is none."""
        for folder in folders:
            for place in (folder, *(folder / usual for usual in self.USUAL_FOLDERS)):
                for written in dict.fromkeys((named, named.replace("\\", "/"))):  # as on Windows
                    path = _existing(place / written)
                    if path is not None:
                        return path if self.may_read(path) else self._outside(named)
        if not self.may_read(folders[-1] / named):
            return self._outside(named)
        return "missing_audio", f"{named}: there is no such recording, restore it or remove its row"

    def may_read(self, path: Path) -> bool:
        """Tell whether the file, symlinks followed, lies inside of the allowed folders."""
        if not self.allowed:
            return True
        try:
            real = path.resolve()
        except (OSError, RuntimeError):  # links in a circle
            return False
        return any(real.is_relative_to(folder) for folder in self.allowed)

    @staticmethod
    def _outside(named: str) -> Trouble:
        return "outside", f"{named} lies outside of the folders that may be read"


def _existing(path: Path) -> Path | None:
    """Return the file, or the one audio file of that name with a suffix, lower or upper case."""
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
    except (OSError, ValueError):  # too long, or nothing that can be a name
        pass
    return None


def _preference(suffix: str) -> tuple[bool, bool, str]:
    return suffix not in SNDFILE_SUFFIXES, suffix not in (".wav", ".flac"), suffix


def readable_by_libsndfile(path: Path) -> bool:
    """Tell whether libsndfile knows the format; the file may still break off."""
    try:
        soundfile.info(path)
    except soundfile.LibsndfileError:
        return False
    return True


def as_readable(path: Path, aside: Path) -> Path | Trouble:
    """Return a file that libsndfile reads with the sound of `path`: itself, or `aside`, decoded by ffmpeg."""
    if path.suffix.lower() == ".raw" or readable_by_libsndfile(path):
        try:
            audio_duration_s(path)
        except UserError as error:
            return "unreadable_audio", str(error).removeprefix(f"{path}: ")
        return path
    if path.stat().st_size == 0:
        return "unreadable_audio", "the file is empty, replace it"
    if shutil.which("ffmpeg") is None or shutil.which("ffprobe") is None:
        return "unreadable_audio", "no format that libsndfile reads; install ffmpeg, or replace the file"
    trouble = _decode(path.resolve(), aside)
    return trouble or aside


def _decode(path: Path, aside: Path) -> Trouble | None:
    """Write the first sound track of a file as FLAC, mono and 16 bit, at the rate that it has."""
    limits = ["-protocol_whitelist", "file", "-format_whitelist", _FFMPEG_FORMATS]
    timeout = _SECONDS_TO_BEGIN + _SECONDS_PER_MB * path.stat().st_size / 1e6
    probe = ["ffprobe", "-v", "error", *limits, "-select_streams", "a", "-show_entries", "stream=index"]
    try:
        answer = _run([*probe, "-of", "csv=p=0", "-i", f"file:{path}"], timeout)
        if answer.returncode:
            return "unreadable_audio", f"neither libsndfile nor ffmpeg reads it ({_last_line(answer.stderr)})"
        if not answer.stdout.strip():
            return "no_sound", "there is no sound in the file"
        # "file:" before the names: a name that begins with a dash or holds a colon is still a name.
        decode = ["ffmpeg", "-nostdin", "-v", "error", *limits, "-i", f"file:{path}", "-map", "0:a:0"]
        decode += ["-ac", "1", "-sample_fmt", "s16", "-c:a", "flac", "-fs", str(_MAX_DECODED_BYTES)]
        answer = _run([*decode, "-f", "flac", "-y", f"file:{aside}"], timeout)
        if answer.returncode:
            return "unreadable_audio", f"ffmpeg cannot decode it ({_last_line(answer.stderr)})"
        audio_duration_s(aside)
    except subprocess.TimeoutExpired:
        return "unreadable_audio", f"ffmpeg needed more than {timeout:.0f} s"
    except UserError:
        return "no_sound", "the sound track is empty"
    return None


def _run(argv: list[str], timeout: float) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv, capture_output=True, text=True, errors="replace", timeout=timeout, stdin=subprocess.DEVNULL
    )


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1].rpartition(": ")[2][:200] if lines else "no reason given"
