"""Importing: recordings and their manifest, copied into a project.

    OUTPUT_DIR/
      manifest.jsonl         written last: without it nothing was imported
      audio/NAME.SUFFIX      copies; NAME is the id, made safe for any file system

Everything is read and checked before the first byte is written.
"""

import hashlib
import logging
import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from indextts.data.feature_shards import file_sha256
from indextts.data.progress import Progress
from indextts.data.recordings import with_true_durations
from indextts.errors import UserError
from indextts.manifest import Utterance, read_numbered_utterances, write_utterances

logger = logging.getLogger(__name__)

MANIFEST_NAME = "manifest.jsonl"
AUDIO_FOLDER_NAME = "audio"

# Lower case only: on some file systems A.wav and a.wav are one file.
_SAFE_NAME = re.compile(r"[a-z0-9_][a-z0-9_.-]{0,99}")
_SAFE_SUFFIX = re.compile(r"\.[a-z0-9]{1,8}")


@dataclass(frozen=True)
class ImportResult:
    """What stands in the project after an import.

    Args:
        num_copied: recordings that were copied now; the others were there already.
    """

    manifest: Path
    num_utterances: int
    num_speakers: int
    total_duration_s: float
    num_copied: int

    def __str__(self) -> str:
        return (
            f"{self.manifest}: {self.num_utterances} utterances, {self.total_duration_s / 3600:.2f} hours, "
            f"{self.num_speakers} speakers; {self.num_copied} recordings copied, "
            f"{self.num_utterances - self.num_copied} were there already"
        )


def import_dataset(manifest: Path, output_dir: Path) -> ImportResult:
    """Copy a data set into `output_dir`; the same input again changes nothing.

    Raises:
        UserError: something is wrong with the manifest or a recording, and nothing was written; or the
            folder cannot be written.
    """
    sources = with_true_durations(manifest, read_numbered_utterances(manifest))
    output_manifest = output_dir / MANIFEST_NAME
    audio_folder = output_dir.resolve() / AUDIO_FOLDER_NAME
    _require_apart(manifest, sources, output_manifest, audio_folder)
    targets = [replace(source, audio=audio_folder / _file_name(source)) for source in sources]
    try:
        num_copied = _copy_all(sources, targets, output_manifest)
    except OSError as error:
        raise UserError(f"{output_dir}: cannot copy ({error}), look at the folder and the disk") from None
    _log_orphans(audio_folder, targets)
    write_utterances(output_manifest, targets)
    return ImportResult(
        output_manifest,
        num_utterances=len(targets),
        num_speakers=len({target.speaker for target in targets}),
        total_duration_s=sum(target.duration_s for target in targets),
        num_copied=num_copied,
    )


def _require_apart(
    manifest: Path, sources: Sequence[Utterance], output_manifest: Path, audio_folder: Path
) -> None:
    """Refuse an input that the import would overwrite while reading it."""
    if manifest.resolve() == output_manifest.resolve():
        raise UserError(f"{manifest} is in --output-dir already, there is nothing to import")
    for folder in {source.audio.parent for source in sources}:
        if audio_folder in (folder.resolve() / "file").parents:
            raise UserError(f"{folder} is in --output-dir already, choose another folder to import to")


def _copy_all(sources: Sequence[Utterance], targets: Sequence[Utterance], output_manifest: Path) -> int:
    """Copy what is not there already; return how many were copied."""
    audio_folder = targets[0].audio.parent
    audio_folder.mkdir(parents=True, exist_ok=True)
    for leftover in audio_folder.glob(".part-*"):  # of an import that was killed
        leftover.unlink()
    num_copied = 0
    progress = Progress("Importing", len(sources))
    for source, target in zip(sources, targets, strict=True):
        if not _is_copied(source.audio, target.audio):
            output_manifest.unlink(missing_ok=True)  # it would not fit the files while they change
            aside = target.audio.with_name(f".part-{target.audio.name}")
            shutil.copyfile(source.audio, aside)
            aside.replace(target.audio)
            num_copied += 1
        progress.advance()
    if num_copied:
        os.sync()  # once for all files: the manifest must not survive a power cut that they do not
    return num_copied


def _is_copied(source: Path, target: Path) -> bool:
    if not target.is_file() or target.stat().st_size != source.stat().st_size:
        return False
    return file_sha256(target) == file_sha256(source)


def _file_name(utterance: Utterance) -> str:
    """Return a name that is safe everywhere and differs for every id, whatever the order of the lines."""
    suffix = utterance.audio.suffix.lower()
    if not _SAFE_SUFFIX.fullmatch(suffix):
        suffix = ""
    if _SAFE_NAME.fullmatch(utterance.id):
        return utterance.id + suffix
    readable = re.sub(r"[^a-z0-9_]+", "_", utterance.id.lower())[:80]
    return f"{readable}-{hashlib.sha256(utterance.id.encode()).hexdigest()[:16]}{suffix}"


def _log_orphans(audio_folder: Path, targets: Sequence[Utterance]) -> None:
    """Tell of files of an earlier import; they are the user's to delete."""
    names = {target.audio.name for target in targets}
    orphans = sorted(path.name for path in audio_folder.iterdir() if path.name not in names)
    if orphans:
        logger.warning(
            "%s: %d files belong to no utterance of the new manifest (%s, ...); they are left as they are",
            audio_folder,
            len(orphans),
            orphans[0],
        )
