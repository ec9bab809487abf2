"""Tests of indextts/webui/page.py: the request of a clock tick, and its response."""

import json
from pathlib import Path

import pytest

from indextts.errors import UserError
from indextts.projects.project import Project
from indextts.webui.page import EVERY_TAB, read_versions

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
