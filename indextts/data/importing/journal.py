"""Journal of an import: a record per recording, so that a killed import resumes.

    imported.jsonl     JSON lines; of two records of the same recording, the later counts

    {"source": "/data/talks", "key": "sub/talk_07",        the recording within its source
     "stamp": [[size, time in ns], ...],                   of its files, and the settings of the cuts
     "sha256": "...",                                      of the recording
     "clips": [{"id", "audio": "talk_07_000012340.flac", "text", "speaker", "duration", "language",
                "recording", "original": "/data/a.wav", "gain_db", "voice", "split", "license",
                "provenance": {...}, "original_text"}, ...],
     "rejected": [{"source", "file", "line", "code", "reason"}, ...]}
    {"source": "/data/talks", "key": "talk_08", "removed": true}

The `audio` of a linked clip is the absolute path of the original. A clip that the import trimmed or set to a
loudness has its gain and the path of its `original`; within a zip archive, the archive and the member.

At its end, an import rewrites the file with a single record per recording. The journal adds the origin of
each utterance to manifest.jsonl.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from indextts.data.manifest import Provenance, Utterance
from indextts.errors import UserError
from indextts.system.json_lines import complete_lines, write_json_lines

JOURNAL_NAME = "imported.jsonl"
MANIFEST_NAME = "manifest.jsonl"
AUDIO_FOLDER_NAME = "audio"
ROW_FIELDS = (  # of a clip, which it has from its row
    *("text", "speaker", "language", "recording", "split", "license", "provenance", "original_text"),
)


@dataclass(frozen=True, slots=True)
class Clip:
    """Utterance of the project; `audio` is the name of its file in audio/, or the absolute path of a link."""

    id: str
    audio: str
    text: str
    speaker: str  # "" until the voice is known; without one, the clip is not in the manifest
    duration: float
    language: str
    recording: str | None = None
    original: str | None = None
    gain_db: float | None = None
    voice: str | None = None  # the group of voices that gave the speaker (voices.py); None for another origin
    split: str | None = None
    license: str | None = None
    provenance: Provenance | None = None  # None if the text came with the recording
    original_text: str | None = None

    @property
    def is_link(self) -> bool:
        return Path(self.audio).is_absolute()

    @property
    def is_lost(self) -> bool:
        """It is a link, and the original does not exist any more."""
        return self.is_link and not Path(self.audio).is_file()


@dataclass(frozen=True, slots=True)
class Entry:
    """Record of an imported recording of a source."""

    source: str
    key: str
    stamp: tuple[object, ...]
    sha256: str
    clips: tuple[Clip, ...]
    rejected: tuple[dict[str, object], ...] = ()


_ENTRY = TypeAdapter(Entry)


@dataclass
class Journal:
    """All entries, in the order of import."""

    folder: Path
    entries: dict[tuple[str, str], Entry] = field(default_factory=dict)

    @property
    def manifest(self) -> Path:
        return self.folder / MANIFEST_NAME

    @property
    def audio(self) -> Path:
        return self.folder / AUDIO_FOLDER_NAME

    def add(self, entry: Entry) -> None:
        """Add an entry and append it to the file, so that a kill does not lose it."""
        self._append(_record(entry))
        self.entries[entry.source, entry.key] = entry

    def remove(self, name: tuple[str, str]) -> None:
        """Remove the entry of a source and key, also for an import that resumes after a kill."""
        self._append({"source": name[0], "key": name[1], "removed": True})
        del self.entries[name]

    def _append(self, record: Mapping[str, object]) -> None:
        with (self.folder / JOURNAL_NAME).open("ab") as file:
            file.write((json.dumps(record, ensure_ascii=False) + "\n").encode())

    def utterances(self) -> Iterator[Utterance]:
        """Yield the utterances of all entries, except for clips without a speaker."""
        folder = self.audio.resolve()
        for clip in (clip for entry in self.entries.values() for clip in entry.clips if clip.speaker):
            facts = {name: getattr(clip, name) for name in ROW_FIELDS}
            audio = folder / clip.audio
            yield Utterance(clip.id, audio, duration_s=clip.duration, original=clip.original, **facts)

    def sort(self, source: str, keys: Iterable[str]) -> None:
        """Sort the entries by source, and those of `source` by `keys`; the end has what it no longer has."""
        order = {key: number for number, key in enumerate(keys)}
        sources = list(dict.fromkeys(name[0] for name in self.entries))

        def place(name: tuple[str, str]) -> tuple[int, int]:
            return sources.index(name[0]), order.get(name[1], len(order)) if name[0] == source else 0

        self.entries = {name: self.entries[name] for name in sorted(self.entries, key=place)}

    def write(self) -> None:
        """Rewrite the file with a single record per recording; a UserError if that fails."""
        write_json_lines(self.folder / JOURNAL_NAME, map(_record, self.entries.values()))


def read_journal(folder: Path) -> Journal:
    """Return the journal of `folder` without a last line that a kill cut; a UserError if corrupt or lost."""
    journal = Journal(folder)
    path = folder / JOURNAL_NAME
    if not path.is_file():
        if journal.manifest.is_file():
            raise UserError(
                f"{journal.manifest}: without {JOURNAL_NAME} beside it, it is not of an import; pass it as "
                "--manifest, and choose another --output-dir"
            )
        return journal
    for number, line in enumerate(complete_lines(path), start=1):
        try:
            record = json.loads(line)
            if record.get("removed"):
                journal.entries.pop((record["source"], record["key"]), None)
                continue
            entry = _ENTRY.validate_python({**record, "stamp": _frozen(record["stamp"])})
            journal.entries[entry.source, entry.key] = entry
        except (ValueError, KeyError, TypeError, AttributeError):
            raise UserError(
                f"{path}:{number}: the line is corrupt; import {journal.manifest} with --manifest into "
                "another --output-dir"
            ) from None
    return journal


def _record(entry: Entry) -> dict[str, object]:
    record: dict[str, object] = _ENTRY.dump_python(entry, mode="json", exclude_defaults=True)
    return record


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
