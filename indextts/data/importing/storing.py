"""The work on one recording: its copy, or its clips, written aside under names that no import keeps.

Many recordings are worked on at a time, in threads: copying, hashing, decoding and the speech detector all
let other threads run.

Taking finished recordings into the project: ids, file names, journal, and what was there before.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from indextts.commands.data import ImportDataset
from indextts.data.importing.audio_files import as_readable
from indextts.data.importing.found import Found, Rejection, Where, cut_id, distinct, file_name, safe_suffix
from indextts.data.importing.journal import UNKNOWN_SOURCE, Clip, Entry, Journal, in_order
from indextts.data.importing.long_recordings import Cut, Limits, plan_clips, read_cues, write_cuts
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


class Keeper:
    """Keeps the project whole while recordings come in, one after another, in the order of their source."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.num_added = self.num_changed = self.num_unchanged = self.num_pruned = self.num_gone = 0
        self.has_new_files = False
        self._owner_of: dict[str, tuple[str, str]] = {}  # of ids of clips and of recordings that were cut
        self._stamps: dict[tuple[str, str], tuple[object, ...]] = {}
        for name, entry in journal.entries.items():
            self._own(name, entry)

    @property
    def num_usable(self) -> int:
        return self.num_added + self.num_changed + self.num_unchanged

    def is_same(self, source: str, found: Found, stamp: tuple[object, ...]) -> bool:
        """Tell whether the files of a recording are in the project as they are now; notes the stamp."""
        self._stamps[source, found.key] = stamp
        entry = self.journal.entries.get((source, found.key))
        return (
            entry is not None
            and entry.stamp == stamp
            and all((self.journal.audio / clip.audio).is_file() for clip in entry.clips)
        )

    def take_in(self, source: str, root: Path, found: Found, made: Made | None) -> list[Rejection]:
        """Put a recording into the project; return why it cannot be, if so.

        Args:
            made: None for one whose files are there already; its text and speaker may differ.
        """
        name = (source, found.key)
        if made is None:
            self._take_texts(name, found)
            return []
        if not made.files:
            return made.rejections
        before = self.journal.entries.get(name)
        id, other = self._id_for(name, found, made.sha256)
        if other is not None:
            for file in made.files:
                file.aside.unlink()
            return self._compared(found, other)
        records = tuple(_without_source(rejection.record(source, root)) for rejection in made.rejections)
        clips = tuple(self._put_away(id, found, made))
        entry = Entry(source, found.key, self._stamps[name], made.sha256, clips, records)
        if before is None:
            self.num_added += len(clips)
        elif before.sha256 == made.sha256 and before.clips == clips:
            self.num_unchanged += len(clips)
        else:
            self.num_changed += len(clips)
            self._remove_files(set(_files(before)) - set(_files(entry)))
        self.journal.add(entry)
        self._own(name, entry)
        return []

    def finish(self, source: str, keys: Sequence[str], *, prune: bool) -> None:
        """Put a source's entries into its order; with `prune`, forget those that it holds no more."""
        in_order(self.journal, source, keys)
        gone = {name for name in self.journal.entries if name[0] == source} - {(source, key) for key in keys}
        for name in gone:
            if prune:
                entry = self.journal.entries.pop(name)
                self.num_pruned += len(entry.clips)
                self.journal.manifest.unlink(missing_ok=True)
                self._remove_files(_files(entry))
            else:
                self.num_gone += 1

    def rejected_of(self, source: str) -> Iterator[dict[str, object]]:
        """Yield what was refused of recordings of which the rest is in the project."""
        for name, entry in self.journal.entries.items():
            if name[0] == source:
                yield from entry.rejected

    def _own(self, name: tuple[str, str], entry: Entry) -> None:
        for clip in entry.clips:
            self._owner_of[clip.id] = name
            if clip.recording is not None and clip.id.startswith(f"{clip.recording}_"):  # cut here
                self._owner_of[clip.recording] = name

    def _id_for(self, name: tuple[str, str], found: Found, sha256: str) -> tuple[str, Entry | None]:
        """Return an id that no other recording has, or the entry of the same recording under that id."""
        for id in (found.id, distinct(found.id, sha256)):
            owner = self._owner_of.get(id)
            if owner is None or owner == name:
                return id, None
            entry = self.journal.entries[owner]
            if self._sha256(entry) == sha256:
                return id, entry
        raise AssertionError(f"two recordings with the digest {sha256}")

    def _sha256(self, entry: Entry) -> str:
        """Return the digest of an entry's recording; one that was taken over has none yet."""
        if entry.source != UNKNOWN_SOURCE or not entry.clips:
            return entry.sha256
        with (self.journal.audio / entry.clips[0].audio).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def _compared(self, found: Found, other: Entry) -> list[Rejection]:
        """Count a recording that another source brought already, unless it says another text."""
        if found.subtitles is None and [clip.text for clip in other.clips] != [found.text]:
            reason = f"this recording is in the project with another text, from {other.source or 'before'}"
            return [Rejection(found.where, "other_text", reason)]
        self.num_unchanged += len(other.clips)
        return []

    def _put_away(self, id: str, found: Found, made: Made) -> Iterator[Clip]:
        """Give the files their names and yield the clips."""
        assert found.speaker is not None
        assert found.language is not None
        for file in made.files:
            clip_id, text, speaker, recording = id, found.text, found.speaker, found.recording
            if file.cut is not None:
                clip_id, text, recording = cut_id(id, file.cut.start_s), file.cut.text, id
                speaker = file.cut.voice or speaker
                if self._owner_of.get(clip_id, (None, found.key))[1] != found.key:
                    clip_id = distinct(clip_id, made.sha256)
            name = file_name(clip_id, file.suffix)
            target = self.journal.audio / name
            if target.exists():
                self.journal.manifest.unlink(missing_ok=True)  # it would not fit the files while they change
            file.aside.replace(target)
            self.has_new_files = True
            yield Clip(clip_id, name, text, speaker, file.duration_s, found.language, recording)

    def _take_texts(self, name: tuple[str, str], found: Found) -> None:
        """Give the clip of an unchanged recording the text and speaker that its row has now."""
        entry = self.journal.entries[name]
        clips = entry.clips
        if found.subtitles is None:
            assert found.speaker is not None
            assert found.language is not None
            clips = tuple(
                replace(
                    clip,
                    text=found.text,
                    speaker=found.speaker,
                    language=found.language,
                    recording=found.recording,
                )
                for clip in entry.clips
            )
        if clips == entry.clips:
            self.num_unchanged += len(clips)
        else:
            self.num_changed += len(clips)
            self.journal.add(replace(entry, clips=clips))

    def _remove_files(self, names: Iterable[str]) -> None:
        for name in names:
            (self.journal.audio / name).unlink(missing_ok=True)


def _files(entry: Entry) -> list[str]:
    return [clip.audio for clip in entry.clips]


def _without_source(record: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in record.items() if name != "source"}
