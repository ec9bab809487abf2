"""Clean the clips that the check flagged for noise or music; the inputs stay (cleaned.py has the files).

Noise is removed by RNNoise, and music, voices and other sounds by Demucs (features/cleaners.py). The cleaned
clip replaces the input in the manifest only if listeners would prefer it: DNSMOS OVRL rises by MIN_GAIN and
SIG, which falls where speech is damaged, does not fall by more than MAX_LOSS. The manifest names the input as
`original`. A killed run resumes at the clip; the check has to run again afterwards.
"""

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from indextts.commands.data import CleanAudio
from indextts.data.cleaned import (
    CLEANED_NAME,
    INSTALL,
    METHOD_OF,
    missing_packages,
    read_cleaned,
    shown_scores,
)
from indextts.data.importing.importer import LOCK_NAME
from indextts.data.importing.items import source_name
from indextts.data.importing.journal import Clip, Entry, Journal, read_journal
from indextts.data.manifest import write_utterances
from indextts.data.progress import Progress
from indextts.data.quality.measures import measure_audio
from indextts.data.review import check_folder
from indextts.data.review_table import CLIPS_NAME
from indextts.errors import UserError, disk_errors
from indextts.features import dnsmos
from indextts.features.audio import RecordingError, flac, load_audio, read_channels, to_mono
from indextts.features.cleaners import VoiceSeparator, without_noise
from indextts.system.amounts import counted
from indextts.system.digest import file_sha256
from indextts.system.files import write_bytes
from indextts.system.json_lines import append_json_line, read_json_lines
from indextts.system.locks import locked_folder

logger = logging.getLogger(__name__)

MIN_GAIN = 0.1  # points of OVRL
MAX_LOSS = 0.5  # points of SIG, which noise raises: clean speech had up to 0.6 less than with noise
MAX_CLIP_S = 60.0


@dataclass(frozen=True)
class CleanReport:
    """Numbers of clips: flagged, tried before, used now, no better than before, and restored."""

    num_flagged: int = 0
    num_known: int = 0
    num_used: int = 0
    num_kept: int = 0
    num_restored: int = 0

    def __str__(self) -> str:
        if self.num_restored:
            return f"{counted(self.num_restored, 'clip')} restored; check again"
        return (
            f"{counted(self.num_flagged, 'flagged clip')}: {self.num_used} replaced by a cleaned one, "
            f"{self.num_kept} kept because cleaning did not help, {self.num_known} tried before; check again"
        )


def clean_audio(command: CleanAudio) -> CleanReport:
    """Clean the flagged clips of a data set.

    Raises:
        UserError: the packages are missing, the set was not checked, is in use or cannot be written, or the
            separation model cannot be loaded.
    """
    if missing := missing_packages():
        raise UserError(f"cleaning requires {' and '.join(missing)}; run {INSTALL}")
    folder = command.manifest.parent
    in_use = f"{folder}: an import writes to this folder; wait for it or stop it"
    with disk_errors(folder), locked_folder(folder / LOCK_NAME, in_use=in_use):
        journal = read_journal(folder)
        if command.restore:
            return CleanReport(num_restored=_restore(journal, command.restore))
        return _clean(command, journal, dict(_flagged(command.manifest)))


def _flagged(manifest: Path) -> Iterator[tuple[str, str]]:
    """Yield the ids of flagged clips, with the method for them."""
    path = check_folder(manifest) / CLIPS_NAME
    if not path.is_file():
        raise UserError(f"{manifest}: was not checked; run check_amharic_data.py with --report-dir first")
    for _, record in read_json_lines(path):
        flags: Any = record.get("flags") or ()
        methods = {METHOD_OF[flag["reason"]] for flag in flags if flag["reason"] in METHOD_OF}
        if methods:
            yield str(record["id"]), "music" if "music" in methods else "noise"


def _clean(command: CleanAudio, journal: Journal, methods: Mapping[str, str]) -> CleanReport:
    known = read_cleaned(command.manifest)
    outcomes: Counter[str] = Counter()
    separator: VoiceSeparator | None = None
    todo = [
        (name, clip)
        for name, entry in journal.entries.items()
        for clip in entry.clips
        if clip.id in methods and clip.speaker
    ]
    progress = Progress("Cleaning", len(todo))
    for name, clip in todo:
        progress.advance()
        path = journal.audio / clip.audio
        digest = file_sha256(path) if path.is_file() else ""
        record = known.get(clip.id)
        if record and _is_done(record, clip, digest):
            outcomes["known"] += 1
            continue
        try:
            channels, rate_hz = read_channels(path, MAX_CLIP_S)  # (S, C)
        except RecordingError as error:  # the check names the problem
            logger.warning("%s; not cleaned", error)
            outcomes["kept"] += 1
            continue
        samples = to_mono(channels, rate_hz)  # (S,)
        if methods[clip.id] == "noise":
            cleaned = without_noise(samples, rate_hz)
        else:
            separator = separator or _separator(command)
            cleaned = separator.separate(samples, rate_hz)
        target = journal.audio / f"{path.stem}-clean.flac"
        write_bytes(target, flac(cleaned, rate_hz, "PCM_24"))
        before, after = _scores(path), _scores(target)
        gains = {name: (after[name] or 0.0) - (before[name] or 0.0) for name in ("ovrl", "sig")}
        is_used = gains["ovrl"] >= MIN_GAIN and gains["sig"] >= -MAX_LOSS
        outcomes["used" if is_used else "kept"] += 1
        found = {
            "id": clip.id,
            "method": methods[clip.id],
            "input": clip.audio,
            "input_sha256": digest,
            "original": clip.original,
            "before": before,
            "after": after,
            "is_used": is_used,
        }
        append_json_line(command.manifest.parent / CLEANED_NAME, found)
        logger.info("%s: %s", clip.id, shown_scores(found))
        if is_used:
            _replace(journal, journal.entries[name], clip, target.name)
        else:
            target.unlink()
    write_utterances(journal.manifest, journal.utterances(), keeps_links=True)
    return CleanReport(len(todo), outcomes["known"], outcomes["used"], outcomes["kept"])


def _is_done(record: Mapping[str, Any], clip: Clip, digest: str) -> bool:
    """Return whether a clip is cleaned, or was tried and is better as it is."""
    return bool(clip.audio != record["input"] if record["is_used"] else digest == record["input_sha256"])


def _restore(journal: Journal, ids: Sequence[str]) -> int:
    """Use the inputs of cleaned clips again, and record that they are not to be cleaned; return how many."""
    known = read_cleaned(journal.manifest)
    num_restored = 0
    for entry in list(journal.entries.values()):
        for clip in entry.clips:
            record = known.get(clip.id)
            if clip.id in ids and record and record["is_used"] and clip.audio != record["input"]:
                append_json_line(journal.folder / CLEANED_NAME, {**record, "is_used": False})
                before = replace(clip, audio=record["input"], original=record["original"])
                _change(journal, entry.source, entry.key, before)
                num_restored += 1
    write_utterances(journal.manifest, journal.utterances(), keeps_links=True)
    return num_restored


def _separator(command: CleanAudio) -> VoiceSeparator:
    from indextts.data.batch_sizing import choose_device  # imported here because it imports torch

    return VoiceSeparator(command.model, choose_device(command.device))


def _scores(path: Path) -> dict[str, float | None]:
    mono = load_audio(path, dnsmos.SAMPLE_RATE_HZ, MAX_CLIP_S)
    measures, _, _ = measure_audio(path)
    snr_db = measures["snr_db"]
    rated = {name: round(score, 3) for name, score in zip(dnsmos.NAMES, dnsmos.rate(mono), strict=True)}
    return {**rated, "snr_db": None if snr_db is None else round(snr_db, 1)}


def _replace(journal: Journal, entry: Entry, clip: Clip, cleaned: str) -> None:
    """Replace the recording of a clip; the input becomes its original, unless it has one already."""
    shown = source_name(journal.audio / clip.audio, journal.folder)
    _change(journal, entry.source, entry.key, replace(clip, audio=cleaned, original=clip.original or shown))


def _change(journal: Journal, source: str, key: str, changed: Clip) -> None:
    entry = journal.entries[source, key]
    clips = tuple(changed if other.id == changed.id else other for other in entry.clips)
    journal.add(replace(entry, clips=clips))
