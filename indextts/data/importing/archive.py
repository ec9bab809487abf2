"""Zip archives, unpacked without harm: what is in one was chosen by somebody else.

An archive is refused as a whole if a name in it is absolute or leads out of the folder, if it holds links or
other things than files, a password, a name twice, or too much: too many files, more bytes than allowed, or
so much more than the archive's own size that only a bomb has it. Counted are the bytes that come out, not
those that its list claims. Only recordings, texts and tables are written; nothing is ever run.
"""

import logging
import lzma
import os
import shutil
import stat
import tempfile
import time
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from indextts.data.importing.found import AUDIO_SUFFIXES, TEXT_SUFFIXES
from indextts.errors import UserError

logger = logging.getLogger(__name__)

UNPACKED_PREFIX = ".unpacked-"
MAX_FILES = 500_000
MAX_RATIO = 100  # of unpacked to packed; speech gives 1 to 2, text 5, silence as WAV some hundreds
MIN_BOMB_BYTES = 200 * 2**20  # what is smaller does no harm, whatever its ratio
_BLOCK_BYTES = 2**20
_UTF8_NAME = 0x800
_ENCRYPTED = 0x1


def is_archive(path: Path) -> bool:
    """Tell whether a source is a zip archive by its name."""
    return path.suffix.lower() == ".zip" and path.is_file()


@contextmanager
def unpacked(archive: Path, output_dir: Path, max_bytes: int) -> Iterator[Path]:
    """Give a folder with the files of an archive, for as long as they are needed.

    Args:
        output_dir: that the folder is made in.

    Raises:
        UserError: the archive is damaged or refused.
    """
    folder = Path(tempfile.mkdtemp(prefix=UNPACKED_PREFIX, dir=output_dir))
    try:
        try:
            with zipfile.ZipFile(archive) as file:
                _unpack(file, archive, folder, max_bytes)
        # the last is what zipfile raises for a way of packing that it does not know
        except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, NotImplementedError) as error:
            raise UserError(f"{archive}: damaged, or no zip archive ({error}); make it anew") from None
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _unpack(file: zipfile.ZipFile, archive: Path, folder: Path, max_bytes: int) -> None:
    members = [member for member in file.infolist() if not member.is_dir()]
    if len(members) > MAX_FILES:
        raise UserError(f"{archive}: {len(members):,} files, at most {MAX_FILES:,} are unpacked; split it")
    limit = min(max_bytes, max(MIN_BOMB_BYTES, MAX_RATIO * archive.stat().st_size))
    names = [_safe_name(member, archive) for member in members]
    wanted = [
        (member, name)
        for member, name in zip(members, names, strict=True)
        if name.suffix.lower() in AUDIO_SUFFIXES | TEXT_SUFFIXES and not _is_hidden(name)
    ]
    declared = sum(member.file_size for member, _ in wanted)
    if declared > shutil.disk_usage(folder).free:
        raise UserError(f"{archive}: {declared / 1e9:.1f} GB do not fit on the disk of {folder.parent}")
    _tell_of_unused(archive, [name for name in names if not _is_hidden(name)])
    seen: set[str] = set()
    num_bytes = 0
    for member, name in wanted:
        if str(name) in seen:
            raise UserError(f"{archive}: {name} is in it twice; make it anew")
        seen.add(str(name))
        num_bytes += _write(file, member, folder / name, limit - num_bytes, archive, max_bytes)


def _safe_name(member: zipfile.ZipInfo, archive: Path) -> Path:
    """Return where a member goes, below the folder."""
    name = member.filename
    if not member.flag_bits & _UTF8_NAME:
        name = _decoded(name)
    name = name.replace("\\", "/")  # of Windows programs
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or ".." in parts or not parts or ":" in parts[0] or "\0" in name:
        raise UserError(
            f"{archive}: the name {member.filename!r} in it leads out of the folder; make it anew"
        )
    mode = member.external_attr >> 16
    if stat.S_IFMT(mode) not in (0, stat.S_IFREG):
        raise UserError(f"{archive}: {member.filename!r} in it is a link, or no file; make it anew without")
    if member.flag_bits & _ENCRYPTED:
        raise UserError(f"{archive}: it has a password; make it anew without one")
    return Path(*parts)


def _decoded(name: str) -> str:
    """Return a name whose encoding the archive does not say: UTF-8 if it can be, else zip's old one."""
    try:
        return name.encode("cp437").decode("utf-8")
    except UnicodeError:
        return name


def _write(
    file: zipfile.ZipFile, member: zipfile.ZipInfo, target: Path, limit: int, archive: Path, max_bytes: int
) -> int:
    """Write one member, with its own time; return its number of bytes."""
    target.parent.mkdir(parents=True, exist_ok=True)
    num_bytes = 0
    with file.open(member) as reader, target.open("xb") as writer:
        while block := reader.read(_BLOCK_BYTES):
            num_bytes += len(block)
            if num_bytes > limit:
                raise UserError(
                    f"{archive}: its content is more than {MAX_RATIO} times its size, or than "
                    f"{max_bytes / 1e9:g} GB (--max-unpacked-gb); it is not unpacked"
                )
            writer.write(block)
    changed = time.mktime((*member.date_time, 0, 0, -1))
    os.utime(target, (changed, changed))  # the same at each unpacking: the import sees that nothing changed
    return num_bytes


def _is_hidden(name: Path) -> bool:
    return any(part.startswith(".") or part == "__MACOSX" for part in name.parts)


def _tell_of_unused(archive: Path, names: list[Path]) -> None:
    archives = [
        name for name in names if name.suffix.lower() in (".zip", ".tar", ".gz", ".tgz", ".7z", ".rar")
    ]
    if archives:
        logger.warning(
            "%s: %d archives inside of it are not unpacked (%s, ...); unpack them and upload their files",
            archive,
            len(archives),
            archives[0],
        )
