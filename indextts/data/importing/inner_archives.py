"""Archives within the folder of a source, such as audio/train.tar.gz beside the tables of FLEURS.

They are unpacked, into a temporary folder, when a recording is looked for in vain. Their files then have the
places that they would have if each archive were unpacked in its own folder; files that are in no folder of
the archive get one with its name.
"""

import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from indextts.data.importing.archive import UNPACKED_PREFIX, archive_stem, is_archive, unpack

logger = logging.getLogger(__name__)


class InnerArchives:
    """The archives in a folder.

    Args:
        root: the folder of the source.
        output_dir: the parent of the temporary folder.
        max_bytes: of all files of all archives.
    """

    def __init__(self, root: Path, output_dir: Path, max_bytes: int) -> None:
        self.root = root
        self.folder: Path | None = None  # with the unpacked files
        self._output_dir = output_dir
        self._max_bytes = max_bytes
        self._is_unpacked = False

    def unpacked(self, folder: Path) -> Path | None:
        """Return where the unpacked files of a folder of the source are; None without archives.

        Raises:
            UserError: an archive is corrupt or refused.
        """
        if not self._is_unpacked:
            self._is_unpacked = True
            self._unpack()
        if self.folder is None or not folder.is_relative_to(self.root):
            return None
        return self.folder / folder.relative_to(self.root)

    def original(self, path: Path) -> Path:
        """Return the place in the source of an unpacked file; other paths stay."""
        if self.folder is None or not path.is_relative_to(self.folder):
            return path
        return self.root / path.relative_to(self.folder)

    def _unpack(self) -> None:
        archives = [path for path in sorted(_files(self.root)) if is_archive(path)]
        if not archives:
            return
        self.folder = Path(tempfile.mkdtemp(prefix=UNPACKED_PREFIX, dir=self._output_dir)).resolve()
        num_bytes = 0
        for archive in archives:
            logger.info("unpacking %s to find the recordings that are named", archive)
            target = self.folder / archive.parent.relative_to(self.root)
            target.mkdir(parents=True, exist_ok=True)
            num_bytes += unpack(archive, target, self._max_bytes - num_bytes, loose=archive_stem(archive))


def _files(root: Path) -> Iterator[Path]:
    for place, folders, names in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith(".") and name != "__MACOSX"]
        yield from (Path(place) / name for name in names if not name.startswith("."))


@contextmanager
def inner_archives(root: Path, output_dir: Path, max_bytes: int) -> Iterator[InnerArchives]:
    """Yield the archives in a folder, and remove their files at the end."""
    archives = InnerArchives(root, output_dir, max_bytes)
    try:
        yield archives
    finally:
        if archives.folder is not None:
            shutil.rmtree(archives.folder, ignore_errors=True)
