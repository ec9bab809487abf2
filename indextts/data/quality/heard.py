"""Transcripts of the clips by a speech recognizer, compared with their texts.

    REPORT_DIR/measured/heard.jsonl    {"audio": sha256, "result": {"text", "heard", "alignment"}}

`heard` is the transcript, `alignment` the fit of the letters `text` to the sound by a CTC model
(features/recognizers/ctc.py), null for other models. The recognizer is part of the file's version. The
next check transcribes only new clips, and those whose text has changed and has to be aligned. Of copies of a
recording with different texts, one text is aligned.

The comparison ignores spelling, spaces and punctuation (text/transcripts.py).
"""

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from indextts.commands.data import CheckData, CleanAudio, ImportDataset
from indextts.commands.normalizer_options import NormalizerOptions, of_language
from indextts.data.progress import Progress
from indextts.data.quality.clips import Clip
from indextts.data.quality.text_fit import Heard
from indextts.data.stored_results import StoredResults
from indextts.features.recognizers.first_transcripts import NUM_FIRST, require_language
from indextts.text.transcripts import Errors, edges, edit_distance, scored

if TYPE_CHECKING:  # it imports torch
    from indextts.features.recognizers.recognizer import Recognizer

logger = logging.getLogger(__name__)

NAME = "heard"
VERSION = 1  # raise it when the stored results change


def load_chosen(command: CheckData | CleanAudio | ImportDataset, language: str) -> "Recognizer":
    """Return the recognizer `--asr`; a UserError if it cannot be loaded."""
    # imported here because they import torch and transformers, which takes seconds
    from indextts.data.batch_sizing import choose_device
    from indextts.features.recognizers.loading import load_recognizers

    device = choose_device(command.device)
    [recognizer] = load_recognizers([command.asr], device, language, command.asr_folder)
    return recognizer


def hear_clips(
    clips: Sequence[Clip], recognizer: "Recognizer", report_dir: Path | None, options: NormalizerOptions
) -> None:
    """Add what the recognizer hears to each clip that can be read.

    Args:
        options: of the normaliser, for texts of its language.

    Raises:
        UserError: the results cannot be stored, or the recognizer cannot write the language.
    """
    # imported here because they import torch, which takes seconds
    from indextts.features.recognizers.ctc import CtcRecognizer
    from indextts.features.recognizers.recognizer import heard_in

    options_of = [of_language(options, clip.utterance.language or options.language) for clip in clips]
    texts = [scored(clip.utterance.text, own) for clip, own in zip(clips, options_of, strict=True)]
    with StoredResults(report_dir, NAME, f"{VERSION} {recognizer.identity}") as stored:
        places_of: dict[str, list[int]] = defaultdict(list)
        for place, clip in enumerate(clips):
            if clip.sound.file_sha256:
                places_of[clip.sound.file_sha256].append(place)
        todo = [
            (digest, places[0])
            for digest, places in places_of.items()
            if (result := stored.known.get(digest)) is None
            or (result["alignment"] is not None and result["text"] not in {texts[p] for p in places})
        ]
        progress = Progress("Transcribing", len(todo))
        first = [(digest, places[0]) for digest, places in places_of.items()][:NUM_FIRST]
        for is_first in (True, False):
            group = [each for each in todo if (each in first) is is_first]
            found = heard_in(recognizer, [clips[place].utterance.audio for _, place in group])
            for (digest, place), (heard, scores) in zip(group, found, strict=True):
                alignment = None
                if isinstance(recognizer, CtcRecognizer) and scores is not None:
                    alignment = recognizer.alignment_score(scores, texts[place])
                rounded = None if alignment is None else round(alignment, 4)
                stored.add(digest, {"text": texts[place], "heard": heard, "alignment": rounded})
                progress.advance()
            if is_first:
                heard_first = [stored.known[digest]["heard"] for digest, _ in first]
                errors = [
                    Errors(edit_distance(texts[place], scored(heard, options_of[place])), len(texts[place]))
                    for heard, (_, place) in zip(heard_first, first, strict=True)
                ]
                require_language(recognizer.name, options.language, heard_first, errors)
    for clip, text, own in zip(clips, texts, options_of, strict=True):
        if clip.sound.file_sha256:
            clip.heard = compare(text, stored.known[clip.sound.file_sha256], own)


def compare(text: str, result: Mapping[str, Any], options: NormalizerOptions) -> Heard:
    """Return the differences of a transcript from the letters `text`."""
    heard = scored(result["heard"], options)
    rate = edit_distance(text, heard) / max(len(text), 1)
    found = edges(text, heard)
    at_edges = (found.start, found.end) if found else (0, 0)
    is_aligned = result["text"] == text  # not a copy of the recording with another text
    return Heard(
        text=result["heard"],
        error_percent=100 * rate,
        alignment=result["alignment"] if is_aligned else None,
        num_unheard=max(0, *at_edges),
        num_beyond=max(0, *(-count for count in at_edges)),
    )
