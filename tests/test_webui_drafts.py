"""Tests of indextts/webui/drafts.py: typed values survive, corrupt drafts are ignored."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from indextts.projects.project import Project
from indextts.webui.drafts import MAX_DRAFT_BYTES, forget_draft, read_draft, write_draft

FIELDS = ("learning_rate", "resume", "path")
VALUES = {"learning_rate": 2e-5, "resume": True, "path": "ሰላም"}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def file_of(project: Project) -> Path:
    return project.root / "drafts/train.json"


def test_a_draft_is_read_back(project: Project):
    assert read_draft(project, "train", FIELDS) == {}
    write_draft(project, "train", VALUES)
    assert read_draft(project, "train", FIELDS) == VALUES
    assert read_draft(project, "pairs", FIELDS) == {}
    forget_draft(project, "train")
    assert read_draft(project, "train", FIELDS) == {}


def test_fields_that_the_form_does_not_have_are_dropped(project: Project):
    write_draft(project, "train", {**VALUES, "gone": 1, "nested": {"a": 1}})
    assert read_draft(project, "train", FIELDS) == VALUES
    assert "nested" not in file_of(project).read_text()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[]",
        b'{"values": [1]}',
        b"[" * 100_000,
    ],
    ids=["empty", "cut", "no text", "list", "no values", "deep"],
)
def test_an_invalid_draft_counts_as_absent(project: Project, content: bytes):
    file_of(project).parent.mkdir()
    file_of(project).write_bytes(content)
    assert read_draft(project, "train", FIELDS) == {}


def test_a_huge_value_keeps_the_previous_draft(project: Project):
    write_draft(project, "train", VALUES)
    write_draft(project, "train", {"path": "x" * (MAX_DRAFT_BYTES + 1)})
    write_draft(project, "train", {"path": "\ud800"})
    assert read_draft(project, "train", FIELDS) == VALUES


def test_many_pages_that_write_at_once_leave_one_complete_draft(project: Project):
    with ThreadPoolExecutor(8) as pages:
        for number in range(200):
            pages.submit(write_draft, project, "train", {"path": str(number) * 500})
    assert len(read_draft(project, "train", FIELDS)["path"]) >= 500
    assert [path.name for path in file_of(project).parent.iterdir()] == ["train.json"]


def test_a_folder_that_cannot_be_written_loses_only_the_draft(tmp_path: Path):
    (tmp_path / "drafts").touch()  # a file where the folder would be
    write_draft(Project(tmp_path), "train", VALUES)
    assert read_draft(Project(tmp_path), "train", FIELDS) == {}
