"""The work on one recording: its copy, or its clips, written aside under names that no import keeps.

Many recordings are worked on at a time, in threads: copying, hashing, decoding and the speech detector all
let other threads run.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from indextts.commands.data import ImportDataset
from indextts.data.importing.audio_files import as_readable
from indextts.data.importing.cutting import Cut, Limits
from indextts.data.importing.found import Found, Rejection, Where
from indextts.data.importing.long_recordings import plan_clips, read_cues, write_cuts
from indextts.data.importing.names import safe_suffix
from indextts.errors import UserError
from indextts.features.audio import audio_duration_s

ASIDE_PREFIX = ".part-"
CUTTING_VERSION = 1  # a change of the rules cuts what was imported before anew
_BLOCK_BYTES = 2**20


@dataclass(frozen=True)
class MadeFile:
    """A file that was written aside; `cut` for a clip of a long recording."""

    aside: Path
    suffix: str
    duration_s: float
    cut: Cut | None = None


@dataclass(frozen=True)
class Made:
    """What became of a recording; no files and a rejection where it cannot be used."""

    sha256: str
    files: list[MadeFile]
    rejections: list[Rejection]


def stamp_of(found: Found, command: ImportDataset) -> tuple[object, ...]:
    """Return what tells whether the work on a recording would give the same again.

    Raises:
        OSError: a file is not there.
    """
    files = [found.audio] if found.subtitles is None else [found.audio, found.subtitles]
    stamps: list[object] = [(status.st_size, status.st_mtime_ns) for status in map(Path.stat, files)]
    if found.subtitles is not None:
        stamps.append(
            (CUTTING_VERSION, command.min_clip_s, command.max_clip_s, found.language, found.speaker)
        )
    return tuple(stamps)


def make(found: Found, limits: Limits, folder: Path, number: int) -> Made:
    """Write the files of a recording aside in `folder`.

    Args:
        number: of the recording, for the names.

    Raises:
        OSError: `folder` cannot be written.
    """
    decoded = folder / f"{ASIDE_PREFIX}{number}-whole.flac"
    try:
        sha256 = _sha256(found.audio)
    except OSError as error:
        return Made("", [], [_unreadable(found, error.strerror or str(error))])
    readable = as_readable(found.audio, decoded)
    if isinstance(readable, tuple):
        return Made(sha256, [], [Rejection(Where(found.audio), *readable)])
    if found.subtitles is None:
        return _make_clip(found, readable, decoded, sha256, folder / f"{ASIDE_PREFIX}{number}")
    assert found.language is not None
    try:
        cues, is_rolling, refused = read_cues(found.subtitles, found.audio, found.language)
        if not cues:
            return Made(sha256, [], refused)
        cuts, rejections = plan_clips(readable, found.subtitles, cues, limits, is_rolling=is_rolling)
        target = f"{ASIDE_PREFIX}{number}-{{}}.flac"
        durations = write_cuts(readable, cuts, lambda index: folder / target.format(index))
    finally:
        decoded.unlink(missing_ok=True)
    files = [
        MadeFile(folder / target.format(index), ".flac", duration, cut)
        for index, (cut, duration) in enumerate(zip(cuts, durations, strict=True))
    ]
    return Made(sha256, files, [*refused, *rejections])


def _make_clip(found: Found, readable: Path, decoded: Path, sha256: str, aside: Path) -> Made:
    if readable == decoded:
        return Made(sha256, [MadeFile(decoded, ".flac", audio_duration_s(decoded))], [])
    copy = aside.with_name(aside.name + safe_suffix(readable.suffix))
    sha256 = _copy(readable, copy)
    try:
        duration_s = audio_duration_s(copy)
    except UserError as error:  # it changed while it was copied
        copy.unlink()
        return Made(sha256, [], [_unreadable(found, str(error).removeprefix(f"{copy}: "))])
    return Made(sha256, [MadeFile(copy, copy.suffix, duration_s)], [])


def _copy(source: Path, target: Path) -> str:
    """Copy a file; return the sha256 of what was copied."""
    digest = hashlib.sha256()
    with source.open("rb") as reader, target.open("wb") as writer:
        while block := reader.read(_BLOCK_BYTES):
            digest.update(block)
            writer.write(block)
    return digest.hexdigest()


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _unreadable(found: Found, reason: str) -> Rejection:
    return Rejection(Where(found.audio), "unreadable_audio", reason)
