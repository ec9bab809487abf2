"""Choose the recordings of sources: unique names, and only some speakers."""

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from indextts.data.importing.items import Rejection, SourceRecording, without_shards
from indextts.errors import UserError
from indextts.system.amounts import counted

logger = logging.getLogger(__name__)

_MAX_SHOWN_SPEAKERS = 5


def with_unique_key(
    item: SourceRecording, seen: Mapping[str, SourceRecording], root: Path
) -> SourceRecording | Rejection:
    """Return a recording under a key that no other has: tables of several splits may repeat their ids.

    A row of the same table, or for the same recording, is a duplicate.
    """
    if item.key not in seen:
        return item
    first = seen[item.key]
    table, other = item.where.file, first.where.file
    if table != other and (item.embedded or item.audio != first.audio):
        # The key depends on the place of the table alone, so that it stays when the source grows.
        common = os.path.commonpath([table.parent, other.parent])
        for place in (table.parent, without_shards(table)):
            key = f"{os.path.relpath(place, root)}/{item.key}"
            if place != Path(common) and key not in seen:
                return replace(item, key=key, id="_".join([*place.relative_to(common).parts, item.id]))
    line = "" if first.where.line is None else f":{first.where.line}"
    reason = f"{first.where.file.name}{line} already has {item.key}; give each row a unique id"
    return Rejection(item.where, "duplicate", reason)


def of_speakers(
    found: Mapping[Path, Sequence[SourceRecording]], wanted: Sequence[str]
) -> dict[Path, list[SourceRecording]]:
    """Return the recordings of some speakers, by the paths of their sources.

    Raises:
        UserError: a speaker has no recording in any source.
    """
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
