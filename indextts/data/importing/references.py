"""Find the recordings that the rows of a source name, within allowed folders."""

import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from indextts.data.importing.archive import InnerArchives
from indextts.data.importing.columns import ALIASES
from indextts.data.importing.items import AUDIO_SUFFIXES, SNDFILE_SUFFIXES, Problem, Rejection, Row
from indextts.system.language_codes import standard_code

USUAL_FOLDERS = ("wavs", "wav", "audio", "clips")


class AudioFinder:
    """Finder of the recordings of a source. Each folder is listed only once.

    Args:
        root: the folder of the source.
        allowed: the allowed folders; empty for the entire machine.
        archives: those in the source, which are searched if a folder does not have a recording.
        files_in: returns the names of the files in a folder; empty if it does not exist.
    """

    def __init__(
        self,
        root: Path,
        allowed: Sequence[Path] = (),
        archives: InnerArchives | None = None,
        files_in: Callable[[Path], Iterable[str]] | None = None,
    ) -> None:
        self.root = root
        self._allowed = tuple(folder.resolve() for folder in allowed)
        self._archives = archives
        self._files_in = files_in or _files_on_disk
        self._listed: dict[Path, dict[str, str]] = {}

    def recording(self, row: Row, language: str) -> Row | Rejection:
        """Return the row with its recording, key, id and language, or the problem.

        Args:
            language: of a row that names none, or none that is known.

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
        code = standard_code(row.language or "") or language
        return replace(row, audio=audio, id=id, key=row.key or row.id or named, language=code)

    def names_recording(self, value: str, folder: Path) -> bool:
        """Return whether a value of a table in a folder names a recording."""
        return isinstance(self._find(value, folder), Path)

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
            names = sorted(self._files_in(folder), key=_preference, reverse=True)
            audio = {Path(name).stem: name for name in names if Path(name).suffix.lower() in AUDIO_SUFFIXES}
            self._listed[folder] = audio | {name: name for name in names}
        return self._listed[folder]

    def _unpacked(self, folders: Sequence[Path]) -> list[Path]:
        if self._archives is None:
            return []
        return [place for folder in folders if (place := self._archives.unpacked(folder)) is not None]

    def _may_read(self, path: Path) -> bool:
        """Return whether the file, after resolving symlinks, is within the allowed folders."""
        if not self._allowed:
            return True
        allowed = (*self._allowed, *([self._archives.folder] if self._archives is not None else []))
        try:
            real = path.resolve()
        except (OSError, RuntimeError, ValueError):  # a symlink loop, or no valid name
            return False
        return any(real.is_relative_to(folder) for folder in allowed)


def _files_on_disk(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            # an entry's own is_file() fails for a symlink that leads to itself
            return [
                each.name for each in entries if each.is_file(follow_symlinks=False) or Path(each).is_file()
            ]
    except (OSError, ValueError):  # it does not exist, or is no valid name
        return []


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
