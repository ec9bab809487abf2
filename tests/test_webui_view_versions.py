"""Tests of indextts/webui/view_versions.py: when versions of views change."""

import os
import time
from pathlib import Path

import pytest

from indextts.webui.view_versions import files_version, throttled_version

LATER = 1_000_000_000.0


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "metrics.jsonl"


def written(file: Path, at: float) -> Path:
    """Append a line with modification time `at` in seconds; return the file."""
    with file.open("a") as lines:
        lines.write("{}\n")
    os.utime(file, (at, at))
    return file


def test_the_throttled_version_includes_the_last_line_once_writing_stops(
    file: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(time, "time", lambda: LATER)
    writing = throttled_version(written(file, LATER), every_s=4.0)
    written(file, LATER + 1)
    monkeypatch.setattr(time, "time", lambda: LATER + 1)
    assert throttled_version(file, every_s=4.0) == writing
    monkeypatch.setattr(time, "time", lambda: LATER + 5)
    assert throttled_version(file, every_s=4.0) == files_version(file) != writing


def test_the_throttled_version_changes_at_once_when_a_file_is_created_replaced_or_removed(file: Path):
    versions = [throttled_version(file, every_s=4.0)]
    now = time.time()
    versions.append(throttled_version(written(file, now), every_s=4.0))
    written(file.with_name("other"), now).replace(file)
    versions.append(throttled_version(file, every_s=4.0))
    file.unlink()
    assert len(set(versions)) == 3
    assert throttled_version(file, every_s=4.0) == versions[0]
