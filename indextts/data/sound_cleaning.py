"""Remove hum from the clips that the check flagged; the inputs stay (cleaned.py has the files).

Other noise stays: removing it helped no recognizer (docs/lab/cleaning.md). The cleaned clip replaces the
input in the manifest only if it sounds better, the speech survived, and a recognizer, if there is one,
understands it as well as before:

    DNSMOS         OVRL rises by MIN_GAIN, and SIG does not fall by more than MAX_LOSS
    speech         at most MAX_LOST is lost: DNSMOS rewards the absence of noise, not of damage
    errors         of --asr against the text: no more than before

The manifest names the input as `original`. A killed run resumes at the clip; the check has to run again
afterwards.
"""

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from indextts.commands.data import CleanAudio
from indextts.commands.normalizer_options import NormalizerOptions
from indextts.data.cleaned import CLEANED_NAME, MAY_HUM, read_cleaned, shown_scores
from indextts.data.importing.importer import LOCK_NAME
from indextts.data.importing.items import source_name
from indextts.data.importing.journal import Clip, Journal, read_journal
from indextts.data.manifest import write_utterances
from indextts.data.progress import Progress
from indextts.data.quality.heard import load_chosen
from indextts.data.quality.measures import measure_audio
from indextts.data.review import check_folder
from indextts.data.review_table import CLIPS_NAME
from indextts.errors import UserError, disk_errors
from indextts.features import dnsmos
from indextts.features.audio import RecordingError, flac, load_audio, read_channels, to_mono
from indextts.features.cleaners import lost_speech, without_hum
from indextts.system.amounts import counted
from indextts.system.digest import file_sha256
from indextts.system.disk import locked_folder
from indextts.system.files import write_bytes
from indextts.system.json_lines import append_json_line, read_json_lines
from indextts.text.transcripts import count_errors

if TYPE_CHECKING:  # it imports torch
    from indextts.features.recognizers.recognizer import Recognizer

logger = logging.getLogger(__name__)

MIN_GAIN = 0.1  # points of OVRL
MAX_LOSS = 0.5  # points of SIG, which noise raises: clean speech had up to 0.6 less than with noise
MAX_LOST = 0.05  # of the speech
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
            f"{self.num_kept} kept because they do not hum or cleaning did not help, "
            f"{self.num_known} tried before; check again"
        )


def clean_audio(command: CleanAudio) -> CleanReport:
    """Clean the flagged clips of a data set.

    Raises:
        UserError: the set was not checked, is in use or cannot be written, or the recognizer cannot be used.
    """
    folder = command.manifest.parent
    in_use = f"{folder}: an import writes to this folder; wait for it or stop it"
    with disk_errors(folder), locked_folder(folder / LOCK_NAME, in_use=in_use):
        journal = read_journal(folder)
        if command.restore:
            return CleanReport(num_restored=_restore(journal, command.restore))
        return _clean(command, journal, set(_flagged(command.manifest)))


def _flagged(manifest: Path) -> Iterator[str]:
    """Yield the ids of clips with a flag for noise or music."""
    path = check_folder(manifest) / CLIPS_NAME
    if not path.is_file():
        raise UserError(f"{manifest}: was not checked; run check_amharic_data.py with --report-dir first")
    for _, record in read_json_lines(path):
        flags: Any = record.get("flags") or ()
        if any(flag["reason"] in MAY_HUM for flag in flags):
            yield str(record["id"])


def _clean(command: CleanAudio, journal: Journal, flagged: Set[str]) -> CleanReport:
    known = read_cleaned(command.manifest)
    outcomes: Counter[str] = Counter()
    todo = [
        (name, clip)
        for name, entry in journal.entries.items()
        for clip in entry.clips
        if clip.id in flagged and clip.speaker
    ]
    recognizer = load_chosen(command, todo[0][1].language) if command.asr and todo else None
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
        cleaned = without_hum(samples, rate_hz)
        if cleaned is None:  # it does not hum
            outcomes["kept"] += 1
            continue
        target = journal.audio / f"{path.stem}-clean.flac"
        write_bytes(target, flac(cleaned, rate_hz, "PCM_24"))
        before, after = _scores(path), _scores(target)
        gains = {name: (after[name] or 0.0) - (before[name] or 0.0) for name in ("ovrl", "sig")}
        after["lost"] = round(lost_speech(samples, cleaned, rate_hz), 3)
        is_used = gains["ovrl"] >= MIN_GAIN and gains["sig"] >= -MAX_LOSS and after["lost"] <= MAX_LOST
        if is_used and recognizer:
            before["errors"], after["errors"] = _errors(recognizer, clip, path, target)
            is_used = after["errors"] <= before["errors"]
        outcomes["used" if is_used else "kept"] += 1
        found = {
            "id": clip.id,
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
            original = clip.original or source_name(path, journal.folder)
            _change(journal, *name, replace(clip, audio=target.name, original=original))
        else:
            target.unlink()
    write_utterances(journal.manifest, journal.utterances(), keeps_links=True)
    return CleanReport(len(todo), outcomes["known"], outcomes["used"], outcomes["kept"])


def _errors(recognizer: "Recognizer", clip: Clip, *paths: Path) -> list[int]:
    """Return the number of edits between the text of a clip and what is heard in each of its files."""
    options = NormalizerOptions(language=clip.language)
    sounds = [load_audio(path, recognizer.sample_rate_hz, MAX_CLIP_S) for path in paths]
    return [count_errors(clip.text, text, options).edits for text in recognizer.transcribe(sounds)]


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


def _scores(path: Path) -> dict[str, Any]:
    mono = load_audio(path, dnsmos.SAMPLE_RATE_HZ, MAX_CLIP_S)
    measures, _, _ = measure_audio(path)
    snr_db = measures["snr_db"]
    rated = {name: round(score, 3) for name, score in zip(dnsmos.NAMES, dnsmos.rate(mono), strict=True)}
    return {**rated, "snr_db": None if snr_db is None else round(snr_db, 1)}


def _change(journal: Journal, source: str, key: str, changed: Clip) -> None:
    entry = journal.entries[source, key]
    clips = tuple(changed if other.id == changed.id else other for other in entry.clips)
    journal.add(replace(entry, clips=clips))
