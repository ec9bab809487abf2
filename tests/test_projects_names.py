"""Tests of indextts/projects/names.py: titles and folder names of projects."""

import json
from pathlib import Path

import pytest

from indextts.errors import UserError
from indextts.projects.names import folder_name, title_of, titled_projects
from indextts.projects.project import (
    MAX_TITLE_CHARS,
    PUBLISHED,
    Project,
    is_folder_name,
    make_settings,
    write_project,
)


def make(workspace: Path, name: str, title: str = "") -> Project:
    project = Project(workspace / name)
    project.root.mkdir()
    write_project(project, make_settings(name=name, title=title, base=workspace))
    return project


@pytest.mark.parametrize(
    ("title", "folder"),
    [
        ("my voice", "my-voice"),
        ("የእኔ ድምፅ", "yaenee-demetze"),
        ("Émile  Zola / 2", "emile-zola-2"),
        ("../../etc", "etc"),
        ("...", "project"),
        ("声", "project"),
        (PUBLISHED, f"{PUBLISHED}-2"),
        ("x" * MAX_TITLE_CHARS, "x" * 40),
    ],
)
def test_a_folder_name_is_derived_from_a_title(tmp_path: Path, title: str, folder: str):
    found = folder_name(title, tmp_path)
    assert found == folder
    assert is_folder_name(found)


def test_a_derived_folder_name_is_free(tmp_path: Path):
    make(tmp_path, "voice")
    (tmp_path / "voice-2").symlink_to("/etc")
    (tmp_path / "Voice-3").touch()  # the same name on some disks
    assert folder_name("Voice", tmp_path) == "voice-4"


@pytest.mark.parametrize("title", ["a\nb", "a\u202eb", " a", "\x00", "x" * (MAX_TITLE_CHARS + 1), "\u2028"])
def test_a_title_is_one_short_line_of_visible_characters(tmp_path: Path, title: str):
    with pytest.raises(UserError, match="title"):
        make_settings(name="voice", title=title, base=tmp_path)


def test_a_project_without_a_title_shows_its_folder_name(tmp_path: Path):
    old = make(tmp_path, "old")
    content = json.loads((old.root / "project.json").read_text())
    del content["title"], content["language"]  # as older versions wrote it
    (old.root / "project.json").write_text(json.dumps(content))
    assert (title_of(old), title_of(make(tmp_path, "new", title="የእኔ ድምፅ"))) == ("old", "የእኔ ድምፅ")
    assert titled_projects(tmp_path) == [("የእኔ ድምፅ", "new"), ("old", "old")]


def test_a_corrupt_project_is_listed_by_its_folder_name(tmp_path: Path):
    (make(tmp_path, "voice", title="Voice").root / "project.json").write_text('{"title": "<b>"')
    assert titled_projects(tmp_path) == [("voice", "voice")]


def test_equal_titles_show_their_folders(tmp_path: Path):
    make(tmp_path, "a", title="Voice")
    make(tmp_path, "b", title="Voice")
    assert [title for title, _ in titled_projects(tmp_path)] == ["Voice (a)", "Voice (b)"]
