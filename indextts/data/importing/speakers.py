"""Speakers of a source, from the data or from the user's answers.

The answers about a source are stored for its next import:

    answers.json    {"uploads/talks.zip": {"layout": "auto", "columns": "", "speaker": "almaz", ...}, ...}
"""

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import get_args

from indextts.commands.data import ImportDataset
from indextts.data.importing.items import Rejection, Row
from indextts.data.importing.references import USUAL_FOLDERS
from indextts.data.importing.subtitles import has_voices
from indextts.errors import UserError
from indextts.system.amounts import counted
from indextts.system.files import read_object, write_json

logger = logging.getLogger(__name__)

ANSWERS_NAME = "answers.json"
FIELDS = ("layout", "columns", "speaker", "speaker_from")  # what an import asks about a source
ANSWERS = (*FIELDS, "keep")
_MAX_SHOWN_SPEAKERS = 5


def with_speakers(
    found: Sequence[Row], typed: Path, root: Path, answers: Mapping[str, str]
) -> tuple[list[Row], list[Rejection]]:
    """Return the recordings with their speakers, and rejections of those without a speaker.

    Subtitles with voice tags need no other speaker.

    Args:
        typed: the path of the source as typed, for messages.

    Raises:
        UserError: neither the data nor the answers give a speaker for any recording.
    """
    speaker, speaker_from = answers["speaker"], answers["speaker_from"]
    if speaker_from == "voices":  # voices.py names them when all are in the project
        return [replace(item, speaker=None) for item in found], []
    named, nameless = [], []
    for item in found:
        name = item.speaker or speaker
        if speaker_from == "file":
            name = item.recording or item.id
        elif speaker_from == "folder":
            inside = item.audio.parent
            folders = inside.relative_to(root).parts if inside.is_relative_to(root) else ()
            # the innermost one, except for wavs, clips and the like
            name = next((name for name in reversed(folders) if name.lower() not in USUAL_FOLDERS), "")
        if name or (item.subtitles is not None and has_voices(item.subtitles)):
            named.append(item if name == item.speaker else replace(item, speaker=name or None))
        else:
            nameless.append(item)
    num_given = sum(not item.speaker for item in found) - len(nameless)
    if speaker and num_given and speaker_from == "data":
        text = "%s: assigned speaker %s to %s; %d name a speaker"
        logger.info(text, typed, speaker, counted(num_given, "recording"), len(named) - num_given)
    _warn_of_like_names({item.speaker for item in named if item.speaker}, typed)
    if nameless and not named:
        raise UserError(
            f"{typed}: {counted(len(nameless), 'recording')} without a speaker; pass --speaker NAME if all "
            "are of the same person, --speaker-from folder if each person has a folder, --speaker-from file "
            "if each recording is of a different person, --speaker-from voices to tell persons by their "
            "voices, or --columns if a column of the table has the names"
        )
    if speaker_from == "file" and named:
        recordings = counted(len(named), "recording")
        logger.warning("%s: treating %s as different speakers", typed, recordings)
    reason = "no speaker; fill it in, or pass --speaker NAME for all such rows"
    if speaker_from == "folder":
        reason = "not in a folder of a speaker; move it to a folder with the name of the speaker"
    return named, [Rejection(item.where, "no_speaker", reason) for item in nameless]


def _warn_of_like_names(names: Collection[str], typed: Path) -> None:
    """Log names that differ in case or in leading zeros only: they count as different speakers."""
    like: dict[str, list[str]] = {}
    for name in sorted(names):
        like.setdefault(name.casefold().lstrip("0"), []).append(name)
    for same in like.values():
        if len(same) > 1:
            text = "%s: %s count as different speakers; if they are the same person, give them one name"
            logger.warning(text, typed, " and ".join(same))


def read_answers(output_dir: Path) -> dict[str, dict[str, str]]:
    """Return the answers by source name, only valid ones; empty if the file is missing or corrupt."""
    choices = {name: get_args(ImportDataset.model_fields[name].annotation) for name in ANSWERS}
    return {
        source: {
            name: answer
            for name, known in choices.items()
            if isinstance(answer := given.get(name), str) and (not known or answer in known)
        }
        for source, given in read_object(output_dir / ANSWERS_NAME).items()
        if isinstance(given, dict)
    }


def write_answers(output_dir: Path, answers: dict[str, dict[str, str]]) -> None:
    """Write the answers through a temporary file if they changed."""
    given = {
        source: {name: answer for name, answer in fields.items() if answer or name != "keep"}
        for source, fields in answers.items()
    }
    if given != read_answers(output_dir):
        write_json(output_dir / ANSWERS_NAME, dict(given))


def answered(command: ImportDataset, before: dict[str, str]) -> dict[str, str]:
    """Return the answers about a source: those of the command, else the stored ones."""
    given = {name: str(getattr(command, name)).strip() for name in ANSWERS}
    default = {name: str(ImportDataset.model_fields[name].default) for name in ANSWERS}
    kept = {name for name in ANSWERS if given[name] == default[name]}
    if not {"speaker", "speaker_from"} <= kept:
        kept -= {"speaker", "speaker_from"}  # the two are one answer
    return {name: before.get(name, given[name]) if name in kept else given[name] for name in ANSWERS}


def of_speakers(found: Mapping[Path, Sequence[Row]], wanted: Sequence[str]) -> dict[Path, list[Row]]:
    """Return the recordings of some speakers by source; a UserError for a speaker without any."""
    known = {item.speaker for items in found.values() for item in items if item.speaker}
    unknown = [name for name in wanted if name not in known]
    if unknown:
        some = ", ".join(sorted(known)[:_MAX_SHOWN_SPEAKERS]) or "the data name none"
        more = ", ..." if len(known) > _MAX_SHOWN_SPEAKERS else ""
        raise UserError(
            f"--speakers {unknown[0]}: no recording of this speaker; there are "
            f"{counted(len(known), 'speaker')}: {some}{more}"
        )
    kept = {path: [item for item in items if item.speaker in wanted] for path, items in found.items()}
    for path, items in found.items():
        log_left_out(path, len(items) - len(kept[path]), "--speakers")
    return kept


def require_named_speakers(wanted: Sequence[str], speaker_from: str) -> None:
    """Raise a UserError for --speakers with speakers that are only known at the end of the import."""
    if wanted and speaker_from == "voices":
        raise UserError(
            f"--speakers {wanted[0]}: --speaker-from voices tells the speakers apart only after all "
            "recordings are imported; leave out --speakers"
        )


def log_left_out(source: Path, count: int, flag: str) -> None:
    """Log how many recordings of a source a flag leaves out, if any."""
    if count:
        logger.info("%s: left out %s because of %s", source, counted(count, "recording"), flag)
