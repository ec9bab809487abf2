"""Who speaks: as the data say, else as somebody said, never guessed."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from indextts.data.importing.audio_files import AudioFinder
from indextts.data.importing.found import Found, Rejection
from indextts.errors import UserError

logger = logging.getLogger(__name__)


def with_speakers(
    found: Sequence[Found], typed: Path, root: Path, answers: Mapping[str, str]
) -> tuple[list[Found], list[Rejection]]:
    """Return the recordings with their speakers, and those of which nobody is named.

    Args:
        typed: the source, for messages.
        answers: what was said of this source (answers.py).

    Raises:
        UserError: neither the data nor the command say it of any recording.
    """
    speaker, speaker_from = answers["speaker"], answers["speaker_from"]
    named, nameless = [], []
    for item in found:
        name = _speaker(item, root, speaker, speaker_from)
        if name:
            named.append(replace(item, speaker=name))
        else:
            nameless.append(item)
    if nameless and not named:
        raise UserError(
            f"{typed}: nothing says who speaks in its {len(nameless)} recordings; give --speaker NAME if all "
            "are of one person, --speaker-from folder if each person has a folder, or --speaker-from file if "
            "each recording is another person"
        )
    if speaker_from == "file" and named:
        logger.warning("%s: each of its %d recordings is taken for another person", typed, len(named))
    reason = "nobody is named as the speaker; fill it in, or give --speaker NAME for all such rows"
    if speaker_from == "folder":
        reason = "it lies in no folder of a person"
    return named, [Rejection(item.where, "no_speaker", reason) for item in nameless]


def _speaker(found: Found, root: Path, speaker: str, speaker_from: str) -> str | None:
    if speaker_from == "file":
        return found.recording or found.id
    if speaker_from == "folder":
        return _folder_name(found.audio, root)
    return found.speaker or speaker or None


def _folder_name(audio: Path, root: Path) -> str | None:
    """Return the innermost folder of a recording below the source that is not just called wavs or clips."""
    folder = audio.parent
    while folder != root and folder.is_relative_to(root):
        if folder.name.lower() not in AudioFinder.USUAL_FOLDERS:
            return folder.name
        folder = folder.parent
    return None
