"""What was imported: written down recording by recording, so that an import that is killed goes on.

    imported.jsonl     JSON lines; of two about the same recording, the later counts

    {"source": "/data/talks", "key": "sub/talk_07",        a recording, as it is named in its source
     "stamp": [[size, time in ns], ...],                   of its files, with what it was cut by
     "sha256": "...",                                      of the recording
     "clips": [{"id", "audio": "talk_07_000012340.flac", "text", "speaker", "duration", "language",
                "recording"}, ...],
     "rejected": [{"file", "line", "code", "reason"}, ...]}

At the end of an import the file is written anew, each recording once. It knows what manifest.jsonl lacks:
where an utterance came from. A manifest without it is taken over as it is.
"""

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from indextts.data.manifest import Utterance, read_utterances
from indextts.errors import UserError
from indextts.system.json_lines import write_json_lines

JOURNAL_NAME = "imported.jsonl"
MANIFEST_NAME = "manifest.jsonl"
AUDIO_FOLDER_NAME = "audio"

UNKNOWN_SOURCE = ""  # of what a manifest without a journal holds


@dataclass(frozen=True, slots=True)
class Clip:
    """One utterance of the project; `audio` is the name of its file in audio/."""

    id: str
    audio: str
    text: str
    speaker: str
    duration: float
    language: str
    recording: str | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """What became of one recording of a source."""

    source: str
    key: str
    stamp: tuple[object, ...]
    sha256: str
    clips: tuple[Clip, ...]
    rejected: tuple[dict[str, object], ...] = ()


@dataclass
class Journal:
    """All entries, in the order in which they came."""

    folder: Path
    entries: dict[tuple[str, str], Entry] = field(default_factory=dict)

    @property
    def manifest(self) -> Path:
        return self.folder / MANIFEST_NAME

    @property
    def audio(self) -> Path:
        return self.folder / AUDIO_FOLDER_NAME

    def add(self, entry: Entry) -> None:
        """Put an entry in; the line is with the system when this returns, so that a kill does not lose it."""
        self.entries[entry.source, entry.key] = entry
        self._append(_record(entry))

    def utterances(self) -> Iterator[Utterance]:
        """Yield the utterances of all entries."""
        folder = self.audio.resolve()
        for entry in self.entries.values():
            for clip in entry.clips:
                yield Utterance(
                    clip.id,
                    folder / clip.audio,
                    clip.text,
                    clip.speaker,
                    clip.duration,
                    clip.language,
                    recording=clip.recording,
                )

    def write(self) -> None:
        """Write the journal anew, each recording once.

        Raises:
            UserError: it cannot be written.
        """
        write_json_lines(self.folder / JOURNAL_NAME, map(_record, self.entries.values()))

    def _append(self, record: dict[str, object]) -> None:
        with (self.folder / JOURNAL_NAME).open("ab") as file:
            file.write((json.dumps(record, ensure_ascii=False) + "\n").encode())


def read_journal(folder: Path) -> Journal:
    """Return what was imported into `folder` until now; a line that a kill cut off counts as not written.

    Raises:
        UserError: there is a manifest without a journal, and something is wrong with it.
    """
    journal = Journal(folder)
    path = folder / JOURNAL_NAME
    if not path.is_file():
        if journal.manifest.is_file():
            _take_over(journal)
        return journal
    content = path.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    if whole != content:
        os.truncate(path, len(whole))  # or the next line would be written behind the broken one
    for number, line in enumerate(whole.split(b"\n")[:-1], start=1):
        try:
            _take_in(journal, json.loads(line))
        except (ValueError, KeyError, TypeError):
            raise UserError(
                f"{path}:{number}: damaged; remove the file, the utterances of the manifest stay"
            ) from None
    return journal


def _take_in(journal: Journal, record: dict[str, Any]) -> None:
    entry = Entry(
        record["source"],
        record["key"],
        _frozen(record["stamp"]),
        record["sha256"],
        tuple(Clip(**clip) for clip in record["clips"]),
        tuple(record.get("rejected", ())),
    )
    journal.entries[entry.source, entry.key] = entry


def _take_over(journal: Journal) -> None:
    """Make entries of a manifest that was imported when there was no journal."""
    audio = journal.audio.resolve()
    for utterance in read_utterances(journal.manifest):
        if utterance.audio.parent != audio:
            raise UserError(
                f"{journal.manifest}: {utterance.audio} lies outside of {audio}; choose another --output-dir"
            )
        clip = Clip(
            utterance.id,
            utterance.audio.name,
            utterance.text,
            utterance.speaker,
            utterance.duration_s,
            utterance.language,
            utterance.recording,
        )
        entry = Entry(UNKNOWN_SOURCE, utterance.id, (), "", (clip,))
        journal.entries[entry.source, entry.key] = entry


def in_order(journal: Journal, source: str, keys: Iterable[str]) -> None:
    """Put a source's entries into the order in which they stand there, those it lacks now behind them."""
    order = {(source, key): number for number, key in enumerate(keys)}
    of_source = [entry for name, entry in journal.entries.items() if name[0] == source]
    of_source.sort(key=lambda entry: order.get((entry.source, entry.key), len(order)))
    sorted_entries = iter(of_source)
    journal.entries = {
        (entry.source, entry.key): entry
        for entry in (
            next(sorted_entries) if name[0] == source else other for name, other in journal.entries.items()
        )
    }


def _record(entry: Entry) -> dict[str, object]:
    clips = [
        {name: value for name in Clip.__slots__ if (value := getattr(clip, name)) is not None}
        for clip in entry.clips
    ]
    record: dict[str, object] = {
        "source": entry.source,
        "key": entry.key,
        "stamp": entry.stamp,
        "sha256": entry.sha256,
        "clips": clips,
    }
    return record | ({"rejected": entry.rejected} if entry.rejected else {})


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
