"""Import recordings with their texts, in any layout, into a project.

    hub, download, archive -> layouts -> tables, parquet, kaldi, file_pairs     readers: they yield rows
    rows -> reading -> speakers -> storing -> transcoding (decoding, cuts, cleaning) -> journal -> manifest

    OUTPUT_DIR/
      manifest.jsonl         written last: without it, no import has finished
      audio/NAME.SUFFIX      copies, and clips that were decoded, cut or cleaned up; NAME is a safe form of
                             the id; --link leaves other recordings in their place
      rejected.jsonl         unusable items with reasons (items.py)
      imported.jsonl         the origin of each utterance (journal.py)
      answers.json           the user's answers about a source (speakers.py)
      sources.json           data sets of the hub and tables with their licences (indextts.data.sources)
      voices.json voices.csv voice_vectors.jsonl    speakers from voices (voices.py)

An import never removes anything except with --prune. Importing the same source again changes nothing, a
source that has grown adds its new recordings, and a killed import resumes.
"""

import contextlib
import logging
import math
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

from indextts.commands.data import ImportDataset, ImportLayout
from indextts.data.importing.archive import UNPACKED_PREFIX, InnerArchives, is_archive, unpack
from indextts.data.importing.download import DOWNLOADS_NAME, download
from indextts.data.importing.hub import HUB_NAME, download_dataset
from indextts.data.importing.items import Rejection, Row, source_name, without_shards
from indextts.data.importing.journal import AUDIO_FOLDER_NAME, Journal, read_journal
from indextts.data.importing.layouts import has_only_archives, read_source
from indextts.data.importing.reading import SourceReader
from indextts.data.importing.references import Recordings
from indextts.data.importing.spans import log_durations
from indextts.data.importing.speakers import (
    answered,
    log_left_out,
    of_speakers,
    read_answers,
    require_named_speakers,
    with_speakers,
    write_answers,
)
from indextts.data.importing.storing import PART_PREFIX, ProjectStore, is_aligned
from indextts.data.importing.texts import kinds_to_keep, log_marks, without_marks
from indextts.data.importing.voices import (
    add_vectors,
    group_voices,
    read_record,
    read_vectors,
    require_encoder,
    set_speakers,
    with_renamed,
    write_voices,
)
from indextts.data.manifest import write_utterances
from indextts.data.progress import Progress
from indextts.data.rejected import REJECTED_NAME, counts_by_code, write_rejected
from indextts.data.sources import DataSource, record_licences, record_origin
from indextts.data.speaker_vectors import LoadEncoder
from indextts.errors import UserError
from indextts.features.voice_encoder import load_campplus_encoder
from indextts.system.amounts import counted
from indextts.system.digest import file_sha256
from indextts.system.disk import locked_folder
from indextts.text.languages import find_language
from indextts.text.transcript_marks import Mark, clean_transcript

logger = logging.getLogger(__name__)

LOCK_NAME = ".import.lock"
NOTHING_USABLE = 1


@dataclass(frozen=True)
class ImportResult:
    """Content of the project after an import, its changes, and rejections by code."""

    manifest: Path
    num_utterances: int
    num_speakers: int
    total_duration_s: float
    num_added: int
    num_changed: int
    num_unchanged: int
    num_pruned: int
    rejected: dict[str, int]

    def __str__(self) -> str:
        lines = [
            f"{self.manifest}: {counted(self.num_utterances, 'utterance')}, "
            f"{self.total_duration_s / 3600:.2f} hours, {counted(self.num_speakers, 'speaker')}; "
            f"{self.num_added} added, {self.num_changed} changed, {self.num_unchanged} unchanged"
            + (f", {self.num_pruned} pruned" if self.num_pruned else "")
        ]
        if self.rejected:
            path = self.manifest.with_name(REJECTED_NAME)
            lines.append(f"rejected: {counts_by_code(self.rejected)}; see {path}")
        return "\n".join(lines)


@dataclass
class _Source:
    """Source during an import."""

    path: Path  # as typed
    name: str  # in the journal
    root: Path  # the folder with its unpacked files
    answers: dict[str, str]
    archives: InnerArchives | None
    found: list[Row] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)  # of all recordings, also those left out
    rejections: list[Rejection] = field(default_factory=list)


def import_dataset(command: ImportDataset, load_encoder: LoadEncoder = load_campplus_encoder) -> ImportResult:
    """Import the sources of a command.

    Raises:
        UserError: a source or the weights of the encoder do not exist, speakers are unknown, the folder
            cannot be written or is in use, or nothing in the sources is usable (status 1).
    """
    require_named_speakers(command.speakers, command.speaker_from)
    typed = [*([command.manifest] if command.manifest is not None else []), *command.source]
    downloads = command.output_dir.resolve().parent / DOWNLOADS_NAME
    if command.url:
        download(command.url, downloads, command.language)
        typed.append(downloads)
    origin: tuple[Path, DataSource] | None = None
    if command.hub:
        origin = download_dataset(command, 0 if command.speakers else command.max_hours)
        typed.append(origin[0])
    elif command.hub_subset or command.hub_split or command.hub_revision:
        flags = "--hub-subset, --hub-split and --hub-revision"
        raise UserError(f"{flags} belong to --hub OWNER/NAME; pass it too")
    if not typed:
        raise UserError("no source to import; pass --source FOLDER or --manifest FILE, or --hub OWNER/NAME")
    if command.min_clip_s > command.max_clip_s:
        raise UserError(
            f"--min-clip-s {command.min_clip_s} is above --max-clip-s {command.max_clip_s}; lower it"
        )
    for path in typed:
        inside, output = path.resolve(), command.output_dir.resolve()
        if inside.is_relative_to(output):
            raise UserError(f"{path} is already in --output-dir; choose another source or folder")
        if output.is_relative_to(inside):
            raise UserError(f"--output-dir {command.output_dir} is inside {path}; choose another folder")
    try:
        with contextlib.ExitStack() as stack:
            for path in typed:
                if not path.exists():
                    raise UserError(f"{path}: no such file or folder; check the path")
            command.output_dir.joinpath("audio").mkdir(parents=True, exist_ok=True)
            in_use = f"{command.output_dir}: another import writes to this folder; wait for it or stop it"
            stack.enter_context(locked_folder(command.output_dir / LOCK_NAME, in_use=in_use))
            parts = (command.output_dir / AUDIO_FOLDER_NAME).glob(f"{PART_PREFIX}*")
            for unfinished in (*parts, *command.output_dir.glob(f"{UNPACKED_PREFIX}*")):
                shutil.rmtree(unfinished)  # of a killed import
            if origin is not None:
                folder, found = origin
                record_origin(command.output_dir, source_name(folder, command.output_dir), found)
            journal = read_journal(command.output_dir)
            sources = [_opened(path, command, stack) for path in typed]
            for source in sources:
                _read(source, command, journal)
                licences = {row.license for row in source.found if row.license}
                record_licences(command.output_dir, source.name, source.path, licences)
            if command.speakers:
                kept = of_speakers({source.path: source.found for source in sources}, command.speakers)
                for source in sources:
                    source.found = kept[source.path]
            return _import(sources, command, journal, load_encoder)
    except OSError as error:
        place = error.filename or command.output_dir
        raise UserError(
            f"{place}: {error.strerror or error}; check the folder, its permissions and the disk"
        ) from None


def _opened(path: Path, command: ImportDataset, stack: contextlib.ExitStack) -> _Source:
    name = source_name(path, command.output_dir)
    answers = answered(command, read_answers(command.output_dir).get(name, {}))
    if path == command.manifest:
        answers["layout"] = "jsonl"
    require_named_speakers(command.speakers, answers["speaker_from"])
    if answers["speaker_from"] == "voices":
        require_encoder(command.voice_encoder)
    temporary = stack.enter_context(
        tempfile.TemporaryDirectory(
            prefix=UNPACKED_PREFIX, dir=command.output_dir, ignore_cleanup_errors=True
        )
    )
    folder, max_bytes = Path(temporary).resolve(), int(command.max_unpacked_gb * 1e9)
    root = path.resolve()
    is_packed = is_archive(path)
    if is_packed or has_only_archives(root):
        if command.link:
            raise UserError(f"{path}: an archive cannot be linked; unpack it, or import without --link")
        if is_packed:
            unpack(path, folder, max_bytes)
        else:
            InnerArchives(root, folder, max_bytes).unpack()
        return _Source(path, name, folder, answers, None)
    return _Source(
        path, name, root, answers, InnerArchives(root, folder, max_bytes) if root.is_dir() else None
    )


def _read(source: _Source, command: ImportDataset, journal: Journal) -> None:
    """Read all items of a source and determine the speakers."""
    found: list[Row] = []
    seen: dict[str, Row] = {}
    layout = cast(ImportLayout, source.answers["layout"])
    folder = source.root if source.root.is_dir() else source.root.parent
    language, allowed = find_language(command.language).code, _allowed_folders(source, command)
    recordings = Recordings(folder, allowed, source.archives)
    reader = SourceReader(recordings, language, source.answers["columns"])
    for read in read_source(source.root, layout, reader, source.path):
        item = read if isinstance(read, Rejection) else _with_unique_key(read, seen, source.root)
        if isinstance(item, Rejection):
            source.rejections.append(item)
        else:
            seen[item.key] = item
            found.append(item)
    audio = journal.audio.resolve()
    for path in {item.audio for item in found}:
        if path.resolve().is_relative_to(audio):
            raise UserError(f"{path} is already in --output-dir; choose another folder")
    place: dict[object, int] = {}  # spans of a recording follow each other, so that it is decoded once
    found.sort(key=lambda row: place.setdefault(row.audio if row.span else row.key, len(place)))
    source.found, nameless = with_speakers(found, source.path, source.root, source.answers)
    items, marks = without_marks(source.found, kinds_to_keep(source.answers["keep"]))
    log_marks(source.path, marks)
    source.found = [item for item in items if isinstance(item, Row)]
    source.rejections += [item for item in items if isinstance(item, Rejection)]
    source.rejections += nameless
    source.keys = [item.key for item in source.found]
    languages = Counter(str(item.language) for item in source.found)
    if len(languages) > 1:
        logger.warning("%s: recordings in several languages: %s", source.path, counts_by_code(languages))


def _with_unique_key(item: Row, seen: Mapping[str, Row], root: Path) -> Row | Rejection:
    """Return a recording under a key that no other has: tables of several splits may repeat their ids.

    A second row for the same recording is a duplicate; ids may be those of sentences, read by several people.
    """
    if item.key not in seen:
        return item
    first = seen[item.key]
    table, other = item.where.file, first.where.file
    if table != other and (item.embedded or item.audio != first.audio):
        # The key depends on the place of the table alone, so that it stays when the source grows.
        common = os.path.commonpath([table.parent, other.parent])
        for place in (table.parent, without_shards(table)):
            key = f"{os.path.relpath(place, root)}/{item.key}"
            if place != Path(common) and key not in seen:
                return replace(item, key=key, id="_".join([*place.relative_to(common).parts, item.id]))
    if item.embedded is not None:
        key = f"{os.path.relpath(without_shards(table), root)}-{item.embedded.row:06d}"
        return replace(item, key=key)
    key = f"{item.key} {item.named}"
    if item.audio != first.audio and key not in seen:
        return replace(item, key=key)
    line = "" if first.where.line is None else f":{first.where.line}"
    reason = f"{first.where.file.name}{line} already has {item.key}; give each row a unique id"
    return Rejection(item.where, "duplicate", reason)


def _allowed_folders(source: _Source, command: ImportDataset) -> list[Path]:
    """Return the folders that a source may read recordings from.

    Tables that were unpacked or downloaded are by others, and may not name other files of this machine.
    """
    project = command.output_dir.resolve().parent
    downloads = [(project / name).resolve() for name in (DOWNLOADS_NAME, HUB_NAME)]
    is_downloaded = any(source.root.is_relative_to(folder) for folder in downloads)
    if source.root == source.path.resolve() and not is_downloaded:
        return [folder.resolve() for folder in command.audio_root]
    return [source.root if source.root.is_dir() else source.root.parent]


def _import(
    sources: Sequence[_Source], command: ImportDataset, journal: Journal, load_encoder: LoadEncoder
) -> ImportResult:
    store = ProjectStore(journal, command)
    read_record(command.output_dir)  # refuse wrong names before anything is imported
    missing_s = command.max_hours * 3600 or math.inf
    for source in sources:
        missing_s -= _import_source(source, command, store, missing_s)
        store.finish(source.name, source.keys)
        _log_outcomes(source, command, store)
    is_by_voice = any(source.answers["speaker_from"] == "voices" for source in sources)
    if is_by_voice:
        add_vectors(journal, command.voice_encoder, load_encoder, command.num_workers)
    before = record = read_record(command.output_dir)  # the user may rename voices during the import
    if is_by_voice:
        digest = file_sha256(command.voice_encoder)
        record = group_voices(journal, read_vectors(journal, digest), record, digest, command.voice_threshold)
    set_speakers(journal, record)
    without_voice = {source.name: list(_without_voice(source, journal)) for source in sources}
    for source in sources:
        source.rejections += without_voice[source.name]
    records = [record for source in sources for record in _records(source, store)]
    write_rejected(command.output_dir, records, [source.name for source in sources])
    rejected = dict(Counter(str(record["code"]) for record in records))
    num_added, num_changed, num_unchanged = store.counts()
    if num_added + num_changed + num_unchanged == sum(map(len, without_voice.values())):
        shown = ", ".join(str(source.path) for source in sources)
        reasons = [rejection.reason for source in sources for rejection in source.rejections]
        first = f", the first: {reasons[0]}" if reasons else ""
        raise UserError(
            f"{shown}: nothing is usable ({counts_by_code(rejected)}{first}); see "
            f"{command.output_dir / REJECTED_NAME}",
            NOTHING_USABLE,
        )
    if store.has_new_files:
        os.sync()  # once for all files, so that a power cut cannot lose files of the manifest
    journal.write()
    record = with_renamed(record, before, read_record(command.output_dir))
    write_voices(journal, read_vectors(journal, record.encoder), record)
    given = {source.name: source.answers for source in sources}
    write_answers(command.output_dir, read_answers(command.output_dir) | given)
    utterances = list(journal.utterances())
    write_utterances(journal.manifest, utterances, keeps_links=True)
    if store.num_gone:
        gone = counted(store.num_gone, "recording")
        text = "%s: kept %s of an earlier import, no longer in the source; --prune removes them"
        logger.warning(text, journal.manifest, gone)
    if store.num_lost:
        lost = counted(store.num_lost, "linked recording")
        logger.warning("%s: removed %s that do not exist or cannot be read any more", journal.manifest, lost)
    return ImportResult(
        journal.manifest,
        num_utterances=len(utterances),
        num_speakers=len({utterance.speaker for utterance in utterances}),
        total_duration_s=sum(utterance.duration_s for utterance in utterances),
        num_added=num_added,
        num_changed=num_changed,
        num_unchanged=num_unchanged,
        num_pruned=store.num_pruned,
        rejected=rejected,
    )


def _import_source(source: _Source, command: ImportDataset, store: ProjectStore, max_s: float) -> float:
    """Import the recordings of a source in order until they have `max_s` seconds; return their seconds."""
    total_s, num_read, num_found = 0.0, 0, len(source.found)
    progress = Progress(f"Importing {source.path.name}", num_found)
    with contextlib.closing(store.import_rows(source.name, source.root, source.found)) as stored:
        while total_s < max_s and num_read < num_found:
            found, rejections = next(stored)
            source.rejections += rejections
            total_s += store.duration_s(source.name, found.key)
            num_read += 1
            progress.advance()
    if num_read < num_found:
        source.found = source.found[:num_read]
        log_left_out(source.path, num_found - num_read, f"--max-hours {command.max_hours:g}")
    return total_s


def _log_outcomes(source: _Source, command: ImportDataset, store: ProjectStore) -> None:
    """Log what --trim, --loudness and --link did with the clips of a source, and which are too long."""
    if store.outcomes:
        outcomes = (f"{counted(count, 'clip')} {outcome}" for outcome, count in store.outcomes.items())
        logger.info("%s: %s", source.path, ", ".join(outcomes))
        store.outcomes.clear()
    num_long = num_whole = 0
    marks: list[Mark] = []  # of subtitles, whose texts are read when they are cut
    for found in source.found:
        entry = store.journal.entries.get((source.name, found.key))
        is_cut = found.subtitles is not None or (entry is not None and is_aligned(found, entry))
        num_long += is_cut
        for clip in entry.clips if found.subtitles is not None and entry is not None else ():
            marks += clean_transcript(clip.original_text or clip.text, found.keep).marks
        is_too_long = store.duration_s(source.name, found.key) > command.max_clip_s
        num_whole += found.text_file is not None and not is_cut and is_too_long
    log_marks(source.path, marks)
    rows = [(row, store.journal.entries.get((source.name, row.key))) for row in source.found]
    log_durations(source.path, [(row, entry) for row, entry in rows if row.duration and entry is not None])
    if num_long and (command.trim or command.loudness or command.link):
        text = "%s: %s cut as usual, without --trim, --loudness and --link"
        logger.warning(text, source.path, counted(num_long, "long recording"))
    if num_whole:
        text = "%s: %s longer than %g s not cut; --asr cuts them at the sentences of their texts"
        logger.warning(text, source.path, counted(num_whole, "recording"), command.max_clip_s)


def _without_voice(source: _Source, journal: Journal) -> Iterator[Rejection]:
    """Yield the clips of a source whose voice is in no group."""
    for found in source.found:
        entry = journal.entries.get((source.name, found.key))
        for clip in entry.clips if entry is not None else ():
            if not clip.speaker:
                reason = (
                    f"{clip.duration:.1f} s, too short or too unlike any voice; name the speaker in the data"
                    if source.answers["speaker_from"] == "voices"
                    else "no voice tag; pass --speaker NAME for the subtitles without one"
                )
                yield Rejection(found.where, "no_speaker", reason)


def _records(source: _Source, store: ProjectStore) -> Iterator[dict[str, object]]:
    """Yield the rejections of a source for rejected.jsonl, with the places in it of unpacked files."""
    for rejection in source.rejections:
        if source.archives is not None:
            file = source.archives.original(rejection.where.file)
            rejection = replace(rejection, where=replace(rejection.where, file=file))
        yield rejection.record(source.name, source.root)
    for name, entry in store.journal.entries.items():  # of recordings that are partly in the project
        if name[0] == source.name:
            yield from entry.rejected
