"""Tests of jobs that wait for another job, with real processes and pages that have ended."""

from itertools import pairwise
from pathlib import Path

import pytest

from indextts.errors import UserError
from indextts.projects.jobs.log_tail import tail
from indextts.projects.jobs.records import Job, list_jobs, newest_job, outcome
from indextts.projects.jobs.starting import start_job
from indextts.projects.jobs.stopping import kill_job, stop_job
from indextts.projects.project import Project
from tests.running_jobs import (
    SAVES_ON_SIGTERM,
    WAITS_FOR_GO,
    command_for,
    go,
    kill,
    program,
    program_of,
    reread,
    wait_for,
    wait_until_over,
    wait_until_ready,
)


def chain_of_three(project: Project, first: str, words: tuple[str, ...] = ()) -> list[Job]:
    """Start `first` and two jobs that wait, the last for the second; return all three."""
    program(project, first, "first.py")
    jobs = [start_job(project, "pairs", [command_for("first.py", words)])]
    wait_until_ready(jobs[0])
    for name in ("second.py", "third.py"):
        command = program(project, f"print('this is {name}')", name)
        jobs.append(start_job(project, "train", [command], after=jobs[-1].folder))
    return jobs


def test_chained_jobs_run_in_order(project: Project):
    first, second, third = chain_of_three(project, WAITS_FOR_GO)
    assert [reread(job).state for job in (first, second, third)] == ["running", "waiting", "waiting"]
    assert second.after == first.folder.resolve()
    assert (second.began, tail(second.log)) == (None, "")
    go(project)
    ends = [wait_until_over(job) for job in (first, second, third)]
    assert [job.state for job in ends] == ["finished"] * 3
    for before, job in pairwise(ends):
        assert before.ended <= job.began
    assert tail(third.log) == "$ python third.py\nthis is third.py"


@pytest.mark.parametrize("end", ["failed", "stopped", "killed", "lost"])
def test_a_job_after_one_that_does_not_finish_is_not_started(project: Project, end: str):
    source = WAITS_FOR_GO if end == "failed" else SAVES_ON_SIGTERM
    first, second, third = chain_of_three(project, source, ("7",) if end == "failed" else ())
    match end:
        case "failed":
            go(project)
        case "stopped":
            stop_job(first)
        case "killed":
            kill(program_of(first))
        case "lost":
            kill(first.runner)
            kill(program_of(first))
    assert wait_until_over(first).state == end
    ends = [wait_until_over(job) for job in (second, third)]
    assert [(job.state, job.before, job.exit_status, job.began) for job in ends] == [
        ("not_started", end, None, None),
        ("not_started", "not_started", None, None),
    ]
    word = {"failed": "failed"}.get(end, f"was {end}")
    assert str(outcome(ends[0], 0)) == f"not started: the job before it {word}"
    assert tail(second.log) == tail(third.log) == ""


@pytest.mark.parametrize("stop", [stop_job, kill_job])
def test_a_waiting_job_stops_at_once_and_no_other_does(project: Project, stop):
    first, second, third = chain_of_three(project, WAITS_FOR_GO)
    stop(second)
    over = wait_until_over(second)
    assert (over.state, over.exit_status, over.began) == ("stopped", 143, None)
    assert outcome(over, 0).id == "jobs.outcome.stopped_waiting"
    assert wait_until_over(third).before == "stopped"
    assert reread(first).state == "running"


def test_a_waiting_job_with_a_killed_runner_is_lost(project: Project):
    _, second, third = chain_of_three(project, WAITS_FOR_GO)
    kill(second.runner)
    assert reread(second).state == "lost"
    assert wait_until_over(third).before == "lost"


def test_a_job_may_wait_for_an_ended_job_of_another_project(project: Project, tmp_path: Path):
    first = wait_until_over(start_job(Project(tmp_path / "other"), "train", [program(project, "")]))
    second = start_job(project, "train", [program(project, "", "second.py")], after=first.folder)
    assert wait_until_over(second).state == "finished"


def test_two_jobs_of_a_stage_never_run_at_the_same_time(project: Project):
    program(project, WAITS_FOR_GO)
    command = command_for("program.py")
    train = start_job(project, "train", [command])
    pairs = start_job(project, "pairs", [command])
    with pytest.raises(UserError, match=r"^train .* voice"):
        start_job(project, "train", [command], after=pairs.folder)
    second = start_job(project, "train", [command], after=train.folder)
    for after in (None, train.folder, pairs.folder):  # beside the second, which waits too
        with pytest.raises(UserError, match="train is already"):
            start_job(project, "train", [command], after=after)
    third = start_job(project, "train", [command], after=second.folder)
    assert newest_job(project, "train").folder == train.folder
    stop_job(third)
    stop_job(second)
    wait_for(second, lambda: not reread(second).is_active and not reread(third).is_active)
    with pytest.raises(UserError, match="train is already running"):
        start_job(project, "train", [command])


def test_waiting_for_a_folder_that_is_not_a_job_is_refused(project: Project, tmp_path: Path):
    with pytest.raises(UserError, match=r"^nowhere "):
        start_job(project, "train", [program(project, "")], after=tmp_path / "nowhere")
    assert list_jobs(project) == []
