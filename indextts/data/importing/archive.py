"""Unpack untrusted zip archives.

An archive is refused if a name in it is absolute or points outside the folder, if it contains links or
special files, encrypted or duplicate members, too many files, more bytes than allowed, or a compression ratio
that only zip bombs have. The limits apply to the unpacked bytes, not to the sizes in the directory of the
archive. Only recordings, texts and tables are written, and nothing is executed. A preview reads only the
first bytes of some tables (unpacked_heads).
"""

import heapq
import logging
import lzma
import os
import shutil
import stat
import tempfile
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

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
_BLOCK_BYTES = 2**20
_BOUNDED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # others unpack a block into 100 MB at once
_UTF8_NAME = 0x800
_ENCRYPTED = 0x1
# zipfile raises NotImplementedError for an unknown compression method, UnicodeDecodeError for a name that is
# flagged as UTF-8 and is not
_CORRUPT = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    NotImplementedError,
    UnicodeDecodeError,
)


def is_archive(path: Path) -> bool:
    """Return whether a source is a zip archive by its name."""
    return path.suffix.lower() == ".zip" and path.is_file()


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
        try:
            with zipfile.ZipFile(archive) as file:
                _unpack(file, archive, folder, max_bytes)
        except _CORRUPT as error:
            raise UserError(
                f"{archive}: corrupt, or not a zip archive ({error}); create the archive again"
            ) from None
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


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


def _unpack(file: zipfile.ZipFile, archive: Path, folder: Path, max_bytes: int) -> None:
    members = [member for member in file.infolist() if not member.is_dir()]
    if len(members) > MAX_FILES:
        raise UserError(f"{archive}: {len(members):,} files, the maximum is {MAX_FILES:,}; split the archive")
    limit = min(max_bytes, max(MIN_BOMB_BYTES, MAX_RATIO * archive.stat().st_size))
    names = [_safe_name(member, archive) for member in members]
    wanted = [
        (member, name)
        for member, name in zip(members, names, strict=True)
        if may_be_read(name) and not _is_hidden(name)
    ]
    declared = sum(member.file_size for member, _ in wanted)
    if declared > shutil.disk_usage(folder).free:
        raise UserError(
            f"{archive}: {shown_size(declared)} do not fit on the disk of {folder.parent}; free some space"
        )
    _warn_about_nested_archives(archive, [name for name in names if not _is_hidden(name)])
    seen: set[str] = set()
    num_bytes = 0
    for member, name in wanted:
        if str(name) in seen:
            raise UserError(f"{archive}: contains {name} twice; create the archive again")
        seen.add(str(name))
        num_bytes += _write(file, member, folder / name, limit - num_bytes, archive, max_bytes)


def _safe_name(member: zipfile.ZipInfo, archive: Path) -> Path:
    """Return the relative path for a member."""
    name = member.filename
    if not member.flag_bits & _UTF8_NAME:
        name = _decoded(name)
    name = name.replace("\\", "/")  # of Windows programs
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or ".." in parts or not parts or ":" in parts[0] or "\0" in name:
        raise UserError(
            f"{archive}: the name {member.filename!r} points outside the folder; create the archive again"
        )
    mode = member.external_attr >> 16
    if stat.S_IFMT(mode) not in (0, stat.S_IFREG):
        raise UserError(
            f"{archive}: {member.filename!r} is a link or a special file; create the archive without it"
        )
    if member.flag_bits & _ENCRYPTED:
        raise UserError(f"{archive}: the archive has a password; create it without a password")
    return Path(*parts)


def _decoded(name: str) -> str:
    """Return a name without an encoding flag, decoded as UTF-8 if possible, else as cp437."""
    try:
        return name.encode("cp437").decode("utf-8")
    except UnicodeError:
        return name


def _write(
    file: zipfile.ZipFile, member: zipfile.ZipInfo, target: Path, limit: int, archive: Path, max_bytes: int
) -> int:
    """Write a member with its modification time; return its number of bytes."""
    target.parent.mkdir(parents=True, exist_ok=True)
    num_bytes = 0
    with file.open(member) as reader, target.open("xb") as writer:
        while block := reader.read(_BLOCK_BYTES):
            num_bytes += len(block)
            if num_bytes > limit:
                raise UserError(
                    f"{archive}: unpacks to more than {max_bytes / 1e9:g} GB (--max-unpacked-gb) or "
                    f"{MAX_RATIO} times its size; split the archive or raise the limit"
                )
            writer.write(block)
    changed = time.mktime((*member.date_time, 0, 0, -1))
    os.utime(target, (changed, changed))  # constant, so that the next import finds the file unchanged
    return num_bytes


def _is_hidden(name: Path) -> bool:
    return any(part.startswith(".") or part == "__MACOSX" for part in name.parts)


def _warn_about_nested_archives(archive: Path, names: list[Path]) -> None:
    archives = [
        name for name in names if name.suffix.lower() in (".zip", ".tar", ".gz", ".tgz", ".7z", ".rar")
    ]
    if archives:
        logger.warning(
            "%s: skipped %s inside it (%s, ...); unpack them and upload their files",
            archive,
            counted(len(archives), "archive"),
            archives[0],
        )
