"""Tests of the requests of a clock tick: the versions of the views, and when they change."""

import json
import os
import time
from pathlib import Path

import pytest

from indextts.errors import UserError
from indextts.projects.project import Project
from indextts.webui.page import View, read_views
from indextts.webui.view_versions import files_version, throttled_version

DEMO = Project(Path("demo"))


class Counted:
    """A version that is set from outside and counts how often it was asked."""

    def __init__(self) -> None:
        self.word, self.asked = "a", 0

    def __call__(self, _project: Project) -> str:
        self.asked += 1
        return self.word


def answered(views: list[View], tab: str, known: dict[str, str] | str = "{}") -> tuple[dict, dict]:
    """Return the versions and the values that a tick of the clock brings, both empty if nothing differs."""
    text = read_views(views, DEMO, tab, known if isinstance(known, str) else json.dumps(known))
    answer = json.loads(text or '{"versions": {}, "values": {}}')
    return answer["versions"], answer["values"]


def test_only_changed_views_of_the_open_tab_are_computed_and_sent():
    data, pairs, drawn = Counted(), Counted(), []

    def show(_project: Project) -> list[str]:
        drawn.append("")
        return ["<b>", "<i>"]

    views = [View("data", data, "x"), View("pairs", pairs, "xx", show), View("pairs", pairs, "x")]
    first, values = answered(views, "data")
    assert (first, values) == ({"0": "demo a"}, {"0": "demo a"})
    assert (data.asked, pairs.asked, drawn) == (1, 0, [])
    assert answered(views, "data", first) == ({}, {})
    data.word = "b"
    second, values = answered(views, "data", first)
    assert (second, values) == ({"0": "demo b"}, {"0": "demo b"})
    third, values = answered(views, "pairs", second)
    assert third == {"0": "demo b", "1": "demo a", "2": "demo a"}
    assert values == {"1": "<b>", "2": "<i>", "3": "demo a"}  # by the index of the output
    assert answered(views, "pairs", third) == ({}, {})
    assert len(drawn) == 1


@pytest.mark.parametrize(("error", "shown"), [(UserError("a <b>"), "a &lt;b&gt;"), (KeyError("id"), "")])
def test_a_view_with_an_error_does_not_block_the_others(error: Exception, shown: str):
    def broken(_project: Project) -> str:
        raise error

    views = [View("data", broken, "x"), View("data", Counted(), "x", broken), View("data", Counted(), "x")]
    versions, values = answered(views, "data")
    assert versions == {"1": "demo a", "2": "demo a"}  # asked again when it changes
    assert shown in values.pop("1", "")
    assert values == {"2": "demo a"}


@pytest.mark.parametrize("known", ["", "{", "[]", '{"0": 1}', "null", '"a"', '{"0": {"a": []}}'])
def test_invalid_versions_from_a_browser_update_every_view(known: str):
    assert answered([View("data", Counted(), "x")], "data", known) == ({"0": "demo a"}, {"0": "demo a"})


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


def test_the_throttled_version_includes_the_last_line_once_writing_stops(file: Path, monkeypatch):
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
