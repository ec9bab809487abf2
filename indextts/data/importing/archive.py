"""Unpack untrusted zip and tar archives.

An archive is refused if a name in it is absolute or points outside the folder, if it contains links or
special files, encrypted or duplicate members, too many files, more bytes than allowed, or a compression ratio
that only bombs have. The limits apply to the unpacked bytes, not to the sizes in the archive. Only
recordings, texts and tables are written, with the modification times in the archive, and nothing is executed.
A preview reads only the first bytes of some tables of a zip archive (unpacked_heads).
"""

import bz2
import gzip
import heapq
import io
import logging
import lzma
import math
import os
import shutil
import stat
import tarfile
import tempfile
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from indextts.data.importing.items import may_be_read
from indextts.errors import UserError
from indextts.system.amounts import counted, shown_size

logger = logging.getLogger(__name__)

UNPACKED_PREFIX = ".unpacked-"
MAX_FILES = 500_000
MAX_RATIO = 100  # of unpacked to packed size; speech has 1 to 2, text 5, silence as WAV some hundreds
MIN_BOMB_BYTES = 200 * 2**20  # smaller archives are harmless at any ratio
MAX_HEADS = 60  # tables of which unpacked_heads writes the first bytes
HEAD_BYTES = 2**19
_TAR_OPENERS: dict[str, Callable[..., Any]] = {
    ".tar": open,
    ".tar.gz": gzip.open,
    ".tgz": gzip.open,
    ".tar.bz2": bz2.open,
    ".tar.xz": lzma.open,
}
ARCHIVE_SUFFIXES = (".zip", *_TAR_OPENERS)
_BLOCK_BYTES = 2**20
_LAST_TIME = 2**32  # in seconds since 1970; the headers of tar archives may have any number
_BOUNDED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # others unpack a block into 100 MB at once
_UTF8_NAME = 0x800
_ENCRYPTED = 0x1
# zipfile raises NotImplementedError for an unknown compression method, UnicodeDecodeError for a name that is
# flagged as UTF-8 and is not
_CORRUPT = (
    zipfile.BadZipFile,
    tarfile.TarError,
    gzip.BadGzipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    NotImplementedError,
    UnicodeDecodeError,
)


def is_archive(path: Path) -> bool:
    """Return whether a file is an archive by its name."""
    return (path.suffix.lower() == ".zip" or bool(_tar_suffix(path))) and path.is_file()


def archive_stem(path: Path) -> str:
    """Return the name of an archive without .zip, .tar.gz and so on."""
    return path.name[: -len(_tar_suffix(path) or path.suffix)]


def _tar_suffix(path: Path) -> str:
    return next((suffix for suffix in _TAR_OPENERS if path.name.lower().endswith(suffix)), "")


@contextmanager
def unpacked(archive: Path, output_dir: Path, max_bytes: int) -> Iterator[Path]:
    """Yield a temporary folder with the files of an archive.

    Args:
        output_dir: the parent of the temporary folder.

    Raises:
        UserError: the archive is corrupt or refused.
    """
    folder = Path(tempfile.mkdtemp(prefix=UNPACKED_PREFIX, dir=output_dir))
    try:
        unpack(archive, folder, max_bytes)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def unpack(archive: Path, folder: Path, max_bytes: int, loose: str = "") -> int:
    """Write the files of an archive below a folder, and return their number of bytes.

    Args:
        loose: the folder in `folder` for files that are in no folder of the archive.

    Raises:
        UserError: the archive is corrupt or refused.
    """
    unpacking = _Unpacking(archive, folder, max_bytes, loose)
    try:
        if _tar_suffix(archive):
            unpacking.tar()
        else:
            with zipfile.ZipFile(archive) as file:
                unpacking.zip(file)
    except _CORRUPT as error:
        raise UserError(
            f"{archive}: corrupt, or not an archive of this kind ({error}); download or create it again"
        ) from None
    _warn_about_nested_archives(archive, unpacking.names)
    return unpacking.num_bytes


class InnerArchives:
    """The archives within the folder of a source, such as audio/train.tar.gz beside the tables of FLEURS.

    They are unpacked, into a temporary folder, when a recording is looked for in vain. Their files then have
    the places that they would have if each archive were unpacked in its own folder; files that are in no
    folder of the archive get one with its name.

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


@contextmanager
def unpacked_heads(archive: Path, rank: Callable[[Path], int | None]) -> Iterator[tuple[Path, list[Path]]]:
    """Yield a temporary folder with the first bytes of some members, and the paths of all members in it.

    At most MAX_HEADS members of HEAD_BYTES are written, those with the lowest rank and depth.

    Args:
        rank: returns the rank of a member by its name, or None for a member that is not written.

    Raises:
        UserError: the archive is corrupt or refused.
    """
    with tempfile.TemporaryDirectory(prefix=UNPACKED_PREFIX) as temporary:
        folder = Path(temporary)
        try:
            with zipfile.ZipFile(archive) as file:
                members = [member for member in file.infolist() if not member.is_dir()]
                if len(members) > MAX_FILES:
                    raise UserError(f"{archive}: more than {MAX_FILES:,} files; split the archive")
                named = [(_safe_name(member, archive), member) for member in members]
                named = [(name, member) for name, member in named if not _is_hidden(name)]
                ranked = [
                    (place, len(name.parts), str(name), member)
                    for name, member in named
                    if (place := rank(name)) is not None and member.compress_type in _BOUNDED
                ]
                for *_, name, member in heapq.nsmallest(MAX_HEADS, ranked, key=lambda each: each[:3]):
                    _write_head(file, member, folder / name)
        except _CORRUPT as error:
            raise UserError(
                f"{archive}: corrupt, or not a zip archive ({error}); create the archive again"
            ) from None
        yield folder, [folder / name for name, _ in named]


def _write_head(file: zipfile.ZipFile, member: zipfile.ZipInfo, target: Path) -> None:
    """Write the first lines of a member."""
    with file.open(member) as reader:
        head = reader.read(HEAD_BYTES)
    if len(head) == HEAD_BYTES and b"\n" in head:
        head = head[: head.rindex(b"\n") + 1]  # the last line is cut off
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(head)


class _Unpacking:
    """An archive that is being unpacked; arguments as for `unpack`."""

    def __init__(self, archive: Path, folder: Path, max_bytes: int, loose: str) -> None:
        self.archive = archive
        self.folder = folder
        self.max_bytes = max_bytes
        self.loose = loose
        self.limit = min(max_bytes, max(MIN_BOMB_BYTES, MAX_RATIO * archive.stat().st_size))
        self.num_bytes = 0
        self.names: list[Path] = []  # without hidden ones

    def zip(self, file: zipfile.ZipFile) -> None:
        members = [member for member in file.infolist() if not member.is_dir()]
        if len(members) > MAX_FILES:
            raise self._too_many(len(members))
        names = [_safe_name(member, self.archive) for member in members]
        self.names = [name for name in names if not _is_hidden(name)]
        wanted = [(member, name) for member, name in zip(members, names, strict=True) if _is_wanted(name)]
        self._require_space(sum(member.file_size for member, _ in wanted))
        for member, name in wanted:
            with file.open(member) as reader:
                changed = time.mktime((*member.date_time, 0, 0, -1))
                self.num_bytes += self._write(reader, name, changed, self.limit - self.num_bytes)

    def tar(self) -> None:
        """Unpack a tar archive in one pass; it has no directory."""
        self._require_space(self.archive.stat().st_size)
        num_members = 0
        with _TAR_OPENERS[_tar_suffix(self.archive)](self.archive, "rb") as packed:
            stream = _TarStream(packed, self.limit, self._too_large)
            file = tarfile.open(fileobj=stream, mode="r:")  # noqa: SIM115  # `packed` is all there is to close
            while (member := file.next()) is not None:
                file.members = []  # type: ignore[attr-defined]  # it keeps all of them
                num_members += 1
                if num_members > MAX_FILES:
                    raise self._too_many(num_members)
                name = _checked_name(member.name, self.archive)
                if member.isdir():
                    continue
                if not member.isreg() or member.issparse():
                    raise _link_error(member.name, self.archive)
                self.names += [] if _is_hidden(name) else [name]
                reader = file.extractfile(member) if _is_wanted(name) else None
                if reader is not None:
                    self._write(reader, name, member.mtime, self.limit)
            if stream.last != bytes(tarfile.BLOCKSIZE):  # tarfile takes any invalid header for the end
                raise tarfile.ReadError("the end is missing")
            self.num_bytes = stream.position

    def _write(self, reader: IO[bytes], name: Path, changed: float, limit: int) -> int:
        """Write a member with its modification time; return its number of bytes."""
        target = self.folder / (name if len(name.parts) > 1 else self.loose / name)
        target.parent.mkdir(parents=True, exist_ok=True)
        num_bytes = 0
        try:
            with target.open("xb") as writer:
                while block := reader.read(_BLOCK_BYTES):
                    num_bytes += len(block)
                    if num_bytes > limit:
                        raise self._too_large()
                    writer.write(block)
        except FileExistsError:
            raise UserError(f"{self.archive}: contains {name} twice; create the archive again") from None
        changed = min(max(changed, 0), _LAST_TIME) if math.isfinite(changed) else 0
        os.utime(target, (changed, changed))  # constant, so that the next import finds the file unchanged
        return num_bytes

    def _require_space(self, num_bytes: int) -> None:
        if num_bytes > shutil.disk_usage(self.folder).free:
            shown = shown_size(num_bytes)
            raise UserError(
                f"{self.archive}: {shown} do not fit on the disk of {self.folder}; free some space"
            )

    def _too_many(self, num_files: int) -> UserError:
        return UserError(
            f"{self.archive}: {num_files:,} files, the maximum is {MAX_FILES:,}; split the archive"
        )

    def _too_large(self) -> UserError:
        return UserError(
            f"{self.archive}: unpacks to more than {self.max_bytes / 1e9:g} GB (--max-unpacked-gb) or "
            f"{MAX_RATIO} times its size; split the archive or raise the limit"
        )


class _TarStream(io.RawIOBase):
    """Bytes of a tar archive, which tarfile reads forwards except for single bytes.

    tarfile would read headers of any size into memory, and a compressed stream cannot seek back quickly.
    """

    def __init__(self, packed: IO[bytes], limit: int, too_large: Callable[[], UserError]) -> None:
        self.position = 0
        self.last = b""  # the bytes read last
        self._packed = packed
        self._limit = limit
        self._too_large = too_large
        self._is_back = False

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes.

        Raises:
            UserError: the archive is too large.
        """
        if size > _BLOCK_BYTES or size < 0:
            raise tarfile.ReadError(f"a header of {size:,} bytes")
        content = b""
        if self._is_back and size:
            self._is_back, content = False, self.last[-1:]
        content += self._packed.read(size - len(content))
        self.position += len(content)
        if self.position > self._limit:
            raise self._too_large()
        self.last = content
        return content

    def tell(self) -> int:
        return self.position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go forwards, or one byte back."""
        assert whence == io.SEEK_SET
        if offset == self.position - 1 and self.last and not self._is_back:
            self._is_back, self.position = True, offset
        while self.position < offset and self.read(min(_BLOCK_BYTES, offset - self.position)):
            pass
        assert self.position <= offset
        return self.position


def _safe_name(member: zipfile.ZipInfo, archive: Path) -> Path:
    """Return the relative path for a member of a zip archive."""
    name = member.filename
    if not member.flag_bits & _UTF8_NAME:
        name = _decoded(name)
    path = _checked_name(name, archive)
    mode = member.external_attr >> 16
    if stat.S_IFMT(mode) not in (0, stat.S_IFREG):
        raise _link_error(member.filename, archive)
    if member.flag_bits & _ENCRYPTED:
        raise UserError(f"{archive}: the archive has a password; create it without a password")
    return path


def _checked_name(name: str, archive: Path) -> Path:
    """Return the name of a member as a relative path."""
    slashed = name.replace("\\", "/")  # of Windows programs
    parts = [part for part in slashed.split("/") if part not in ("", ".")]
    if slashed.startswith("/") or ".." in parts or (parts and ":" in parts[0]) or "\0" in name:
        raise UserError(f"{archive}: the name {name!r} points outside the folder; create the archive again")
    return Path(*parts)


def _link_error(name: str, archive: Path) -> UserError:
    return UserError(f"{archive}: {name!r} is a link or a special file; create the archive without it")


def _decoded(name: str) -> str:
    """Return a name without an encoding flag, decoded as UTF-8 if possible, else as cp437."""
    try:
        return name.encode("cp437").decode("utf-8")
    except UnicodeError:
        return name


def _is_wanted(name: Path) -> bool:
    return may_be_read(name) and not _is_hidden(name)


def _is_hidden(name: Path) -> bool:
    return any(part.startswith(".") or part == "__MACOSX" for part in name.parts)


def _warn_about_nested_archives(archive: Path, names: list[Path]) -> None:
    archives = [
        name for name in names if name.suffix.lower() in (".zip", ".tar", ".gz", ".tgz", ".7z", ".rar", ".xz")
    ]
    if archives:
        logger.warning(
            "%s: skipped %s inside it (%s, ...); unpack them and import the folder",
            archive,
            counted(len(archives), "archive"),
            archives[0],
        )
