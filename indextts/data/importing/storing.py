"""Transcode recordings to temporary files, and store them in the project.

Threads transcode several recordings at a time: copying, hashing, decoding and speech detection release the
GIL. The main thread then stores the results in order: ids, file names and journal.
"""

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

from indextts.commands.data import ImportDataset
from indextts.data.importing.aligning import ALIGNING_VERSION, Aligner, readings_of_text
from indextts.data.importing.audio_files import as_readable
from indextts.data.importing.cleaning import CLEANING_VERSION, Cleaning
from indextts.data.importing.items import (
    Location,
    Rejection,
    SourceRecording,
    cut_id,
    distinct,
    file_name,
    safe_suffix,
    source_name,
)
from indextts.data.importing.journal import UNKNOWN_SOURCE, Clip, Entry, Journal, sort_entries
from indextts.data.importing.long_recordings import Cut, Limits, plan_clips, read_cues, write_cuts
from indextts.data.importing.output_files import OutputFile, finished_clip, link_target
from indextts.errors import UserError
from indextts.features.audio import audio_duration_s
from indextts.system.digest import file_sha256

ASIDE_PREFIX = ".part-"
CUTTING_VERSION = 1  # raise it when the rules change, to cut imported recordings again
MIN_SPAN_SHARE = 0.5  # of a span that the recording must have; ends are often rounded up
_BLOCK_BYTES = 2**20


@dataclass(frozen=True)
class Transcoded:
    """Result of transcoding a recording: files, or only rejections if it is unusable."""

    sha256: str
    files: list[OutputFile]
    rejections: list[Rejection]


def recording_stamp(found: SourceRecording, command: ImportDataset) -> tuple[object, ...]:
    """Return a stamp that changes when transcoding a recording would give another result.

    Raises:
        OSError: a file does not exist.
        UserError: the table of readings cannot be used.
    """
    text_file = found.text_file if command.asr else None
    files = [file for file in (found.audio, found.subtitles, text_file) if file is not None]
    stamps: list[object] = [(status.st_size, status.st_mtime_ns) for status in map(Path.stat, files)]
    if found.subtitles is not None:
        stamps.append(
            (CUTTING_VERSION, command.min_clip_s, command.max_clip_s, found.language, found.speaker)
        )
    elif Cleaning.of(command).is_wanted:
        stamps.append(("clean", CLEANING_VERSION, command.trim, command.loudness))
    if text_file is not None:
        clips = command.min_clip_s, command.max_clip_s
        stamps.append(("align", ALIGNING_VERSION, command.asr, *clips, found.language, found.speaker))
        stamps += readings_of_text(command, text_file, found.language or command.language)
    if found.span is not None:
        stamps.append(found.span)
    if found.embedded is not None:
        stamps.append((found.embedded.column, found.embedded.row))
    if (link := link_target(found, command)) is not None:
        stamps.append(("link", str(link)))
    return tuple(stamps)


def transcode(
    found: SourceRecording, command: ImportDataset, folder: Path, number: int, aligner: Aligner | None = None
) -> Transcoded:
    """Write temporary files of a recording in `folder`, or link to it.

    Args:
        number: the index of the recording, for the file names.
        aligner: cuts long recordings with a text.

    Raises:
        OSError: `folder` cannot be written.
        UserError: the recognizer of the aligner cannot be used.
    """
    decoded = folder / f"{ASIDE_PREFIX}{number}-decoded.flac"
    try:
        sha256 = file_sha256(found.audio)
    except OSError as error:
        return Transcoded("", [], [_unreadable(found, error.strerror or str(error))])
    readable = as_readable(found.audio, decoded)
    if isinstance(readable, tuple):
        return Transcoded(sha256, [], [Rejection(Location(found.audio), *readable)])
    if found.text_file is not None and aligner is not None and aligner.is_long(readable):
        try:
            return _transcode_aligned(found, readable, sha256, aligner, folder / f"{ASIDE_PREFIX}{number}")
        finally:
            decoded.unlink(missing_ok=True)
    if found.text_file is not None and not found.text:
        decoded.unlink(missing_ok=True)
        reason = "the text is too long for a clip; pass --asr to find when its sentences are spoken"
        return Transcoded(sha256, [], [Rejection(found.where, "line_too_long", reason)])
    if found.subtitles is None:
        link, aside = link_target(found, command), folder / f"{ASIDE_PREFIX}{number}"
        if found.span is not None:
            clip = _transcode_span(found, readable, decoded, sha256, aside.with_name(f"{aside.name}.flac"))
        elif link is not None and readable == found.audio:
            clip = Transcoded(sha256, [OutputFile(None, "", audio_duration_s(readable), link=link)], [])
        else:
            clip = _transcode_clip(found, readable, decoded, sha256, aside)
        return _finished(clip, found, command, aside.with_name(f"{aside.name}-clean.flac"))
    assert found.language is not None
    limits = Limits(command.min_clip_s, command.max_clip_s)
    try:
        cues, is_rolling, refused = read_cues(found.subtitles, found.audio, found.language)
        if not cues:
            return Transcoded(sha256, [], refused)
        cuts, rejections = plan_clips(readable, found.subtitles, cues, limits, is_rolling=is_rolling)
        files = _write_files(readable, cuts, folder / f"{ASIDE_PREFIX}{number}")
    finally:
        decoded.unlink(missing_ok=True)
    return Transcoded(sha256, files, [*refused, *rejections])


def _transcode_aligned(
    found: SourceRecording, readable: Path, sha256: str, aligner: Aligner, aside: Path
) -> Transcoded:
    assert found.language is not None
    assert found.text_file is not None
    costs = aside.with_name(f"{aside.name}-costs")
    cuts, rejections = aligner.plan(readable, found.text_file, found.language, costs)
    return Transcoded(sha256, _write_files(readable, cuts, aside), rejections)


def _write_files(readable: Path, cuts: Sequence[Cut], aside: Path) -> list[OutputFile]:
    """Write the clips of a long recording; return their files."""

    def target(index: int) -> Path:
        return aside.with_name(f"{aside.name}-{index}.flac")

    durations = write_cuts(readable, cuts, target)
    return [
        OutputFile(target(index), ".flac", duration, cut)
        for index, (cut, duration) in enumerate(zip(cuts, durations, strict=True))
    ]


def _transcode_clip(
    found: SourceRecording, readable: Path, decoded: Path, sha256: str, aside: Path
) -> Transcoded:
    if readable.parent == aside.parent:  # decoded, or written there from a parquet file
        return Transcoded(sha256, [OutputFile(readable, readable.suffix, audio_duration_s(readable))], [])
    copy = aside.with_name(aside.name + safe_suffix(readable.suffix))
    sha256 = _copy(readable, copy)
    try:
        duration_s = audio_duration_s(copy)
    except UserError as error:  # the file changed during the copy
        copy.unlink()
        return Transcoded(sha256, [], [_unreadable(found, str(error).removeprefix(f"{copy}: "))])
    return Transcoded(sha256, [OutputFile(copy, copy.suffix, duration_s)], [])


def _transcode_span(
    found: SourceRecording, readable: Path, decoded: Path, sha256: str, aside: Path
) -> Transcoded:
    """Cut the span of a recording; its digest is that of the recording and the span."""
    assert found.span is not None
    start_s, end_s = found.span
    digest = hashlib.sha256(f"{sha256} {start_s} {end_s}".encode()).hexdigest()
    try:
        [duration_s] = write_cuts(readable, [Cut(start_s, end_s, found.text, line=0)], lambda _index: aside)
    finally:
        decoded.unlink(missing_ok=True)
    if duration_s < MIN_SPAN_SHARE * (end_s - start_s):
        aside.unlink()
        reason = f"{start_s:g} to {end_s:g} s is outside of the recording"
        return Transcoded(digest, [], [Rejection(found.where, "bad_time", reason)])
    return Transcoded(digest, [OutputFile(aside, ".flac", duration_s)], [])


def _finished(clip: Transcoded, found: SourceRecording, command: ImportDataset, aside: Path) -> Transcoded:
    """Finish the file of a clip, see `finished_clip`."""
    try:
        return replace(clip, files=[finished_clip(file, command, aside) for file in clip.files])
    except UserError as error:
        return Transcoded(clip.sha256, [], [_unreadable(found, str(error))])


def _copy(source: Path, target: Path) -> str:
    """Copy a file; return the sha256 of the copy."""
    digest = hashlib.sha256()
    with source.open("rb") as reader, target.open("wb") as writer:
        while block := reader.read(_BLOCK_BYTES):
            digest.update(block)
            writer.write(block)
    return digest.hexdigest()


def _unreadable(found: SourceRecording, reason: str) -> Rejection:
    return Rejection(Location(found.audio), "unreadable_audio", reason)


class ProjectStore:
    """Store of the project's recordings, which keeps journal, manifest and files consistent.

    Recordings arrive one at a time, in the order of their source.
    """

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.num_added = self.num_changed = self.num_unchanged = self.num_pruned = self.num_gone = 0
        self.num_lost = 0  # linked recordings that do not exist or cannot be read any more
        self.outcomes: Counter[str] = Counter()
        self.has_new_files = False
        self._owner_of: dict[str, tuple[str, str]] = {}  # by the id of a clip or of a cut recording
        self._is_unchanged: dict[tuple[str, str], bool] = {}  # of the recordings that were added
        self._stamps: dict[tuple[str, str], tuple[object, ...]] = {}
        for name, entry in journal.entries.items():
            self._own(name, entry)

    @property
    def num_usable(self) -> int:
        return self.num_added + self.num_changed + self.num_unchanged

    def is_current(self, source: str, found: SourceRecording, stamp: tuple[object, ...]) -> bool:
        """Return whether the project has the current files of a recording; remembers the stamp."""
        self._stamps[source, found.key] = stamp
        entry = self.journal.entries.get((source, found.key))
        return (
            entry is not None
            and entry.stamp == stamp
            and all((self.journal.audio / clip.audio).is_file() for clip in entry.clips)
        )

    def add(
        self, source: str, root: Path, found: SourceRecording, transcoded: Transcoded | None
    ) -> list[Rejection]:
        """Store a recording in the project; return its rejections.

        Args:
            transcoded: None for an unchanged recording, whose text and speaker may have changed.
        """
        name = (source, found.key)
        if transcoded is None:
            self._update_texts(name, found)
            return []
        before = self.journal.entries.get(name)
        if not transcoded.files:
            if before is not None and any(clip.is_link for clip in before.clips):
                self._lose(name)
            return transcoded.rejections
        original = cache(partial(_original, source, root, found, self.journal.folder))  # mostly not needed
        id, other = self._id_for(name, found, transcoded.sha256, original)
        if other is not None:
            for file in transcoded.files:
                file.discard()
            return self._count_duplicate(found, other)
        records = tuple(
            _without_source(rejection.record(source, root)) for rejection in transcoded.rejections
        )
        before = self.journal.entries.get(name)  # maybe just taken over
        clips = tuple(self._move_files(id, found, transcoded, original))
        if before is not None and before.sha256 == transcoded.sha256:
            clips = _with_voices_of(before.clips, clips)
        entry = Entry(source, found.key, self._stamps[name], transcoded.sha256, clips, records)
        self._is_unchanged[name] = False
        if before is None:
            self.num_added += len(clips)
        elif before.sha256 == transcoded.sha256 and before.clips == clips:
            self.num_unchanged += len(clips)
            self._is_unchanged[name] = True
        else:
            self.num_changed += len(clips)
            self._remove_files(set(_files(before)) - set(_files(entry)))
        self.journal.add(entry)
        self._own(name, entry)
        return []

    def duration_s(self, source: str, key: str) -> float:
        """Return the seconds of a recording's clips in the project."""
        entry = self.journal.entries.get((source, key))
        return sum(clip.duration for clip in entry.clips) if entry is not None else 0.0

    def finish(self, source: str, keys: Sequence[str], *, prune: bool) -> None:
        """Sort the entries of a source by `keys`; with `prune`, remove those of missing recordings."""
        sort_entries(self.journal, source, keys)
        gone = {name for name in self.journal.entries if name[0] == source} - {(source, key) for key in keys}
        for name in gone:
            if prune:
                entry = self.journal.entries.pop(name)
                self.num_pruned += len(entry.clips)
                self._remove_files(_files(entry))
            elif any(clip.is_lost for clip in self.journal.entries[name].clips):
                self._lose(name)
            else:
                self.num_gone += 1

    def count_renamed(self, renamed: Counter[tuple[str, str]]) -> None:
        """Count clips with another speaker, by their entries, as changed, but none twice."""
        for name, count in renamed.items():
            is_unchanged = self._is_unchanged.get(name)
            if is_unchanged:
                self.num_unchanged -= count
            if is_unchanged is not False:
                self.num_changed += count

    def rejected_of(self, source: str) -> Iterator[dict[str, object]]:
        """Yield the rejections of recordings that are partly in the project."""
        for name, entry in self.journal.entries.items():
            if name[0] == source:
                yield from entry.rejected

    def _own(self, name: tuple[str, str], entry: Entry) -> None:
        for clip in entry.clips:
            self._owner_of[clip.id] = name
            if clip.recording is not None and clip.id.startswith(f"{clip.recording}_"):  # cut here
                self._owner_of[clip.recording] = name

    def _id_for(
        self, name: tuple[str, str], found: SourceRecording, sha256: str, original: Callable[[], str]
    ) -> tuple[str, Entry | None]:
        """Return an id that no other recording has, or the entry of the same recording under that id.

        The entry of a lost link is removed, and one without a source that was made from `original` becomes
        that of `name`.
        """
        for id in (found.id, distinct(found.id, sha256)):
            owner = self._owner_of.get(id)
            if owner is None or owner == name or owner not in self.journal.entries:
                return id, None
            entry = self.journal.entries[owner]
            if any(clip.is_lost for clip in entry.clips):
                self._lose(owner)
                return id, None
            if self._is_row_or_member(entry, original):
                self.journal.remove(owner)
                self.journal.entries[name] = replace(entry, source=name[0], key=name[1], sha256=sha256)
                return id, None
            if self._sha256(entry) == sha256:
                return id, entry
        raise AssertionError(f"two recordings with the digest {sha256}")

    def _sha256(self, entry: Entry) -> str:
        """Return the digest of an entry's recording; one that was taken over has none yet."""
        if entry.source != UNKNOWN_SOURCE or not entry.clips:
            return entry.sha256
        [clip] = entry.clips
        original = self.journal.folder.resolve().parent / (clip.original or "")
        return file_sha256(original if original.is_file() else self.journal.audio / clip.audio)

    def _is_row_or_member(self, entry: Entry, original: Callable[[], str]) -> bool:
        """Return whether an entry without a source was made from `original`, a part of a file."""
        is_same = entry.source == UNKNOWN_SOURCE and any(clip.original == original() for clip in entry.clips)
        return is_same and not (self.journal.folder.resolve().parent / original()).is_file()

    def _count_duplicate(self, found: SourceRecording, other: Entry) -> list[Rejection]:
        """Count a recording that another source contains too, or reject it if the texts differ."""
        is_clip = found.subtitles is None and not is_aligned(found, other)
        if is_clip and [clip.text for clip in other.clips] != [found.text]:
            origin = other.source or "an earlier import"
            reason = f"the project already has this recording with another text, from {origin}"
            return [Rejection(found.where, "other_text", reason)]
        self.num_unchanged += len(other.clips)
        return []

    def _move_files(
        self, id: str, found: SourceRecording, transcoded: Transcoded, original: Callable[[], str]
    ) -> Iterator[Clip]:
        """Rename the files to their final names and yield the clips."""
        assert found.language is not None
        for file in transcoded.files:
            clip_id, text, speaker, recording = id, found.text, found.speaker or "", found.recording
            provenance = found.provenance
            if file.cut is not None:
                clip_id, text, recording = cut_id(id, file.cut.start_s), file.cut.text, id
                speaker, provenance = file.cut.voice or speaker, file.cut.provenance
                if self._owner_of.get(clip_id, (None, found.key))[1] != found.key:
                    clip_id = distinct(clip_id, transcoded.sha256)
            name = file_name(clip_id, file.suffix)
            if file.aside is None:
                name = str(file.link)
            else:
                target = self.journal.audio / name
                if target.exists():
                    self.journal.manifest.unlink(missing_ok=True)  # it does not match the files meanwhile
                file.aside.replace(target)
                self.has_new_files = True
            self.outcomes.update(file.outcomes)
            yield Clip(
                clip_id,
                name,
                text,
                speaker,
                file.duration_s,
                found.language,
                recording,
                original=original() if file.is_cleaned else None,
                gain_db=file.gain_db,
                provenance=provenance,
            )

    def _update_texts(self, name: tuple[str, str], found: SourceRecording) -> None:
        """Update text and speaker of an unchanged recording's clip from its row."""
        entry = self.journal.entries[name]
        clips = entry.clips
        if found.subtitles is None and not is_aligned(found, entry):
            assert found.language is not None
            clips = tuple(
                replace(
                    clip,
                    text=found.text,
                    speaker=found.speaker or "",
                    language=found.language,
                    recording=found.recording,
                    voice=None,
                    provenance=found.provenance,
                )
                for clip in entry.clips
            )
            clips = _with_voices_of(entry.clips, clips)
        self._is_unchanged[name] = clips == entry.clips
        if clips == entry.clips:
            self.num_unchanged += len(clips)
        else:
            self.num_changed += len(clips)
            self.journal.add(replace(entry, clips=clips))

    def _lose(self, name: tuple[str, str]) -> None:
        """Remove the entry of a linked recording that cannot be used any more."""
        self.journal.remove(name)
        self.num_lost += 1

    def _remove_files(self, names: Iterable[str]) -> None:
        """Remove files of the project; an absolute path is that of a linked original, which stays."""
        for name in names:
            self.journal.manifest.unlink(missing_ok=True)  # it does not match the files meanwhile
            if Path(name).name == name:
                (self.journal.audio / name).unlink(missing_ok=True)


def _original(source: str, root: Path, found: SourceRecording, output_dir: Path) -> str:
    """Return the path of a recording as in the journal; in an archive, that of the archive and the member.

    Args:
        source: the name of the source in the journal.
        root: the folder of the source, or the temporary folder of an archive.
    """
    if not found.audio.resolve().is_relative_to(output_dir.resolve()):
        name = source_name(found.audio, output_dir)
    elif found.audio.is_relative_to(root):
        name = f"{source}/{found.audio.relative_to(root)}"
    else:  # a temporary file made from a row
        name = f"{source}/{found.key}"
    if found.embedded is not None:
        name = f"{name}/row {found.embedded.row + 1}"
    return os.fsencode(name).decode(errors="replace")


def _with_voices_of(before: Sequence[Clip], clips: Sequence[Clip]) -> tuple[Clip, ...]:
    """Return clips without a speaker in the data with the voice that they had before."""
    known = {(clip.id, clip.duration): clip for clip in before if clip.voice is not None}
    return tuple(
        replace(clip, speaker=old.speaker, voice=old.voice)
        if not clip.speaker and (old := known.get((clip.id, clip.duration)))
        else clip
        for clip in clips
    )


def is_aligned(found: SourceRecording, entry: Entry) -> bool:
    """Return whether the clips of an entry were cut from a long recording with its text."""
    return found.text_file is not None and any(
        clip.provenance is not None and clip.provenance.kind == "aligned" for clip in entry.clips
    )


def _files(entry: Entry) -> list[str]:
    return [clip.audio for clip in entry.clips]


def _without_source(record: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in record.items() if name != "source"}
