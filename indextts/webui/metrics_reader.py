"""Incremental reader of a growing metrics.jsonl. No Gradio here.

`indextts/training/metrics.py` draws the lines. A process that starts at step S repeats the steps
after S; lines of an earlier process for these steps are not returned.
"""

import json
import os
import sys
import threading
from collections import Counter
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

from indextts.runs.directory import MetricsKey, add_metrics_line

MAX_LINES = 20_000  # of a run, about 12 MB in memory
MAX_RUNS = 24  # the runs of all open pages: of their projects, their tables of runs and their comparisons
BLOCK_BYTES = 1 << 20
TAIL_BYTES = 64

Line = dict[str, Any]


class MetricsReader:
    """The lines of one metrics.jsonl as `run_dir.read_metrics` returns them; each byte is read once.

    Above MAX_LINES, every second line of each part and kind is dropped; `start` lines stay.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()  # the ticks of several browsers run in threads
        self._forget(inode=None)

    def read(self) -> list[Line]:
        """Return all lines in the order of writing; for repeated steps of a part, the last line counts."""
        with self._lock:
            try:
                with self.path.open("rb") as file:
                    rest = self._follow(file)
            except FileNotFoundError:
                self._forget(inode=None)
                return []
            lines = dict(self._lines)
        _add(lines, rest)  # a line without its newline may be incomplete, so it is not stored
        return list(lines.values())

    def _forget(self, inode: int | None) -> None:
        self._inode, self._offset, self._tail = inode, 0, b""
        self._lines: dict[MetricsKey, Line] = {}

    def _follow(self, file: BinaryIO) -> bytes:
        """Read the new lines since the last call; return the text after the last newline."""
        inode = os.fstat(file.fileno()).st_ino
        file.seek(self._offset - len(self._tail))
        if inode != self._inode or file.read(len(self._tail)) != self._tail:
            self._forget(inode)  # another file, or a truncated one: start over
            file.seek(0)
        while b"\n" in (block := file.read(BLOCK_BYTES)) or len(block) == BLOCK_BYTES:
            # a megabyte without a newline contains no valid line, so it is skipped
            whole = block[: block.rfind(b"\n") + 1] or block
            for text in whole.splitlines():
                _add(self._lines, text)
            self._offset, self._tail = self._offset + len(whole), whole[-TAIL_BYTES:]
            file.seek(self._offset)
            if len(self._lines) > MAX_LINES:
                self._thin()
        return block

    def _thin(self) -> None:
        seen: Counter[tuple[int, str]] = Counter()
        kept = []
        for key in reversed(self._lines):  # from the end, so that the newest of each kind stays
            part, kind, _ = key
            seen[part, kind] += 1
            if kind == "start" or seen[part, kind] % 2:
                kept.append(key)
        self._lines = {key: self._lines[key] for key in reversed(kept)}


def read_run(run_dir: Path) -> list[Line]:
    """Return the lines of a run; one reader serves the whole page, so that no run is in memory twice."""
    return _reader(run_dir).read()


@lru_cache(maxsize=MAX_RUNS)
def _reader(run_dir: Path) -> MetricsReader:
    return MetricsReader(run_dir / "metrics.jsonl")


def _add(lines: dict[MetricsKey, Line], text: bytes) -> None:
    """Append one line of the file to `lines`; an incomplete line is skipped."""
    try:
        parsed = json.loads(text.decode())
        line = {sys.intern(name): value for name, value in parsed.items()}
        line["part"], line["step"], line["kind"] = line["part"], line["step"], sys.intern(line["kind"])
    except (ValueError, TypeError, KeyError, AttributeError):
        return
    add_metrics_line(lines, line)
