"""Tests of indextts/webui/running/all_jobs.py: the list of jobs."""

import shutil

import pytest

from indextts.errors import UserError
from indextts.projects.jobs.starting import start_job
from indextts.projects.jobs.stopping import stop_job
from indextts.projects.project import Project
from indextts.webui.running.all_jobs import find_job, job_html, job_rows
from indextts.webui.view_versions import jobs_version
from tests.running_jobs import (
    SAVES_ON_SIGTERM,
    command_for,
    ended_job,
    ended_jobs,
    kill,
    program,
    program_of,
    wait_until_over,
    wait_until_ready,
)

ARGV = ("tools/x.py", "--text=<b>bold</b>")


def test_a_command_is_short_and_its_paths_are_names(project: Project):
    ended_jobs(project, 1)
    job = start_job(project, "data", [program(project, SAVES_ON_SIGTERM), command_for("other.py")])
    running, ended = job_rows(project)
    assert running == [job.folder.name, "", running[2], "program.py (and 1 more)"]
    assert ended[1:] == ["1:15", "finished after 1:15", "trainers/train_gpt_v2.py --tokenizer=t.model"]


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


def test_the_version_changes_with_every_state(project: Project):
    words = [jobs_version(project)]
    ended_jobs(project, 2)
    words.append(jobs_version(project))
    job = start_job(project, "train", [program(project, SAVES_ON_SIGTERM)])
    words.append(jobs_version(project))
    waiting = start_job(project, "export", [program(project, "", "export.py")], after=job.folder)
    words.append(jobs_version(project))
    wait_until_ready(job)
    assert jobs_version(project) == words[-1]
    stop_job(waiting)
    wait_until_over(waiting)
    words.append(jobs_version(project))
    kill(job.runner)
    kill(program_of(job))
    words.append(jobs_version(project))  # lost: nothing on the disk has changed
    shutil.rmtree(job.folder)
    words.append(jobs_version(project))
    assert len(set(words)) == len(words)
