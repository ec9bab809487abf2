"""Transcode a recording to temporary files, which become the clips of the project, or link to it.

Threads transcode several recordings at a time: copying, hashing, decoding and speech detection release the
GIL.
"""

import hashlib
import logging
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import soundfile

from indextts.commands.data import ImportDataset
from indextts.data.aligning.aligner import ALIGNING_VERSION, Aligner, readings_of_text
from indextts.data.aligning.cue_timing import fitted_cues
from indextts.data.aligning.subtitle_cuts import plan_cuts
from indextts.data.importing.cleaning import CLEANING_VERSION, OutputFile, clean_clip
from indextts.data.importing.items import Location, Passage, Rejection, Row, safe_suffix
from indextts.data.importing.subtitles import read_cues
from indextts.data.silences import Limits
from indextts.features.audio import RecordingError
from indextts.features.decoding import Readable, as_readable, find_speech_in_file, write_parts
from indextts.features.vad import Span
from indextts.system.digest import file_sha256

logger = logging.getLogger(__name__)

CUTTING_VERSION = 3  # raise it when the rules change, to cut imported recordings again
LINKED, WRITTEN = "linked", "written"  # outcomes of a clip with --link
_BLOCK_BYTES = 2**20


@dataclass(frozen=True)
class Transcoded:
    """Result of transcoding a recording: files, or only rejections if it is unusable."""

    sha256: str
    files: list[OutputFile]
    rejections: list[Rejection]


def recording_stamp(found: Row, command: ImportDataset) -> tuple[object, ...]:
    """Return a stamp that changes when transcoding gives another result; errors as `readings_of_text`."""
    text_file = found.text_file if command.asr else None
    files = [file for file in (found.audio, found.subtitles, text_file) if file is not None]
    stamps: list[object] = [(status.st_size, status.st_mtime_ns) for status in map(Path.stat, files)]
    if found.subtitles is not None:
        stamps.append(
            (
                CUTTING_VERSION,
                command.min_clip_s,
                command.max_clip_s,
                command.subtitle_line,
                found.language,
                found.speaker,
                found.keep,
            )
        )
    elif command.trim or command.loudness:
        stamps.append(("clean", CLEANING_VERSION, command.trim, command.loudness))
    if text_file is not None:
        clips = command.min_clip_s, command.max_clip_s
        kept = found.language, found.speaker, found.keep
        stamps.append(("align", ALIGNING_VERSION, command.asr, *clips, *kept))
        stamps += readings_of_text(command, text_file, found.language or command.language)
    if found.span is not None:
        stamps.append(found.span)
    if command.channel != "auto":
        stamps.append(("channel", command.channel))
    if found.embedded is not None:
        stamps.append((found.embedded.column, found.embedded.row))
    if (link := _link_target(found, command)) is not None:
        stamps.append(("link", str(link)))
    return tuple(stamps)


def _link_target(found: Row, command: ImportDataset) -> Path | None:
    """Return the file that a clip may link to; None for a recording that has to be written to the project."""
    is_part = found.subtitles is not None or found.span is not None or found.embedded is not None
    if not command.link or is_part:
        return None
    path = found.audio.resolve()  # a symlink could later lead outside of the allowed folders
    try:
        str(path).encode()
    except UnicodeEncodeError:  # a name that a manifest cannot contain
        return None
    is_temporary = path.is_relative_to(command.output_dir.resolve())
    return None if is_temporary else path


def transcode(
    rows: Sequence[Row], command: ImportDataset, folder: Path, aligner: Aligner | None = None
) -> list[Transcoded]:
    """Write the files of a recording in `folder`, or link to it; return the result of each of its rows.

    Args:
        rows: one row, or spans of one recording, which is decoded once for all of them.
        folder: a temporary one of this recording, which may contain the recording itself.
        aligner: cuts long recordings with a text.

    Raises:
        OSError: `folder` cannot be written.
        UserError: the recognizer of the aligner cannot be used.
    """
    found = rows[0]
    places = [row.where if row.embedded or row.span else Location(row.audio) for row in rows]
    try:
        sha256 = file_sha256(found.audio)
    except OSError as error:
        return _unusable(places, "", "unreadable_audio", error.strerror or str(error))
    readable = as_readable(found.audio, folder / "decoded.flac", command.channel)
    if isinstance(readable, tuple):
        return _unusable(places, sha256, *readable)
    try:
        if found.span is not None:
            return _cut_spans(rows, readable, sha256, command, folder)
        return [_transcode(found, readable, sha256, command, folder, aligner)]
    except (RecordingError, soundfile.LibsndfileError) as error:  # it may have changed meanwhile
        reason = error.reason if isinstance(error, RecordingError) else str(error)
        return _unusable(places, sha256, "unreadable_audio", reason)


def _unusable(places: Sequence[Location], sha256: str, code: str, reason: str) -> list[Transcoded]:
    return [Transcoded(sha256, [], [Rejection(place, code, reason)]) for place in places]


def _transcode(
    found: Row, readable: Readable, sha256: str, command: ImportDataset, folder: Path, aligner: Aligner | None
) -> Transcoded:
    if found.text_file is not None and aligner is not None and readable.duration_s > command.max_clip_s:
        plan = aligner.plan(readable.path, found, folder / "costs")
        return _cut(readable, plan, sha256, folder)
    if found.text_file is not None and not found.text:
        reason = "the text is too long for a clip; pass --asr to find when its sentences are spoken"
        return Transcoded(sha256, [], [Rejection(found.where, "line_too_long", reason)])
    if found.subtitles is not None:
        assert found.language is not None
        cues, is_rolling, refused = read_cues(
            found.subtitles, found.audio, found.language, found.keep, command.subtitle_line
        )
        limits, plan = Limits(command.min_clip_s, command.max_clip_s), []
        if cues:
            speech, duration_s = find_speech_in_file(readable.path)
            if not is_rolling:
                cues, unfit = fitted_cues(found.subtitles, cues, speech, duration_s)
                refused += unfit
            plan = plan_cuts(found.subtitles, cues, speech, duration_s, limits, is_rolling=is_rolling)
            num_cut = sum(isinstance(item, Rejection) and item.code == "no_pause" for item in plan)
            if 3 * num_cut > 2 * len(plan):
                text = "%s: %d of %d clips have no pause at their borders; do the times fit the speech?"
                logger.warning(text, found.subtitles, num_cut, len(plan))
        return _cut(readable, [*refused, *plan], sha256, folder)
    link = _link_target(found, command)
    is_link = link is not None and readable.path == found.audio
    path = link if link is not None and is_link else readable.path
    if not is_link and path.parent != folder:  # neither decoded nor from a parquet file
        path = Path(shutil.copyfile(path, folder / f"copy{safe_suffix(path.suffix)}"))
    file = OutputFile(path, readable.duration_s, is_link=is_link, outcomes=readable.outcomes)
    return Transcoded(sha256, [_finished(file, folder / "clean.flac", command)], [])


def _finished(file: OutputFile, cleaned: Path, command: ImportDataset) -> OutputFile:
    """Return a clip after the clean-up, with the outcome of --link."""
    if command.trim or command.loudness:
        file = clean_clip(file, cleaned, command.trim, command.loudness)
    if command.link:
        file = replace(file, outcomes=(*file.outcomes, LINKED if file.is_link else WRITTEN))
    return file


def _cut_spans(
    rows: Sequence[Row], readable: Readable, sha256: str, command: ImportDataset, folder: Path
) -> list[Transcoded]:
    """Return the clip of each span of a recording."""
    spans = [row.span for row in rows if row.span is not None]
    files = _write_files(readable, [Passage(*span, "", line=0) for span in spans], folder)
    results = []
    for number, (span, file) in enumerate(zip(spans, files, strict=True)):
        digest = hashlib.sha256(f"{sha256} {span[0]} {span[1]}".encode()).hexdigest()
        clip = _finished(replace(file, cut=None), folder / f"clean{number}.flac", command)
        results.append(Transcoded(digest, [clip], []))
    return results


def _cut(readable: Readable, plan: Sequence[Passage | Rejection], sha256: str, folder: Path) -> Transcoded:
    files = _write_files(readable, [item for item in plan if isinstance(item, Passage)], folder)
    return Transcoded(sha256, files, [item for item in plan if isinstance(item, Rejection)])


def _write_files(readable: Readable, cuts: Sequence[Passage], folder: Path) -> list[OutputFile]:
    """Write parts of a recording; return their files."""
    targets = [folder / f"{index}.flac" for index in range(len(cuts))]
    durations = write_parts(readable.path, [Span(cut.start_s, cut.end_s) for cut in cuts], targets)
    return [
        OutputFile(target, duration_s, cut=cut, outcomes=readable.outcomes)
        for target, duration_s, cut in zip(targets, durations, cuts, strict=True)
    ]
