"""The reader of a source, for all layouts: find the recordings that rows name, and decide columns."""

import logging
import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from indextts.data.importing.archive import InnerArchives
from indextts.data.importing.columns import ALIASES, AUTO, Columns, NoColumnError, Rows, decide_columns
from indextts.data.importing.items import AUDIO_SUFFIXES, SNDFILE_SUFFIXES, Problem, Rejection, Row
from indextts.errors import UserError
from indextts.system.language_codes import standard_code

logger = logging.getLogger(__name__)

USUAL_FOLDERS = ("wavs", "wav", "audio", "clips")


def _files_on_disk(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            # an entry's own is_file() fails for a symlink that leads to itself
            return [
                each.name for each in entries if each.is_file(follow_symlinks=False) or Path(each).is_file()
            ]
    except (OSError, ValueError):  # it does not exist, or is no valid name
        return []


@dataclass(frozen=True)
class SourceReader:
    """Recordings and columns of a source, within allowed folders. Each folder is listed only once.

    Args:
        root: the folder of the source.
        language: ISO 639 code of texts whose data name none, or none that is known.
        chosen: the columns of tables by hand, as in --columns; "" to decide.
        allowed: the allowed folders, resolved; empty for the entire machine.
        archives: those in the source, which are searched if a folder does not have a recording.
        files_in: returns the names of the files in a folder; empty if it does not exist.
        columns_of: of parquet files, by the names of their columns: shards are read alike.
    """

    root: Path
    language: str
    chosen: str = ""
    allowed: Sequence[Path] = ()
    archives: InnerArchives | None = None
    files_in: Callable[[Path], Iterable[str]] = _files_on_disk
    columns_of: dict[tuple[str, ...], Columns] = field(default_factory=dict)
    _listed: dict[Path, dict[str, str]] = field(default_factory=dict)

    def recording(self, row: Row) -> Row | Rejection:
        """Return the row with its recording, key, id and language, or the problem.

        Raises:
            UserError: an archive of the source is corrupt or refused.
        """
        named = row.named or row.id
        if not named:
            columns = ", ".join(ALIASES["audio"][:4])
            return Rejection(row.where, "no_audio_named", f"no recording in the row; fill in {columns}, ...")
        if not (row.text or row.subtitles or row.text_file):
            return Rejection(row.where, "empty_text", "the text is empty; fill it in or remove the row")
        folder = row.where.file.parent
        audio = row.where.file if row.embedded else self._find(named, folder, row.folders)
        if row.is_moved and isinstance(audio, tuple):
            beside = self._find(Path(named).name, folder, row.folders)
            audio = beside if isinstance(beside, Path) else audio
        if isinstance(audio, tuple):
            return Rejection(row.where, *audio)
        id = row.id or _id_of(named.replace("\\", "/"))
        code = standard_code(row.language or "") or self.language
        return replace(row, audio=audio, id=id, key=row.key or row.id or named, language=code)

    def names_recording(self, value: str, folder: Path) -> bool:
        """Return whether a value of a table in a folder names a recording."""
        return isinstance(self._find(value, folder), Path)

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
            text = (
                "%s: not read, although it looks like times or a speaker: %s; --columns start=,end=,speaker="
            )
            logger.warning(text, path, ", ".join(labels))
        return columns

    def folders_in(self, folder: Path, depth: int) -> list[Path]:
        """Return a folder of the source and those in it, also from archives."""
        return [
            found
            for place in [folder, *self._unpacked([folder])]
            for level in range(depth + 1)
            for found in ([place] if level == 0 else sorted(place.glob("*/" * level)))
        ]

    def _find(self, named: str, folder: Path, folders: Sequence[Path] = ()) -> Path | Problem:
        """Return the recording for the name in a row of a file in `folder`, with or without suffix.

        A list in a folder of its own may name recordings from the folder above.
        """
        above = [folder.parent] if folder != self.root and re.search(r"[/\\]", named) else []
        places = [*(folders or (folder,)), *above]
        path = self._in_folders(named, places) or self._in_folders(named, self._unpacked(places))
        if not self._may_read(path or places[-1] / named):
            return "outside", f"{named} is outside the allowed folders"
        return path or (
            "missing_audio",
            f"{named}: the recording does not exist; restore it or remove its row",
        )

    def _in_folders(self, named: str, folders: Sequence[Path]) -> Path | None:
        for folder in folders:
            for place in (folder, *(folder / usual for usual in USUAL_FOLDERS)):
                for written in dict.fromkeys((named, named.replace("\\", "/"))):  # Windows paths
                    path = Path(os.path.normpath(place / written))
                    name = self._names(path.parent).get(path.name)
                    if name is not None:
                        return path.with_name(name)
        return None

    def _names(self, folder: Path) -> dict[str, str]:
        """Return the files of a folder by name, and audio files by their name without suffix too."""
        if folder not in self._listed:
            names = sorted(self.files_in(folder), key=_preference, reverse=True)
            audio = {Path(name).stem: name for name in names if Path(name).suffix.lower() in AUDIO_SUFFIXES}
            self._listed[folder] = audio | {name: name for name in names}
        return self._listed[folder]

    def _unpacked(self, folders: Sequence[Path]) -> list[Path]:
        if self.archives is None:
            return []
        return [place for folder in folders if (place := self.archives.unpacked(folder)) is not None]

    def _may_read(self, path: Path) -> bool:
        """Return whether the file, after resolving symlinks, is within the allowed folders."""
        if not self.allowed:
            return True
        allowed = (*self.allowed, *([self.archives.folder] if self.archives is not None else []))
        try:
            real = path.resolve()
        except (OSError, RuntimeError, ValueError):  # a symlink loop, or no valid name
            return False
        return any(real.is_relative_to(folder) for folder in allowed)


def _preference(name: str) -> tuple[bool, bool, str]:
    """Return the rank of a recording among those of the same name with other suffixes."""
    suffix = Path(name).suffix
    lower = suffix.lower()
    return lower not in SNDFILE_SUFFIXES, lower not in (".wav", ".flac"), lower


def _id_of(named: str) -> str:
    """Return an id from the path of a recording, without suffix and without folders such as wavs/."""
    path = Path(named)
    name = path.stem if path.suffix.lower() in AUDIO_SUFFIXES else path.name
    parents = [part for part in path.parent.parts if part not in ("/", "..", os.curdir)]
    if path.is_absolute() or not parents or parents[-1] in USUAL_FOLDERS:
        return name
    return "_".join([*parents, name])
