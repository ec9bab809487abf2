"""Turn recordings without texts into a data set: cut, hear with one or two recognizers, keep what both hear.

    OUTPUT_DIR/
      manifest.jsonl    written last: an utterance for each clip with a text, with its provenance
      audio/            the clips (cutting.py)
      measured/         the recordings that are cut (cutting.py), and what each recognizer heard,
                        heard-NAME.jsonl:
                        {"audio": sha256, "result": {"heard": "...", "score": -0.21}}
      agreement.json    limit and curve of yield (AgreementReport)

`score` is the log-probability of the best path of a CTC model, in nats per letter of its text: how sure the
model is; null for other models and clips without a text. The recognizer is part of the file's version.

A killed run resumes: recordings that are cut and clips that were heard are not computed again. The manifest
is an ordinary one. Its doubtful transcripts are used only if a person keeps them in the review.
"""

import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from indextts.commands.data import Transcribe
from indextts.commands.normalizer_options import NormalizerOptions
from indextts.data.manifest import Provenance, Utterance, write_utterances
from indextts.data.progress import Progress
from indextts.data.silences import Limits
from indextts.data.stored_results import StoredResults
from indextts.data.transcribing.agreement import (
    REPORT_NAME,
    AgreementReport,
    Comparison,
    choose_limit,
    compare,
    yield_curve,
)
from indextts.data.transcribing.cutting import (
    AUDIO_NAME,
    CutClip,
    Recording,
    cut_recordings,
    find_recordings,
    lost_amounts,
)
from indextts.errors import UserError, disk_errors
from indextts.features.recognizers.first_transcripts import NUM_FIRST, counts, require_language
from indextts.system.amounts import counted, shown_duration
from indextts.system.disk import locked_folder
from indextts.system.files import write_json
from indextts.text.languages import find_language

if TYPE_CHECKING:  # it imports torch
    from indextts.features.recognizers.recognizer import Recognizer

logger = logging.getLogger(__name__)

MANIFEST_NAME = "manifest.jsonl"
LOCK_NAME = ".transcribe.lock"
NOTHING_HEARD = 1

VERSION = 1  # of the stored transcripts; raise it when they change

LOST = {
    "no_pause": "speech without a pause for more than --max-clip-s",
    "too_short": "parts shorter than --min-clip-s",
}


@dataclass(frozen=True, slots=True)
class Reading:
    """Transcript of a clip by a recognizer, and its confidence in nats per letter if it has one."""

    text: str
    score: float | None


def transcribe(command: Transcribe) -> AgreementReport:
    """Write the data set of a command.

    Raises:
        UserError: a source or a recognizer cannot be used, the folder cannot be written or is in use, or
            nothing was heard (status 1).
    """
    if command.min_clip_s > command.max_clip_s:
        raise UserError(
            f"--min-clip-s {command.min_clip_s:g} is above --max-clip-s {command.max_clip_s:g}; lower it"
        )
    if len(command.asr) != 2 and command.max_disagreement is not None:
        raise UserError("--max-disagreement compares two recognizers; pass --asr twice")
    recordings = find_recordings(command.source, command.speaker, command.speaker_from)
    folder = command.output_dir
    with disk_errors(f"--output-dir {folder}"):
        (folder / AUDIO_NAME).mkdir(parents=True, exist_ok=True)
    in_use = f"{folder}: another transcription writes to this folder; wait for it or stop it"
    with locked_folder(folder / LOCK_NAME, in_use=in_use):
        return _transcribe(command, recordings, folder)


def _transcribe(command: Transcribe, recordings: Sequence[Recording], folder: Path) -> AgreementReport:
    # imported here because they import torch and transformers, which takes seconds
    from indextts.data.batch_sizing import choose_device
    from indextts.features.recognizers.loading import load_recognizers

    language = find_language(command.language).code
    device = choose_device(command.device)
    # loaded first, so that an unusable recognizer does not cost the time of cutting
    recognizers = load_recognizers(command.asr, device, language, command.asr_folder)
    limits = Limits(command.min_clip_s, command.max_clip_s)
    cut = cut_recordings(recordings, folder, limits, command.num_workers)
    for reason, (count, seconds) in lost_amounts(cut).items():
        what, amount = LOST.get(reason, reason), f", {shown_duration(seconds)}" if seconds else ""
        logger.warning("left out: %s (%s%s)", what, counted(count, "part"), amount)
    clips = [clip for each in cut for clip in each.clips]
    readings = [_hear(clips, each, folder, language) for each in recognizers]
    pairs = zip(clips, zip(*readings, strict=True), strict=True)
    heard = [(clip, found) for clip, found in pairs if any(each.text.strip() for each in found)]
    if not heard:
        shown = ", ".join(map(str, command.source))
        raise UserError(
            f"{shown}: no recognizer heard a text in {counted(len(clips), 'clip')}; listen to some clips, "
            "and pass recognizers for the language with --asr",
            NOTHING_HEARD,
        )
    names = [recognizer.name for recognizer in recognizers]
    families = {recognizer.family for recognizer in recognizers}
    options = NormalizerOptions(language=language)
    compared = [
        compare(found[0].text, found[1].text, clip.duration, options)
        for clip, found in (heard if len(names) > 1 else ())
    ]
    curve = yield_curve(compared)
    limit = command.max_disagreement
    if limit is None and compared:
        limit = choose_limit(curve)
    provenances = [
        _provenance(names, found, compared[place] if compared else None, limit)
        for place, (_, found) in enumerate(heard)
    ]
    of_clip = {
        clip.id: recording for recording, each in zip(recordings, cut, strict=True) for clip in each.clips
    }
    utterances = [
        _utterance(clip, found, provenance, of_clip[clip.id], folder, language)
        for (clip, found), provenance in zip(heard, provenances, strict=True)
    ]
    kept = [utterance for utterance in utterances if not utterance.is_doubtful]
    report = AgreementReport(
        recognizers=names,
        limit=limit,
        is_chosen=command.max_disagreement is None,
        num_clips=len(utterances),
        hours=sum(utterance.duration_s for utterance in utterances) / 3600,
        num_kept=len(kept),
        hours_kept=sum(utterance.duration_s for utterance in kept) / 3600,
        num_silent=len(clips) - len(heard),
        curve=curve,
        shared_family=families.pop() if len(families) < len(names) else "",
    )
    write_json(folder / REPORT_NAME, asdict(report))
    write_utterances(folder / MANIFEST_NAME, utterances)
    return report


def _hear(clips: Sequence[CutClip], recognizer: "Recognizer", folder: Path, language: str) -> list[Reading]:
    """Return what a recognizer hears in each clip; what it heard before is not transcribed again."""
    from indextts.features.recognizers.recognizer import heard_in

    with StoredResults(folder, f"heard-{recognizer.name}", f"{VERSION} {recognizer.identity}") as store:
        todo = {clip.sha256: clip for clip in clips if clip.sha256 not in store.known}
        progress = Progress("Transcribing", len(todo), sum(clip.duration for clip in todo.values()))
        first = {clip.sha256 for clip in clips[:NUM_FIRST]}
        for is_first in (True, False):
            group = [clip for clip in todo.values() if (clip.sha256 in first) is is_first]
            paths = [folder / AUDIO_NAME / clip.audio for clip in group]
            for clip, (text, scores) in zip(group, heard_in(recognizer, paths), strict=True):
                num_letters = sum(char.isalnum() for char in text)
                score = None
                if scores is not None and num_letters:
                    score = round(float(scores.max(dim=-1).values.sum()) / num_letters, 4)
                store.add(clip.sha256, {"heard": text, "score": score})
                progress.advance(clip.duration)
            if is_first:
                texts = [store.known[clip.sha256]["heard"] for clip in clips[:NUM_FIRST]]
                require_language(recognizer.name, language, texts)
        results = [store.known[clip.sha256] for clip in clips]
    num_loops, num_empty = counts([result["heard"] for result in results])
    if num_loops or num_empty:
        shown = counted(len(results), "transcript")
        logger.warning("%s: %d loop and %d empty of %s", recognizer.name, num_loops, num_empty, shown)
    return [Reading(result["heard"], result["score"]) for result in results]


def _provenance(
    names: Sequence[str], readings: Sequence[Reading], compared: Comparison | None, limit: float | None
) -> Provenance:
    """Return the provenance of the text, which is doubtful unless two recognizers agree on it."""
    score = readings[0].score
    if compared is None or limit is None:
        return Provenance(kind="heard", by=tuple(names), score=score, is_doubtful=True)
    return Provenance(
        kind="heard",
        by=tuple(names),
        disagreement=round(compared.disagreement, 4),
        score=score,
        other=readings[1].text,
        is_doubtful=compared.disagreement > limit,
    )


def _utterance(
    clip: CutClip,
    readings: Sequence[Reading],
    provenance: Provenance,
    recording: Recording,
    folder: Path,
    language: str,
) -> Utterance:
    """Return the clip with what the first recognizer heard, or the second where the first heard nothing."""
    text = next(each.text for each in readings if each.text.strip())
    return Utterance(
        clip.id,
        (folder / AUDIO_NAME / clip.audio).resolve(),
        text,
        recording.speaker,
        clip.duration,
        language,
        recording=recording.id,
        provenance=provenance,
    )
