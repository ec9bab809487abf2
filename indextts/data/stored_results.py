"""Results of a model that measures recordings, stored as they come, so that a killed program resumes.

    REPORT_DIR/measured/NAME.jsonl

    {"version": "dnsmos-1"}                     other versions begin a new file
    {"audio": "9c56...", "result": {...}}       sha256 of the recording's file; JSON of the model's own

A line that a kill cut off does not count.
"""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, Self

from indextts.errors import UserError, disk_errors
from indextts.system.files import count_lines, write_bytes

FOLDER_NAME = "measured"


class StoredResults:
    """Results by the digest of the recording's file; without a folder, only in memory.

    Use as a context manager, which closes the file.

    Args:
        kept: returns what is kept of a result in `known`; all by default.
        folder_name: of the folder in `report_dir`; "" for none.
    """

    def __init__(
        self,
        report_dir: Path | None,
        name: str,
        version: str,
        kept: Callable[[Any], Any] = lambda result: result,
        folder_name: str = FOLDER_NAME,
    ) -> None:
        self._path = None if report_dir is None else report_dir / folder_name / f"{name}.jsonl"
        self._head = _line({"version": version})
        self._kept = kept
        self._file: IO[bytes] | None = None
        self.known: dict[str, Any] = {}
        self._num_bytes = 0  # of the complete lines of this version
        if self._path is not None and self._path.is_file():
            try:
                self._read(self._path)
            except OSError as error:
                raise UserError(f"{self._path}: cannot be read ({error.strerror})") from None

    def add(self, digest: str, result: object) -> None:
        """Store a result; it is on its way to the disk when this returns."""
        self.known[digest] = self._kept(result)
        if self._path is None:
            return
        with disk_errors(self._path):
            if self._file is None:
                self._file = self._opened(self._path)
            self._file.write(_line({"audio": digest, "result": result}))
            self._file.flush()

    def _read(self, path: Path) -> None:
        """Read the results of the version; corrupt lines count as not measured."""
        with path.open("rb") as file:
            if file.readline() != self._head:
                return
            self._num_bytes = len(self._head)
            for line in file:
                self._num_bytes += len(line) if line.endswith(b"\n") else 0
                try:
                    record = json.loads(line)
                    self.known[record["audio"]] = self._kept(record["result"])
                except (ValueError, KeyError, TypeError):
                    continue

    def _opened(self, path: Path) -> IO[bytes]:
        path.parent.mkdir(parents=True, exist_ok=True)
        if self._num_bytes == 0:
            write_bytes(path, self._head)
        else:
            os.truncate(path, self._num_bytes)
        return path.open("ab")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def num_stored(report_dir: Path, name: str) -> int:
    """Return about how many results a file has, of whatever version."""
    try:
        return max(0, count_lines(report_dir / FOLDER_NAME / f"{name}.jsonl") - 1)
    except OSError:
        return 0


def _line(record: Mapping[str, object]) -> bytes:
    return (json.dumps(record, ensure_ascii=False) + "\n").encode()
