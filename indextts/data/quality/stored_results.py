"""Results of a model that measures recordings, stored as they come, so that a killed check resumes.

    REPORT_DIR/measured/NAME.jsonl

    {"version": "dnsmos-1"}                     other versions begin a new file
    {"audio": "9c56...", "result": {...}}       sha256 of the recording's file; JSON of the model's own

A line that a kill cut off does not count.
"""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from indextts.errors import UserError
from indextts.system.files import count_lines, write_bytes

FOLDER_NAME = "measured"


class StoredResults:
    """Results by the digest of the recording's file; without a folder, only in memory.

    Use as a context manager, which closes the file.

    Args:
        kept: returns what is kept of a result in memory; all by default.

    Raises:
        UserError: the folder cannot be read or written.
    """

    def __init__(
        self,
        report_dir: Path | None,
        name: str,
        version: str,
        kept: Callable[[Any], Any] = lambda result: result,
    ) -> None:
        self._path = None if report_dir is None else report_dir / FOLDER_NAME / f"{name}.jsonl"
        self._version = version
        self._kept = kept
        self._results: dict[str, Any] = {}
        self._file: IO[bytes] | None = None
        if self._path is not None:
            try:
                self._results = _read(self._path, version, kept)
            except OSError as error:
                raise UserError(f"{self._path}: cannot be read ({error.strerror})") from None

    @property
    def known(self) -> Mapping[str, Any]:
        return self._results

    def add(self, digest: str, result: object) -> None:
        """Store a result; it is on its way to the disk when this returns."""
        self._results[digest] = self._kept(result)
        if self._path is None:
            return
        try:
            if self._file is None:
                self._file = self._opened(self._path)
            self._file.write(_line({"audio": digest, "result": result}))
            self._file.flush()
        except OSError as error:
            raise UserError(f"{self._path}: cannot be written ({error.strerror})") from None

    def _opened(self, path: Path) -> IO[bytes]:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not self._file_is_current(path):
            write_bytes(path, _line({"version": self._version}))
        content_end = _end_of_last_line(path)
        if content_end < path.stat().st_size:
            os.truncate(path, content_end)
        return path.open("ab")

    def _file_is_current(self, path: Path) -> bool:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return file.readline() == _line({"version": self._version})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def num_stored(report_dir: Path, name: str) -> int:
    """Return about how many results a file has, of whatever version."""
    try:
        return max(0, count_lines(report_dir / FOLDER_NAME / f"{name}.jsonl") - 1)
    except OSError:
        return 0


def _read(path: Path, version: str, kept: Callable[[Any], Any]) -> dict[str, Any]:
    """Return the stored results of the version; corrupt lines count as not measured."""
    if not path.is_file():
        return {}
    results: dict[str, Any] = {}
    with path.open("rb") as file:
        if file.readline() != _line({"version": version}):
            return {}
        for line in file:
            try:
                record = json.loads(line)
                results[record["audio"]] = kept(record["result"])
            except (ValueError, KeyError, TypeError):
                continue
    return results


def _end_of_last_line(path: Path) -> int:
    """Return the offset behind the last newline of a file."""
    block = 65_536
    with path.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        while end > 0:
            start = max(0, end - block)
            file.seek(start)
            place = file.read(end - start).rfind(b"\n")
            if place >= 0:
                return start + place + 1
            end = start
    return 0


def _line(record: Mapping[str, object]) -> bytes:
    return (json.dumps(record, ensure_ascii=False) + "\n").encode()
