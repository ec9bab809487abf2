"""Who speaks: as the data say, else as somebody said, never guessed.

What somebody said of a source, so that the next import need not ask again.

answers.json    {"uploads/talks.zip": {"layout": "auto", "speaker": "almaz", "speaker_from": "data"}, ...}
"""

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from indextts.commands.data import ImportDataset
from indextts.data.importing.audio_files import AudioFinder
from indextts.data.importing.found import Found, Rejection
from indextts.errors import UserError
from indextts.system.files import write_json

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


ANSWERS_NAME = "answers.json"
FIELDS = ("layout", "speaker", "speaker_from")


def read_answers(output_dir: Path) -> dict[str, dict[str, str]]:
    """Return the answers by the source's name; none where nothing was imported or the file is damaged."""
    try:
        answers = json.loads((output_dir / ANSWERS_NAME).read_bytes())
    except (OSError, ValueError):
        return {}
    return answers if isinstance(answers, dict) else {}


def write_answers(output_dir: Path, answers: dict[str, dict[str, str]]) -> None:
    """Write the answers, aside and renamed; nothing changes if they are the same.

    Raises:
        OSError: they cannot be written.
    """
    if answers != read_answers(output_dir):
        write_json(output_dir / ANSWERS_NAME, dict(answers))


def answered(command: ImportDataset, before: dict[str, str]) -> dict[str, str]:
    """Return what holds of a source: what the command says, else what was said before."""
    said = {name: str(getattr(command, name)).strip() for name in FIELDS}
    silent = {name: str(ImportDataset.model_fields[name].default) for name in FIELDS}
    if (said["speaker"], said["speaker_from"]) != (silent["speaker"], silent["speaker_from"]):
        return (
            said if said["layout"] != silent["layout"] else {**said, "layout": before.get("layout", "auto")}
        )
    return {
        name: before.get(name, said[name]) if said[name] == silent[name] else said[name] for name in FIELDS
    }
