"""Tests of indextts/webui/change_marks.py: words that change when what is shown may have."""

import os
import time
from pathlib import Path

import pytest

from indextts.webui.change_marks import calm_version, files_version

LATER = 1_000_000_000.0


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "metrics.jsonl"


def written(file: Path, at: float) -> Path:
    """Write a line more, `at` so many seconds; return the file."""
    with file.open("a") as lines:
        lines.write("{}\n")
    os.utime(file, (at, at))
    return file


def test_a_file_that_is_written_to_changes_its_calm_word_once_in_the_time(
    file: Path, monkeypatch: pytest.MonkeyPatch
):
    words = []
    for tenth in range(100):  # ten seconds of writing
        now = LATER + tenth / 10
        monkeypatch.setattr(time, "time", lambda now=now: now)
        words.append(calm_version(written(file, now), every_s=4.0))
    assert len(set(words)) == 3
    assert words == sorted(words, key=words.index)  # none comes back


def test_the_last_line_is_shown_once_the_file_rests(file: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(time, "time", lambda: LATER)
    writing = calm_version(written(file, LATER), every_s=4.0)
    written(file, LATER + 1)
    monkeypatch.setattr(time, "time", lambda: LATER + 1)
    assert calm_version(file, every_s=4.0) == writing
    monkeypatch.setattr(time, "time", lambda: LATER + 5)
    assert calm_version(file, every_s=4.0) == files_version(file) != writing


def test_a_file_that_comes_goes_or_is_replaced_changes_its_calm_word_at_once(file: Path):
    words = [calm_version(file, every_s=4.0)]
    now = time.time()
    words.append(calm_version(written(file, now), every_s=4.0))
    written(file.with_name("other"), now).replace(file)
    words.append(calm_version(file, every_s=4.0))
    file.unlink()
    assert len(set(words)) == 3
    assert calm_version(file, every_s=4.0) == words[0]
