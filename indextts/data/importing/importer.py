"""Importing: recordings with their texts, from any layout, into a project.

    OUTPUT_DIR/
      manifest.jsonl         written last: without it nothing was imported
      audio/NAME.SUFFIX      copies, and clips cut from long recordings; NAME is the id, made safe
      rejected.jsonl         what could not be used, and why (found.py)
      imported.jsonl         where each utterance came from (journal.py)
      answers.json           who speaks in a source, as somebody said (answers.py)

What is there is never taken away by an import, except with --prune. The same source again changes nothing, a
source that has grown adds what is new, and an import that was killed goes on where it was.
"""

import contextlib
import logging
import os
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

from indextts.commands.data import ImportDataset, ImportLayout
from indextts.data.importing.archive import UNPACKED_PREFIX, is_archive, unpacked
from indextts.data.importing.audio_files import AudioFinder
from indextts.data.importing.download import DOWNLOADS_NAME, download
from indextts.data.importing.found import Found, Rejection, source_name
from indextts.data.importing.journal import Journal, read_journal
from indextts.data.importing.layouts import read_source
from indextts.data.importing.long_recordings import Limits
from indextts.data.importing.speakers import answered, read_answers, with_speakers, write_answers
from indextts.data.importing.storing import ASIDE_PREFIX, Keeper, Made, make, stamp_of
from indextts.data.manifest import DEFAULT_LANGUAGE, write_utterances
from indextts.data.progress import Progress
from indextts.errors import UserError
from indextts.system.json_lines import read_json_lines, write_json_lines
from indextts.system.locks import locked_folder

logger = logging.getLogger(__name__)

REJECTED_NAME = "rejected.jsonl"
LOCK_NAME = ".import.lock"
NOTHING_USABLE = 1


@dataclass(frozen=True)
class ImportResult:
    """What stands in the project after an import, and what the import did.

    Args:
        rejected: counts by code.
    """

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
            f"{self.manifest}: {self.num_utterances} utterances, {self.total_duration_s / 3600:.2f} hours, "
            f"{self.num_speakers} speakers; {self.num_added} added, {self.num_changed} changed, "
            f"{self.num_unchanged} were there already"
            + (f", {self.num_pruned} pruned" if self.num_pruned else "")
        ]
        if self.rejected:
            lines.append(
                f"not used: {counted(self.rejected)}; {self.manifest.with_name(REJECTED_NAME)} has each"
            )
        return "\n".join(lines)


@dataclass
class _Source:
    """A source while it is imported."""

    path: Path  # as typed
    name: str  # in the journal
    root: Path  # where its files lie, unpacked
    answers: dict[str, str]
    found: list[Found] = field(default_factory=list)
    rejections: list[Rejection] = field(default_factory=list)


def import_dataset(command: ImportDataset) -> ImportResult:
    """Import the sources of a command.

    Raises:
        UserError: there is no such source, nothing says who speaks, the folder cannot be written or is in
            use, or nothing of the sources can be used (with status 1).
    """
    typed = [*([command.manifest] if command.manifest is not None else []), *command.source]
    downloads = command.output_dir.resolve().parent / DOWNLOADS_NAME
    if command.url:
        download(command.url, downloads)
        typed.append(downloads)
    if not typed:
        raise UserError("there is nothing to import, give --source FOLDER, or --manifest FILE")
    if command.min_clip_s > command.max_clip_s:
        raise UserError(f"--min-clip-s {command.min_clip_s} is above --max-clip-s {command.max_clip_s}")
    for path in typed:
        _require_apart(path, command.output_dir)
    try:
        with contextlib.ExitStack() as stack:
            for path in typed:
                if not path.exists():
                    raise UserError(f"{path}: there is no such file or folder, check the path")
            command.output_dir.joinpath("audio").mkdir(parents=True, exist_ok=True)
            in_use = f"{command.output_dir}: another import is running there, wait for its end or stop it"
            stack.enter_context(locked_folder(command.output_dir / LOCK_NAME, in_use=in_use))
            _remove_leftovers(command.output_dir)
            journal = read_journal(command.output_dir)
            sources = [_opened(path, command, stack) for path in typed]
            for source in sources:
                _read(source, command, journal)
            return _import(sources, command, journal)
    except OSError as error:
        place = error.filename or command.output_dir
        raise UserError(
            f"{place}: {error.strerror or error}; look at the folder, its rights and the disk"
        ) from None


def counted(counts: dict[str, int]) -> str:
    """Return counts by code, the largest first."""
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{count} {code}" for code, count in ordered)


def _require_apart(source: Path, output_dir: Path) -> None:
    """Refuse a source that holds what is imported, or is a part of it."""
    inside, output = source.resolve(), output_dir.resolve()
    if inside.is_relative_to(output):
        raise UserError(f"{source} is in --output-dir already, there is nothing to import")
    if output.is_relative_to(inside):
        raise UserError(f"--output-dir {output_dir} lies in {source}, choose another folder to import to")


def _remove_leftovers(folder: Path) -> None:
    """Remove what an import that was killed had not finished."""
    for aside in (folder / "audio").glob(f"{ASIDE_PREFIX}*"):
        aside.unlink()
    for unfinished in folder.glob(f"{UNPACKED_PREFIX}*"):
        shutil.rmtree(unfinished)


def _opened(path: Path, command: ImportDataset, stack: contextlib.ExitStack) -> _Source:
    root = path
    if is_archive(path):
        max_bytes = int(command.max_unpacked_gb * 1e9)
        root = stack.enter_context(unpacked(path, command.output_dir, max_bytes))
    name = source_name(path, command.output_dir)
    answers = answered(command, read_answers(command.output_dir).get(name, {}))
    if path == command.manifest:
        answers["layout"] = "jsonl"
    return _Source(path, name, root.resolve(), answers)


def _read(source: _Source, command: ImportDataset, journal: Journal) -> None:
    """Read all rows of a source and find out who speaks."""
    allowed = [source.root] if source.root != source.path.resolve() else command.audio_root
    found: list[Found] = []
    seen: dict[str, Found] = {}
    layout = cast(ImportLayout, source.answers["layout"])
    for item in read_source(source.root, layout, AudioFinder(allowed), source.path):
        if isinstance(item, Rejection):
            source.rejections.append(item)
        elif item.key in seen:
            first = seen[item.key].where
            line = "" if first.line is None else f":{first.line}"
            reason = f"{item.key} is already that of {first.file.name}{line}, give each its own"
            source.rejections.append(Rejection(item.where, "duplicate", reason))
        else:
            seen[item.key] = item
            found.append(replace(item, language=item.language or command.language or DEFAULT_LANGUAGE))
    audio = journal.audio.resolve()
    for item in found:
        if item.audio.resolve().is_relative_to(audio):
            raise UserError(f"{item.audio} is in --output-dir already, choose another folder to import to")
    source.found, nameless = with_speakers(found, source.path, source.root, source.answers)
    source.rejections += nameless


def _import(sources: Sequence[_Source], command: ImportDataset, journal: Journal) -> ImportResult:
    keeper = Keeper(journal)
    for source in sources:
        for found, made in _work(source, command, journal, keeper):
            source.rejections += keeper.take_in(source.name, source.root, found, made)
        keeper.finish(source.name, [found.key for found in source.found], prune=command.prune)
    _write_rejected(sources, keeper, command.output_dir)
    rejected = Counter(record["code"] for record in _rejected_now(sources, keeper))
    if not keeper.num_usable:
        raise UserError(_nothing_usable(sources, rejected, command.output_dir), NOTHING_USABLE)
    if keeper.has_new_files:
        os.sync()  # once for all files: the manifest must not survive a power cut that they do not
    journal.write()
    given = {source.name: source.answers for source in sources}
    write_answers(command.output_dir, read_answers(command.output_dir) | given)
    utterances = list(journal.utterances())
    write_utterances(journal.manifest, utterances)
    _tell_of_others(keeper, journal)
    return ImportResult(
        journal.manifest,
        num_utterances=len(utterances),
        num_speakers=len({utterance.speaker for utterance in utterances}),
        total_duration_s=sum(utterance.duration_s for utterance in utterances),
        num_added=keeper.num_added,
        num_changed=keeper.num_changed,
        num_unchanged=keeper.num_unchanged,
        num_pruned=keeper.num_pruned,
        rejected={str(code): count for code, count in rejected.items()},
    )


def _work(
    source: _Source, command: ImportDataset, journal: Journal, keeper: Keeper
) -> Iterator[tuple[Found, Made | None]]:
    """Yield the recordings of a source in order with what became of them; None for one that is as it was."""
    limits = Limits(command.min_clip_s, command.max_clip_s)
    progress = Progress(f"Importing {source.path.name}", len(source.found))
    with ThreadPoolExecutor(command.num_workers or os.cpu_count()) as pool:
        futures = []
        for number, found in enumerate(source.found):
            is_same = keeper.is_same(source.name, found, stamp_of(found, command))
            futures.append(None if is_same else pool.submit(make, found, limits, journal.audio, number))
        try:
            for found, future in zip(source.found, futures, strict=True):
                yield found, None if future is None else future.result()
                progress.advance()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _rejected_now(sources: Sequence[_Source], keeper: Keeper) -> Iterator[dict[str, object]]:
    for source in sources:
        yield from (rejection.record(source.name, source.root) for rejection in source.rejections)
        yield from ({"source": source.name, **record} for record in keeper.rejected_of(source.name))


def _write_rejected(sources: Sequence[_Source], keeper: Keeper, output_dir: Path) -> None:
    """Write what these sources hold that cannot be used; what other sources had stays."""
    path = output_dir / REJECTED_NAME
    names = {source.name for source in sources}
    before: Iterable[dict[str, object]] = ()
    if path.is_file() and path.stat().st_size:
        before = [record for _, record in read_json_lines(path) if record.get("source") not in names]
    records = [*before, *_rejected_now(sources, keeper)]
    if records:
        write_json_lines(path, records)
    else:
        path.unlink(missing_ok=True)


def _nothing_usable(sources: Sequence[_Source], rejected: Counter[object], output_dir: Path) -> str:
    shown = ", ".join(str(source.path) for source in sources)
    reasons = [rejection.reason for source in sources for rejection in source.rejections]
    first = f", the first: {reasons[0]}" if reasons else ""
    counts = counted({str(code): count for code, count in rejected.items()})
    return f"{shown}: nothing can be used ({counts}{first}); {output_dir / REJECTED_NAME} has each"


def _tell_of_others(keeper: Keeper, journal: Journal) -> None:
    """Tell of utterances that these sources no longer hold; they are the user's to remove."""
    if keeper.num_gone:
        logger.warning(
            "%s: %d recordings of an earlier import are no longer in the source; they are kept, "
            "--prune removes them",
            journal.manifest,
            keeper.num_gone,
        )
