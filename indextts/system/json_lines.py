"""JSON lines: reading them with line numbers, writing them whole or not at all."""

import contextlib
import fcntl
import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from indextts.errors import DISK_FULL, DISK_FULL_ERRNOS, USER_MISTAKE, UserError

_UTF8_BOM = b"\xef\xbb\xbf"


def read_json_lines(path: Path) -> Iterator[tuple[int, dict[str, object]]]:
    """Yield line numbers, from 1, and the objects of lines that are not blank; there is at least one.

    Raises:
        UserError: the file cannot be read or is empty, or a line is no JSON object in UTF-8.
    """
    is_empty = True
    for number, raw in _raw_lines(path):
        yield number, _json_object(raw, path, number)
        is_empty = False
    if is_empty:
        raise UserError(f"{path}: the file is empty, a manifest needs at least one line")


def read_json_lines_or_errors(path: Path) -> Iterator[tuple[int, dict[str, object] | UserError]]:
    """Yield line numbers with what `read_json_lines` yields, or with what is wrong with that line.

    Raises:
        UserError: the file cannot be read.
    """
    for number, raw in _raw_lines(path):
        try:
            yield number, _json_object(raw, path, number)
        except UserError as error:
            yield number, error


def sample_json_lines(path: Path, most: int) -> tuple[int, list[tuple[int, dict[str, object]]]]:
    """Return how many lines are not blank, and at most `most` of them, evenly spaced, as `read_json_lines`.

    Only the chosen lines are parsed: a manifest of 300,000 lines takes a fraction of a second.

    Raises:
        UserError: as for `read_json_lines`, of the chosen lines.
    """
    total = sum(1 for _ in _raw_lines(path))
    if not total:
        raise UserError(f"{path}: the file is empty, a manifest needs at least one line")
    chosen = {index * total // most for index in range(most)} if total > most else range(total)
    lines = enumerate(_raw_lines(path))
    return total, [(n, _json_object(raw, path, n)) for index, (n, raw) in lines if index in chosen]


def write_json_lines(path: Path, records: Iterable[dict[str, object]]) -> None:
    """Write records aside, sync and rename: `path` is complete or as it was.

    Raises:
        UserError: the file cannot be written.
    """
    aside = path.with_name(f"{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with aside.open("w", encoding="utf-8", newline="\n") as file:
            for record in records:
                file.write(json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n")
            file.flush()
            os.fsync(file.fileno())
        if path.is_file() and _sha256(path) == _sha256(aside):
            aside.unlink()  # the same again: nothing changes, not even the time of the file
        else:
            aside.replace(path)
            _sync_folder(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            aside.unlink()
        raise UserError(
            f"{path}: cannot be written ({error.strerror}), check the folder and the disk",
            DISK_FULL if error.errno in DISK_FULL_ERRNOS else USER_MISTAKE,
        ) from None


def append_json_line(path: Path, record: dict[str, Any]) -> None:
    """Append one line, whole or not at all: what a kill left of an earlier one is cut off first.

    Raises:
        UserError: the file cannot be written.
    """
    try:
        line = (json.dumps(record, ensure_ascii=False) + "\n").encode()
        with path.open("a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # two pages write one line each, one after the other
            file.seek(0)
            content = file.read()
            if content and not content.endswith(b"\n"):
                file.truncate(content.rfind(b"\n") + 1)
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
    except (OSError, UnicodeEncodeError) as error:
        raise UserError(f"{path}: cannot be written ({error}); look at the folder and the disk") from None


def _raw_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    if path.is_dir():
        raise UserError(f"{path}: this is a folder, give the manifest file in it")
    try:
        # Bytes: only \n ends a line. Text may hold U+2028, which str.splitlines() would cut at.
        with path.open("rb") as file:
            for number, raw in enumerate(file, start=1):
                content = raw.removeprefix(_UTF8_BOM) if number == 1 else raw
                if content.strip():
                    yield number, content
    except FileNotFoundError:
        raise UserError(f"{path}: there is no such file, check the path") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}), check the file") from None


def _json_object(raw: bytes, manifest: Path, number: int) -> dict[str, object]:
    where = f"{manifest}:{number}"
    try:
        record = json.loads(raw.decode())
    except UnicodeDecodeError:
        raise UserError(f"{where}: not UTF-8, save the file as UTF-8") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where}: not JSON ({error}), each line must be one JSON object") from None
    if not isinstance(record, dict):
        raise UserError(
            f"{where}: {shown_value(record)} is no JSON object, write {{...}} with the fields in it"
        )
    return record


def _sha256(path: Path) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def _sync_folder(folder: Path) -> None:
    """Make a rename in `folder` survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def shown_value(value: object) -> str:
    """Return a value as JSON, cut so that the message stays one short line."""
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
