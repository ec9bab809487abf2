"""Tests of the requests of a clock tick: the versions of the views, and when they change."""

import json
import os
import time
from pathlib import Path

import pytest

from indextts.errors import UserError
from indextts.projects.project import Project
from indextts.webui.page import EVERY_TAB, read_versions
from indextts.webui.view_versions import files_version, throttled_version

DEMO, OTHER = Project(Path("demo")), Project(Path("other"))


class Counted:
    """A version that is set from outside and counts how often it was asked."""

    def __init__(self) -> None:
        self.word, self.asked = "a", 0

    def __call__(self, _project: Project) -> str:
        self.asked += 1
        return self.word


def test_only_changed_versions_of_the_open_tab_are_sent():
    data, pairs = Counted(), Counted()
    views = [("data", data), ("pairs", pairs)]
    first = read_versions(views, DEMO, "data", "{}")
    assert json.loads(first) == {"0": "demo a"}
    assert (data.asked, pairs.asked) == (1, 0)
    assert read_versions(views, DEMO, "data", first) is first
    data.word = "b"
    second = read_versions(views, DEMO, "data", first)
    assert json.loads(second) == {"0": "demo b"}
    assert json.loads(read_versions(views, DEMO, "pairs", second)) == {"0": "demo b", "1": "demo a"}
    assert (data.asked, pairs.asked) == (3, 1)


def test_views_of_every_tab_are_always_updated():
    views = [("data", Counted()), (EVERY_TAB, Counted())]
    assert json.loads(read_versions(views, DEMO, "pairs", "{}")) == {"1": "demo a"}


def test_a_view_with_an_error_does_not_block_the_others():
    def broken(_project: Project) -> str:
        raise UserError("project.json: damaged")

    views = [("data", broken), ("data", Counted())]
    assert json.loads(read_versions(views, DEMO, "data", "{}")) == {"1": "demo a"}


@pytest.mark.parametrize("known", ["", "{", "[]", '{"0": 1}', "null", '"a"', '{"0": {"a": []}}'])
def test_invalid_versions_from_a_browser_update_every_view(known: str):
    assert json.loads(read_versions([("data", Counted())], DEMO, "data", known)) == {"0": "demo a"}


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
