"""Tests of indextts/webui/running/all_jobs.py: the list of jobs."""

from pathlib import Path

import pytest

from indextts.errors import UserError
from indextts.projects.project import Project
from indextts.webui.language import t
from indextts.webui.running.all_jobs import CHOOSE, EMPTY, find_job, hint, job_html, job_rows
from tests.running_jobs import ended_job

ARGV = ("tools/x.py", "--text=<b>bold</b>")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "demo")


def test_the_rows_show_how_each_job_ended(project: Project):
    ended_job(project.jobs / "20260101_000000_data", "", status=0, reason="finished")
    ended_job(project.jobs / "20260102_000000_train", "", status=2, reason="failed")
    rows = {row[0]: row[1:] for row in job_rows(project)}
    assert rows["20260101_000000_data"][:2] == ["1:07", "finished after 1:07"]
    assert rows["20260102_000000_train"][1] == "failed with exit status 2 after 1:07"


def test_a_job_shows_command_versions_and_its_last_forty_lines_as_text(project: Project):
    log = "".join(f"line {number}<i>\n" for number in range(1, 61))
    ended_job(project.jobs / "20260101_000000_data", log, ARGV, status=1, reason="failed")
    shown = job_html(find_job(project, "20260101_000000_data"))
    assert "line 21&lt;i&gt;" in shown
    assert "line 20&lt;" not in shown
    assert "<i>" not in shown
    assert "<b>bold" not in shown
    assert "python 3" in shown
    assert "20260101_000000_data.log" in shown


@pytest.mark.parametrize(
    "name", ["", "..", "../jobs/20260101_000000_data", "/etc", "20260101_000000_data/", "x"]
)
def test_only_a_job_of_the_project_is_shown(project: Project, name: str):
    ended_job(project.jobs / "20260101_000000_data", "", status=0, reason="finished")
    with pytest.raises(UserError, match="has no job"):
        find_job(project, name)


def test_without_a_job_the_page_shows_what_to_do(project: Project):
    assert hint(project) == t(EMPTY)
    ended_job(project.jobs / "20260101_000000_data", "", status=0, reason="finished")
    assert hint(project) == t(CHOOSE)
