"""Transcode the recordings of sources, several at a time, and store them in the project in their order."""

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

from indextts.commands.data import ImportDataset
from indextts.data.aligning.aligner import Aligner
from indextts.data.importing.items import Rejection, Row, cut_id, distinct, file_name, source_name
from indextts.data.importing.journal import ROW_FIELDS, Clip, Entry, Journal
from indextts.data.importing.parquet import AudioReader, audio_suffix
from indextts.data.importing.transcoding import Transcoded, recording_stamp, transcode
from indextts.system.process_pool import ahead

PART_PREFIX = ".part-"  # of a temporary folder, with one for each recording
_WAITING_PER_WORKER = 4  # recordings: more would only take disk space

Stamp = tuple[object, ...]
Transcoding = Future[list[Transcoded]] | list[Transcoded]


class ProjectStore:
    """Store of the project's recordings, which keeps journal, manifest and files consistent."""

    def __init__(self, journal: Journal, command: ImportDataset) -> None:
        self.journal = journal
        self.command = command
        self.num_pruned = self.num_gone = 0
        self.num_duplicates = 0  # clips that another source has too
        self.num_lost = 0  # linked recordings that do not exist or cannot be read any more
        self.outcomes: Counter[str] = Counter()
        self.has_new_files = False
        self._owner_of: dict[str, tuple[str, str]] = {}  # by the id of a clip or of a cut recording
        self._before = dict(journal.entries)
        self._read: set[tuple[str, str]] = set()
        for name, entry in journal.entries.items():
            self._own(name, entry)

    def import_rows(
        self, source: str, root: Path, rows: Sequence[Row]
    ) -> Generator[tuple[Row, list[Rejection]]]:
        """Store the recordings of a source in order; yield each with its rejections."""
        aligner = Aligner(self.command) if self.command.asr else None
        num_workers = self.command.num_workers or os.cpu_count() or 1
        reader = AudioReader()
        temporary = tempfile.TemporaryDirectory(prefix=PART_PREFIX, dir=self.journal.audio)
        with temporary as parts, ThreadPoolExecutor(num_workers) as pool:

            def start(
                numbered: tuple[int, list[Row]],
            ) -> tuple[list[tuple[Row, Stamp, bool]], Path, Transcoding]:
                number, group = numbered
                stamped = [(row, recording_stamp(row, self.command)) for row in group]
                found = [(*each, self._is_current((source, each[0].key), each[1])) for each in stamped]
                changed = [row for row, _, is_current in found if not is_current]
                part = Path(parts, str(number))
                if not changed:
                    return found, part, []
                part.mkdir()
                if changed[0].embedded is not None:
                    audio = reader.read(changed[0])
                    if isinstance(audio, Rejection):
                        return found, part, [Transcoded("", [], [audio])]
                    changed = [replace(changed[0], audio=part / f"embedded{audio_suffix(*audio)}")]
                    changed[0].audio.write_bytes(audio[0])
                return found, part, pool.submit(transcode, changed, self.command, part, aligner)

            try:
                started = ahead(enumerate(_by_recording(rows)), start, _WAITING_PER_WORKER * num_workers)
                for found, part, result in started:
                    transcoded = iter(result.result() if isinstance(result, Future) else result)
                    for row, stamp, is_current in found:
                        done = None if is_current else next(transcoded)
                        yield row, self._add(source, root, row, stamp, done)
                    if result:
                        shutil.rmtree(part)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def counts(self) -> tuple[int, int, int]:
        """Return how many clips were added, changed in any way, and read without a change."""
        added, changed, unchanged = 0, 0, self.num_duplicates
        for name, entry in self.journal.entries.items():
            before = self._before.get(name)
            if before is None:
                added += len(entry.clips)
            elif (before.sha256, before.clips) != (entry.sha256, entry.clips):
                changed += len(entry.clips)
            elif name in self._read:
                unchanged += len(entry.clips)
        return added, changed, unchanged

    def _is_current(self, name: tuple[str, str], stamp: Stamp) -> bool:
        """Return whether the project has the current files of a recording."""
        entry = self.journal.entries.get(name)
        return (
            entry is not None
            and entry.stamp == stamp
            and all((self.journal.audio / clip.audio).is_file() for clip in entry.clips)
        )

    def _add(
        self, source: str, root: Path, found: Row, stamp: Stamp, transcoded: Transcoded | None
    ) -> list[Rejection]:
        """Store a recording, or update text and speaker of an unchanged one (None); return its rejections."""
        name = (source, found.key)
        self._read.add(name)
        if transcoded is None:
            self._update_texts(name, found)
            return []
        before = self.journal.entries.get(name)
        if not transcoded.files:
            if before is not None and any(clip.is_link for clip in before.clips):
                self._lose(name)
            return transcoded.rejections
        id, other = self._id_for(name, found, transcoded.sha256)
        if other is not None:
            return self._count_duplicate(found, other)
        records = tuple(rejection.record(source, root) for rejection in transcoded.rejections)
        original = _original(source, root, found, self.journal.folder)
        clips = tuple(self._move_files(id, found, transcoded, original))
        if before is not None and before.sha256 == transcoded.sha256:
            clips = _with_voices_of(before.clips, clips)
        entry = Entry(source, found.key, stamp, transcoded.sha256, clips, records)
        if before is not None:
            self._remove_files({clip.audio for clip in before.clips} - {clip.audio for clip in clips})
        self.journal.add(entry)
        self._own(name, entry)
        return []

    def duration_s(self, source: str, key: str) -> float:
        """Return the seconds of a recording's clips in the project."""
        entry = self.journal.entries.get((source, key))
        return sum(clip.duration for clip in entry.clips) if entry is not None else 0.0

    def finish(self, source: str, keys: Sequence[str]) -> None:
        """Sort the entries of a source by `keys`; with --prune, remove those of missing recordings."""
        self.journal.sort(source, keys)
        gone = {name for name in self.journal.entries if name[0] == source} - {(source, key) for key in keys}
        for name in gone:
            if self.command.prune:
                entry = self.journal.entries.pop(name)
                self.num_pruned += len(entry.clips)
                self._remove_files(clip.audio for clip in entry.clips)
            elif any(clip.is_lost for clip in self.journal.entries[name].clips):
                self._lose(name)
            else:
                self.num_gone += 1

    def _own(self, name: tuple[str, str], entry: Entry) -> None:
        for clip in entry.clips:
            self._owner_of[clip.id] = name
            if clip.recording is not None and clip.id.startswith(f"{clip.recording}_"):  # cut here
                self._owner_of[clip.recording] = name

    def _id_for(self, name: tuple[str, str], found: Row, sha256: str) -> tuple[str, Entry | None]:
        """Return an id that no other recording has, or the entry of the same recording under that id.

        The entry of a lost link is removed.
        """
        for id in (found.id, distinct(found.id, sha256)):
            owner = self._owner_of.get(id)
            if owner is None or owner == name or owner not in self.journal.entries:
                return id, None
            entry = self.journal.entries[owner]
            if any(clip.is_lost for clip in entry.clips):
                self._lose(owner)
                return id, None
            if entry.sha256 == sha256:
                return id, entry
        raise AssertionError(f"two recordings with the digest {sha256}")

    def _count_duplicate(self, found: Row, other: Entry) -> list[Rejection]:
        """Count a recording that another source contains too, or reject it if the texts differ."""
        is_clip = found.subtitles is None and not is_aligned(found, other)
        if is_clip and [clip.text for clip in other.clips] != [found.text]:
            reason = f"the project already has this recording with another text, from {other.source}"
            return [Rejection(found.where, "other_text", reason)]
        self.num_duplicates += len(other.clips)
        return []

    def _move_files(self, id: str, found: Row, transcoded: Transcoded, original: str) -> Iterator[Clip]:
        """Rename the files to their final names and yield the clips."""
        for file in transcoded.files:
            clip_id, facts = id, _facts(found)
            if (cut := file.cut) is not None:
                clip_id = cut_id(id, cut.start_s)
                facts |= {"text": cut.text, "recording": id, "provenance": cut.provenance}
                facts |= {"speaker": cut.voice or facts["speaker"], "original_text": cut.original or None}
                if self._owner_of.get(clip_id, (None, found.key))[1] != found.key:
                    clip_id = distinct(clip_id, transcoded.sha256)
            name = str(file.path) if file.is_link else file_name(clip_id, file.path.suffix)
            if not file.is_link:
                target = self.journal.audio / name
                if target.exists():
                    self.journal.manifest.unlink(missing_ok=True)  # it does not match the files meanwhile
                file.path.replace(target)
                self.has_new_files = True
            self.outcomes.update(file.outcomes)
            made_from = original if file.is_cleaned else None
            gain_db = file.gain_db
            yield Clip(clip_id, name, duration=file.duration_s, original=made_from, gain_db=gain_db, **facts)

    def _update_texts(self, name: tuple[str, str], found: Row) -> None:
        """Update text and speaker of an unchanged recording's clip from its row."""
        entry = self.journal.entries[name]
        clips = entry.clips
        if found.subtitles is None and not is_aligned(found, entry):
            clips = tuple(replace(clip, voice=None, **_facts(found)) for clip in entry.clips)
            clips = _with_voices_of(entry.clips, clips)
        if clips != entry.clips:
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


def _facts(found: Row) -> dict[str, Any]:
    """Return the fields of a clip that it has from its row."""
    facts = {name: getattr(found, name) for name in ROW_FIELDS}
    return facts | {"speaker": found.speaker or "", "original_text": found.original_text or None}


def _by_recording(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Yield each row in a list; spans of one recording that follow each other in one list."""

    def recording(numbered: tuple[int, Row]) -> object:
        number, row = numbered
        return number if row.span is None or row.embedded is not None else row.audio

    for _, group in groupby(enumerate(rows), recording):
        yield [row for _, row in group]


def _original(source: str, root: Path, found: Row, output_dir: Path) -> str:
    """Return the path of a recording as in the journal; in an archive, that of the archive and the member."""
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


def is_aligned(found: Row, entry: Entry) -> bool:
    """Return whether the clips of an entry were cut from a long recording with its text."""
    return found.text_file is not None and any(
        clip.provenance is not None and clip.provenance.kind == "aligned" for clip in entry.clips
    )
