"""Unpack untrusted zip and tar archives.

An archive is refused if a name in it is absolute or points outside the folder, if it contains links or
special files, encrypted or duplicate members, too many files, more bytes than allowed, or a compression ratio
that only bombs have. The limits apply to the unpacked bytes, not to the sizes in the archive. Only
recordings, texts and tables are written, with the modification times in the archive, and nothing is executed.
A preview reads only the first bytes of some tables of a zip archive (unpack_heads).
"""

import bz2
import gzip
import heapq
import logging
import lzma
import math
import os
import shutil
import stat
import tarfile
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import IO, Any

from indextts.data.importing.items import files_below, is_hidden, may_be_read
from indextts.errors import UserError
from indextts.system.amounts import counted, shown_size

logger = logging.getLogger(__name__)

UNPACKED_PREFIX = ".unpacked-"
MAX_FILES = 500_000
MAX_RATIO = 100  # of unpacked to packed size; speech has 1 to 2, text 5, silence as WAV some hundreds
MIN_BOMB_BYTES = 200 * 2**20  # smaller archives are harmless at any ratio
MAX_HEADS = 60  # tables of which unpack_heads writes the first bytes
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
_LAST_TIME = 2**32  # in seconds since 1970
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


_NESTED_SUFFIXES = (".zip", ".tar", ".gz", ".tgz", ".7z", ".rar", ".xz")


def is_archive(path: Path) -> bool:
    """Return whether a file is an archive by its name."""
    return (path.suffix.lower() == ".zip" or bool(_tar_suffix(path))) and path.is_file()


def _tar_suffix(path: Path) -> str:
    return next((suffix for suffix in _TAR_OPENERS if path.name.lower().endswith(suffix)), "")


# A file in an archive: its checked name, when it changed, and what opens it.
_Member = tuple[Path, float, Callable[[], IO[bytes] | None]]


def max_unpacked_bytes(num_bytes: int) -> int:
    """Return how many bytes so many bytes may unpack to."""
    return max(MIN_BOMB_BYTES, MAX_RATIO * num_bytes)


def unpack(archive: Path, folder: Path, max_bytes: int, loose: str = "") -> int:
    """Write the files of an archive below a folder, and return their number of bytes.

    Args:
        loose: the folder in `folder` for files that are in no folder of the archive.

    Raises:
        UserError: the archive is corrupt or refused.
    """
    size = archive.stat().st_size
    if size > shutil.disk_usage(folder).free:
        raise UserError(f"{archive}: {shown_size(size)} do not fit on the disk of {folder}; free some space")
    limit = min(max_bytes, max_unpacked_bytes(size))
    too_large = UserError(
        f"{archive}: unpacks to more than {max_bytes / 1e9:g} GB (--max-unpacked-gb) or {MAX_RATIO} times "
        "its size; split the archive or raise the limit"
    )
    members = _tar_members(archive, limit, too_large) if _tar_suffix(archive) else _zip_members(archive)
    names: list[Path] = []
    num_bytes = 0
    try:
        for number, (name, changed, read) in enumerate(members, start=1):
            if number > MAX_FILES:
                raise UserError(
                    f"{archive}: {number:,} files, the maximum is {MAX_FILES:,}; split the archive"
                )
            if is_hidden(name):
                continue
            names.append(name)
            if may_be_read(name) and (reader := read()) is not None:
                place = name if len(name.parts) > 1 else loose / name
                num_bytes += _write(archive, reader, folder / place, limit - num_bytes, too_large)
                os.utime(folder / place, (changed, changed))  # the next import finds the file unchanged
    except _CORRUPT as error:
        raise UserError(
            f"{archive}: corrupt, or not an archive of this kind ({error}); download or create it again"
        ) from None
    if nested := [name for name in names if name.suffix.lower() in _NESTED_SUFFIXES]:
        text = "%s: skipped %s inside it (%s, ...); unpack them and import the folder"
        logger.warning(text, archive, counted(len(nested), "archive"), nested[0])
    return num_bytes


def _write(archive: Path, reader: IO[bytes], target: Path, limit: int, too_large: UserError) -> int:
    """Write a member; return its number of bytes."""
    target.parent.mkdir(parents=True, exist_ok=True)
    num_bytes = 0
    try:
        with target.open("xb") as writer, reader:
            while block := reader.read(_BLOCK_BYTES):
                num_bytes += len(block)
                if num_bytes > limit:
                    raise too_large
                writer.write(block)
    except FileExistsError:
        raise UserError(f"{archive}: contains {target.name} twice; create the archive again") from None
    return num_bytes


def _zip_members(archive: Path) -> Iterator[_Member]:
    with zipfile.ZipFile(archive) as file:
        members = [member for member in file.infolist() if not member.is_dir()]
        names = [_safe_name(member, archive) for member in members]  # all, before the first is written
        for member, name in zip(members, names, strict=True):
            changed = time.mktime((*member.date_time, 0, 0, -1))
            yield name, max(changed, 0), partial(file.open, member)


def _tar_members(archive: Path, limit: int, too_large: UserError) -> Iterator[_Member]:
    """Yield the members of a tar archive in one pass; it has no directory."""
    with _TAR_OPENERS[_tar_suffix(archive)](archive, "rb") as packed:
        stream = _Counted(packed, limit, too_large)
        file = tarfile.open(fileobj=stream, mode="r|")  # type: ignore[call-overload]  # noqa: SIM115
        while (member := file.next()) is not None:
            file.members = []  # it keeps all of them
            name = _checked_name(member.name, archive)
            if member.isdir():
                continue
            if not member.isreg() or member.issparse():
                raise _link_error(member.name, archive)
            # the headers may have any number
            changed = min(max(member.mtime, 0), _LAST_TIME) if math.isfinite(member.mtime) else 0
            yield name, changed, partial(file.extractfile, member)
        if not stream.last.endswith(bytes(tarfile.BLOCKSIZE)):  # tarfile takes any invalid header for the end
            raise tarfile.ReadError("the end is missing")


class _Counted:
    """Bytes of a tar archive, of which more than `limit` are refused."""

    def __init__(self, packed: IO[bytes], limit: int, too_large: UserError) -> None:
        self.last = b""  # the bytes read last
        self._packed = packed
        self._left = limit
        self._too_large = too_large

    def read(self, size: int) -> bytes:
        content = self._packed.read(size)
        self._left -= len(content)
        if self._left < 0:
            raise self._too_large
        self.last = content or self.last
        return content


class InnerArchives:
    """The archives within the folder of a source, such as audio/train.tar.gz beside the tables of FLEURS.

    They are unpacked when a recording is looked for in vain. Their files then have the places that they would
    have if each archive were unpacked in its own folder; files that are in no folder of the archive get one
    with its name.

    Args:
        folder: an empty one, for the unpacked files.
        max_bytes: of all files of all archives.
    """

    def __init__(self, root: Path, folder: Path, max_bytes: int) -> None:
        self.root = root
        self.folder = folder
        self._max_bytes = max_bytes

    def unpack(self) -> None:
        """Unpack all of them; a UserError if one is corrupt or refused."""
        left = self._max_bytes
        for archive in filter(is_archive, sorted(files_below(self.root))):
            logger.info("unpacking %s to find the recordings that are named", archive)
            target = self.folder / archive.parent.relative_to(self.root)
            target.mkdir(parents=True, exist_ok=True)
            stem = archive.name[: -len(_tar_suffix(archive) or archive.suffix)]
            left -= unpack(archive, target, left, loose=stem)

    def original(self, path: Path) -> Path:
        """Return the place in the source of an unpacked file; other paths stay."""
        return self.root / path.relative_to(self.folder) if path.is_relative_to(self.folder) else path


def unpack_heads(archive: Path, folder: Path, rank: Callable[[Path], int | None]) -> list[Path]:
    """Write the first bytes of some members of a zip archive; return the paths of all members in the folder.

    At most MAX_HEADS members of HEAD_BYTES are written, those with the lowest rank and depth.

    Args:
        rank: returns the rank of a member by its name, or None for a member that is not written.

    Raises:
        UserError: the archive is corrupt or refused.
    """
    try:
        with zipfile.ZipFile(archive) as file:
            members = [member for member in file.infolist() if not member.is_dir()]
            if len(members) > MAX_FILES:
                raise UserError(f"{archive}: more than {MAX_FILES:,} files; split the archive")
            named = [(_safe_name(member, archive), member) for member in members]
            named = [(name, member) for name, member in named if not is_hidden(name)]
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
    return [folder / name for name, _ in named]


def _write_head(file: zipfile.ZipFile, member: zipfile.ZipInfo, target: Path) -> None:
    """Write the first lines of a member."""
    with file.open(member) as reader:
        head = reader.read(HEAD_BYTES)
    if len(head) == HEAD_BYTES and b"\n" in head:
        head = head[: head.rindex(b"\n") + 1]  # the last line is cut off
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(head)


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
