r"""Where the files of a folder are that was written on another machine.

A path in such a manifest is relative or absolute, of Linux or of Windows, and may begin with folders that are
not there any more: D:\work\processed_data\codes\a.npy is codes/a.npy of the folder.
"""

import re
from pathlib import Path

_DRIVE = re.compile("^[A-Za-z]:")


class MovedPaths:
    """Finds files of `folder`; what was learned about one path is tried first for its neighbours."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._found_in: dict[str, Path] = {}  # written folder -> real folder

    def find(self, written: str) -> Path | None:
        """Return the file that a manifest calls `written`, None if there is none."""
        plain = _DRIVE.sub("", written.replace("\\", "/"))
        if "\0" in plain:
            return None
        written_folder, _, name = plain.rpartition("/")
        known = self._found_in.get(written_folder)
        if known is not None and (known / name).is_file():
            return known / name
        for candidate in self._candidates(plain):
            if candidate.is_file():
                self._found_in[written_folder] = candidate.parent
                return candidate
        return None

    def _candidates(self, plain: str) -> list[Path]:
        """Return where to look: as written, then with ever fewer of its first folders."""
        parts = [part for part in plain.split("/") if part not in ("", ".")]
        tails = [Path(*parts[start:]) for start in range(len(parts))]
        as_written = [Path(plain)] if plain.startswith("/") else []
        inside = [self.folder / tail for tail in tails]
        # recordings lie beside: amharic_dataset/audio and processed_data/codes
        beside = [self.folder.parent / tail for tail in tails if len(tail.parts) > 1]
        return [*as_written, *inside, *beside]
