"""Tests of the history of a project's jobs."""

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from indextts.projects.jobs.starting import start_job
from indextts.projects.jobs.stopping import stop_job
from indextts.projects.project import Project
from indextts.webui.running.history import rows, version
from tests.running_jobs import (
    SAVES_ON_SIGTERM,
    bytes_read_so_far,
    ended_jobs,
    kill,
    program,
    program_of,
    project_with_jobs,
    runner_of,
    wait_until_over,
    wait_until_ready,
)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    with project_with_jobs(tmp_path, monkeypatch) as project:
        yield project


def test_each_job_is_a_row_the_newest_first(project: Project):
    assert rows(project, time.time()) == []
    failing = program(project, "raise SystemExit(4)", "failing.py")
    wait_until_over(start_job(project, "data", [failing, program(project, "")]))
    job = wait_until_ready(start_job(project, "train", [program(project, SAVES_ON_SIGTERM)]))
    running, failed = rows(project, time.time())
    assert (running.stage, running.state, running.duration) == ("train", "running", "")
    assert (failed.stage, failed.state) == ("data", "failed")
    assert str(failed.command) == "failing.py (and 1 more)"
    assert str(failed.outcome).startswith("failed with exit status 4 after 0:0")
    assert failed.duration.startswith("0:0")
    assert running.when == time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(job.started))


def test_a_command_is_short_and_its_paths_are_names(project: Project):
    ended_jobs(project, 3)
    row = rows(project, 0)[0]
    assert str(row.command) == "trainers/train_gpt_v2.py --tokenizer=t.model"
    assert (row.duration, str(row.outcome)) == ("1:15", "finished after 1:15")


def test_a_thousand_jobs_are_read_once(project: Project):
    ended_jobs(project, 1000)
    assert len(rows(project, 0)) == 1000
    word = version(project)
    before = bytes_read_so_far()
    assert len(rows(project, 0)) == 1000
    assert version(project) == word
    assert bytes_read_so_far() - before < 1000  # of /proc, to ask just that


def test_the_version_changes_with_every_state(project: Project):
    words = [version(project)]
    ended_jobs(project, 2)
    words.append(version(project))
    job = start_job(project, "train", [program(project, SAVES_ON_SIGTERM)])
    words.append(version(project))
    waiting = start_job(project, "export", [program(project, "", "export.py")], after=job.folder)
    words.append(version(project))
    wait_until_ready(job)
    assert version(project) == words[-1]
    stop_job(waiting)
    wait_until_over(waiting)
    words.append(version(project))
    kill(runner_of(job))
    kill(program_of(job))
    words.append(version(project))  # lost: nothing on the disk has changed
    shutil.rmtree(job.folder)
    words.append(version(project))
    assert len(set(words)) == len(words)
