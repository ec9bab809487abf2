"""Read JSON lines with line numbers; write them completely or not at all."""

import contextlib
import fcntl
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from indextts.errors import UserError, disk_errors
from indextts.system.digest import file_sha256
from indextts.system.files import TEMPORARY, sync

_UTF8_BOM = b"\xef\xbb\xbf"
_BLOCK_BYTES = 64 * 1024


def read_json_lines(path: Path) -> Iterator[tuple[int, dict[str, object]]]:
    """Yield the line number, from 1, and the object of every non-blank line.

    Raises:
        UserError: the file cannot be read or is empty, or a line is not a JSON object in UTF-8.
    """
    is_empty = True
    for number, raw in _raw_lines(path):
        yield number, _json_object(raw, path, number)
        is_empty = False
    if is_empty:
        raise UserError(f"{path}: the file is empty; a manifest needs at least one line")


def json_lines_if_any(path: Path) -> Iterator[tuple[int, dict[str, object]]]:
    """Yield lines as `read_json_lines`; none of a file that is absent or empty."""
    if path.is_file() and path.stat().st_size:
        yield from read_json_lines(path)


def read_json_lines_or_errors(path: Path) -> Iterator[tuple[int, dict[str, object] | UserError]]:
    """Yield the line number and the object of every non-blank line, or the error of that line.

    Raises:
        UserError: the file cannot be read.
    """
    for number, raw in _raw_lines(path):
        try:
            yield number, _json_object(raw, path, number)
        except UserError as error:
            yield number, error


def sample_json_lines(path: Path, most: int) -> tuple[int, list[tuple[int, dict[str, object]]]]:
    """Return the number of non-blank lines, and at most `most` of them, evenly spaced.

    Only the chosen lines are parsed, so a manifest of 300,000 lines takes a fraction of a second.

    Raises:
        UserError: as for `read_json_lines`, for the chosen lines.
    """
    total = sum(1 for _ in _raw_lines(path))
    if not total:
        raise UserError(f"{path}: the file is empty; a manifest needs at least one line")
    chosen = {index * total // most for index in range(most)} if total > most else range(total)
    lines = enumerate(_raw_lines(path))
    return total, [(n, _json_object(raw, path, n)) for index, (n, raw) in lines if index in chosen]


def write_json_lines(path: Path, records: Iterable[dict[str, object]]) -> None:
    """Write records to a temporary file, sync and rename it; an unchanged file keeps its modification time.

    Raises:
        UserError: the file cannot be written.
    """
    aside = path.with_name(f"{TEMPORARY}{path.name}")
    try:
        with disk_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with aside.open("w", encoding="utf-8", newline="\n") as file:
                for record in records:
                    file.write(json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n")
            if path.is_file() and file_sha256(path) == file_sha256(aside):
                aside.unlink()
            else:
                sync(aside)
                aside.replace(path)
                sync(path.parent)
    except UserError:
        with contextlib.suppress(OSError):
            aside.unlink()
        raise


def append_json_line(path: Path, record: dict[str, Any] | Callable[[], Sequence[dict[str, Any]]]) -> None:
    """Append a line completely or not at all; first truncate an incomplete line that a kill left.

    Args:
        record: or a function that returns several, or none. It is called while other writers wait, so it can
            depend on their lines.

    Raises:
        UserError: the file cannot be written.
    """
    try:
        with disk_errors(path), path.open("a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # concurrent writers append one after the other
            _truncate_incomplete_line(file)
            found = record() if callable(record) else [record]
            file.write("".join(json.dumps(each, ensure_ascii=False) + "\n" for each in found).encode())
            file.flush()
            os.fsync(file.fileno())
    except UnicodeEncodeError as error:
        raise UserError(f"{path}: the text is not valid Unicode ({error.reason}); type it again") from None


def complete_lines(path: Path) -> list[bytes]:
    """Return the lines of a file; truncate an incomplete one at its end, so that the next starts a line."""
    content = path.read_bytes()
    complete = content[: content.rfind(b"\n") + 1]
    if complete != content:
        os.truncate(path, len(complete))
    return complete.split(b"\n")[:-1]


def _truncate_incomplete_line(file: IO[bytes]) -> None:
    end = file.seek(0, os.SEEK_END)
    start = end
    while start > 0:
        first = max(0, start - _BLOCK_BYTES)
        file.seek(first)
        newline = file.read(start - first).rfind(b"\n")
        if newline >= 0:
            start = first + newline + 1
            break
        start = first
    if start < end:
        file.truncate(start)


def _raw_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    if path.is_dir():
        raise UserError(f"{path}: this is a folder; use a file in it")
    try:
        # Split bytes at \n only: str.splitlines() would also split at U+2028, which texts may contain.
        with path.open("rb") as file:
            for number, raw in enumerate(file, start=1):
                content = raw.removeprefix(_UTF8_BOM) if number == 1 else raw
                if content.strip():
                    yield number, content
    except FileNotFoundError:
        raise UserError(f"{path}: the file does not exist; check the path") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); check its permissions") from None


def _json_object(raw: bytes, manifest: Path, number: int) -> dict[str, object]:
    where = f"{manifest}:{number}"
    try:
        record = json.loads(raw.decode())
    except UnicodeDecodeError:
        raise UserError(f"{where}: not UTF-8; save the file as UTF-8") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where}: not JSON ({error}); each line must be a JSON object") from None
    if not isinstance(record, dict):
        raise UserError(
            f"{where}: {shown_value(record)} is not a JSON object; each line must be {{...}} with its fields"
        )
    return record


def shown_value(value: object) -> str:
    """Return a value as JSON, shortened for a message of one line."""
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."
