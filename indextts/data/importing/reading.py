"""The reader of a source, for all layouts: find the recordings that rows name, and decide columns."""

import logging
import os
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from indextts.data.importing.columns import AUTO, Columns, NoColumnError, Rows, decide_columns
from indextts.data.importing.items import AUDIO_SUFFIXES, Item, Problem, Rejection, Row, filled, split_of
from indextts.data.importing.references import (
    AS_NAMED,
    BY_NUMBER,
    USUAL_FOLDERS,
    WAYS,
    Found,
    Recordings,
    comparable,
)
from indextts.errors import UserError
from indextts.system.amounts import counted
from indextts.system.language_codes import standard_code

logger = logging.getLogger(__name__)

_DRIVE_OR_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[\\/]")


@dataclass(frozen=True)
class SourceReader:
    """Recordings and columns of a source."""

    recordings: Recordings
    language: str  # ISO 639 code of texts whose data name none, or none that is known
    chosen: str = ""  # the columns of tables by hand, as in --columns; "" to decide
    columns_of: dict[tuple[str, ...], Columns] = field(default_factory=dict)  # of parquet shards
    decided: dict[Path, Columns] = field(default_factory=dict)

    def resolve(self, items: Sequence[Item]) -> list[Item]:
        """Return the rows with their recordings, keys, ids and languages, and the problems of others.

        A recording that is not as named belongs to the rows that name it best, if these name it alike.
        A corrupt or refused archive of the source is a UserError.
        """
        rows = [item if isinstance(item, Row) and not item.embedded else None for item in items]
        found = [self._find(row) if row is not None else None for row in rows]
        claims: defaultdict[Path, dict[str, tuple[int, int]]] = defaultdict(dict)
        for row, each in zip(rows, found, strict=True):
            if row is not None and isinstance(each, Found):
                claims[each.path].setdefault(_claim(row, each), each.rank)
        resolved = [
            self._resolved(item, each, claims) if isinstance(item, Row) else item
            for item, each in zip(items, found, strict=True)
        ]
        ways = Counter(item.found_by for item in resolved if isinstance(item, Row) and item.found_by)
        if ways:
            shown = ", ".join(f"{way} {ways[way]:,}" for way in WAYS if way in ways)
            logger.info("%s: recordings found: %s", self.recordings.root, shown)
        splits = [row.split for row in items if isinstance(row, Row) and row.split]
        if unknown := [split for split in splits if split_of(split) is None]:
            text = "%s: %s with a split that is not known: %s; write train, val or test"
            shown = ", ".join(list(dict.fromkeys(unknown))[:3])
            logger.warning(text, self.recordings.root, counted(len(unknown), "row"), shown)
        return resolved

    def _find(self, row: Row) -> Found | Problem | None:
        named = row.named or row.id
        return self.recordings.find(named, row.where.file.parent, row.folders) if named else None

    def _resolved(
        self, row: Row, found: Found | Problem | None, claims: Mapping[Path, Mapping[str, tuple[int, int]]]
    ) -> Row | Rejection:
        named = row.named or row.id
        if not named:
            reason = "no recording in the row; fill in audio, path or file_name"
            return Rejection(row.where, "no_audio_named", reason)
        text, speaker = filled(row.text), filled(row.speaker or "") or None
        if not (text or row.subtitles or row.text_file):
            return Rejection(row.where, "empty_text", "the text is empty; fill it in or remove the row")
        audio, way, id = row.where.file, "", row.id or _id_of(named)
        if isinstance(found, tuple):
            return Rejection(row.where, *found)
        if found is not None:
            audio, way = found.path, found.way
            id = row.id or _id_of(str(audio)) if way == BY_NUMBER else id
            if way != AS_NAMED:
                own = _claim(row, found)
                rivals = (name for name, rank in claims[audio].items() if name != own and rank <= found.rank)
                if other := next(rivals, None):
                    reason = f"{named}: only {audio.name} matches, and another row names it too, as {other}"
                    return Rejection(row.where, "ambiguous_audio", reason)
        code = standard_code(row.language or "") or self.language
        return replace(
            row,
            text=text,
            speaker=speaker,
            audio=audio,
            id=id,
            key=row.key or row.id or named,
            language=code,
            found_by=way,
            split=row.split and split_of(row.split),
        )

    def names_recording(self, value: str, folder: Path) -> bool:
        """Return whether a value of a table in a folder names a recording."""
        return isinstance(self.recordings.find(value, folder), Found)

    @property
    def is_chosen(self) -> bool:
        return self.chosen not in ("", AUTO)

    def columns(self, path: Path, rows: Rows, *, has_header: bool = False) -> Columns:
        """Return the columns of a table by its first rows."""
        return decide_columns(
            rows,
            partial(self.names_recording, folder=path.parent),
            language=self.language,
            chosen=self.chosen,
            has_header=has_header,
        )

    def decide(
        self, path: Path, rows: Rows, *, has_header: bool = False, shown: Sequence[str] = ()
    ) -> Columns:
        """Return the columns of a table by its first rows, and log them with the values of a row.

        Args:
            shown: the header in the file, if the first of the rows has other names.
        """
        try:
            columns = self.columns(path, rows, has_header=has_header)
        except UserError as error:
            raise type(error)(f"{path.name}: {error}") from None
        if columns.problem:
            raise (NoColumnError if columns.is_other else UserError)(f"{path.name}: {columns.problem}")
        self.decided[path] = columns
        header = (shown or rows[0]) if columns.has_header else ()
        first = rows[min(columns.has_header, len(rows) - 1)]
        logger.info("%s: columns %s", path, columns.shown(first, header))
        if header and "text" in columns.names and (others := columns.other_texts(header)):
            read = header[columns.names.index("text")]
            text = "%s: texts from %s, not from %s; --columns chooses another"
            logger.warning(text, path, read, " or ".join(others))
        if columns.unread:
            labels = [
                header[number] if header else f"{number} ({first[number]})" for number in columns.unread
            ]
            is_speaker = len(labels) == 1 and not header
            example = (
                f"{columns.choice(None)},speaker={columns.unread[0]}" if is_speaker else columns.choice("")
            )
            text = (
                "%s: columns not read that may be times or a speaker: %s; to read them, pass for example %s"
            )
            logger.warning(text, path, ", ".join(labels), example)
        return columns


def _claim(row: Row, found: Found) -> str:
    """Return the name by which a row claims a recording.

    Each row with a rounded number claims it under its own name, so that several such rows are all refused.
    """
    name = comparable(row.named or row.id)
    is_rounded = found.way == BY_NUMBER and "e" in name
    return f"{name} in line {row.where.line}" if is_rounded and row.span is None else name


def _id_of(named: str) -> str:
    """Return an id from the path of a recording, without suffix and without folders such as wavs/."""
    path = Path(named.replace("\\", "/"))
    name = path.stem if path.suffix.lower() in AUDIO_SUFFIXES else path.name
    parents = [part for part in path.parent.parts if part not in ("/", "..", os.curdir)]
    is_whole = path.is_absolute() or _DRIVE_OR_SCHEME.match(named)  # of this or another machine
    if is_whole or not parents or parents[-1] in USUAL_FOLDERS:
        return name
    return "_".join([*parents, name])
