"""Tests of indextts/webui/drafts.py: typed values survive, corrupt drafts are ignored."""

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


def test_a_folder_that_cannot_be_written_loses_only_the_draft(tmp_path: Path):
    (tmp_path / "drafts").touch()  # a file where the folder would be
    write_draft(Project(tmp_path), "train", VALUES)
    assert read_draft(Project(tmp_path), "train", FIELDS) == {}
