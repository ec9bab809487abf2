"""Tests of indextts/projects/jobs/runner.py, with real programs and real signals."""

import os
import re
import signal
import time
from pathlib import Path

import pytest

from indextts.projects.jobs.log_tail import tail
from indextts.projects.jobs.records import list_jobs
from indextts.projects.jobs.starting import start_job
from indextts.projects.jobs.stopping import stop_job
from indextts.projects.project import Project
from tests.running_jobs import (
    SAVES_ON_SIGTERM,
    children_of,
    command_for,
    processes_in,
    program,
    program_of,
    wait_for,
    wait_until_over,
    wait_until_ready,
)


def test_a_job_runs_to_its_end_and_its_output_is_in_the_log(project: Project):
    before = time.time()
    job = start_job(project, "data", [program(project, "import os; print('hello from', os.getcwd())")])
    assert job.state in ("running", "finished")
    assert job.argvs == (("program.py",),)
    over = wait_until_over(job)
    assert (over.state, over.exit_status, over.stage) == ("finished", 0, "data")
    assert before <= over.started <= over.ended
    assert tail(over.log) == f"$ python program.py\nhello from {project.root.parent}"
    assert re.fullmatch(r"\d{8}_\d{6}_data", over.folder.name)
    assert over.folder.parent == project.jobs


def test_a_printed_line_is_in_the_log_at_once(project: Project, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    job = start_job(project, "data", [program(project, "import time; print('ready'); time.sleep(60)")])
    assert wait_until_ready(job).state == "running"


def test_commands_run_in_order_until_one_fails(project: Project):
    source = "import sys; print('[Error] no such voice', file=sys.stderr); sys.exit(2)"
    commands = [program(project, "print(1)", "first.py"), program(project, source), command_for("third.py")]
    over = wait_until_over(start_job(project, "data", commands))
    assert (over.state, over.exit_status) == ("failed", 2)
    assert tail(over.log) == "$ python first.py\n1\n$ python program.py\n[Error] no such voice"


def test_a_program_that_cannot_start_ends_the_job(project: Project):
    over = wait_until_over(start_job(project, "data", [command_for("program.py", ("x" * 200_000,))]))
    assert (over.state, over.exit_status) == ("failed", 127)
    assert tail(over.log, 1).startswith("[Error] program.py ")


@pytest.mark.failure(29)
def test_ten_megabytes_of_output_block_nothing(project: Project):
    source = "import sys\nfor _ in range(100_000): sys.stdout.buffer.write(b'x' * 99 + b'\\n')"
    over = wait_until_over(start_job(project, "data", [program(project, source)]))
    assert over.state == "finished"
    assert over.log.stat().st_size > 10_000_000


def test_ctrl_c_and_a_closed_terminal_do_not_reach_a_job(project: Project):
    job = wait_until_ready(start_job(project, "train", [program(project, SAVES_ON_SIGTERM)]))
    for process in (job.runner, program_of(job)):
        assert os.getsid(process.pid) != os.getsid(0)
    for number in (signal.SIGINT, signal.SIGHUP):
        os.kill(job.runner.pid, number)
    stop_job(job)
    assert wait_until_over(job).stop_stage == "saving"


def test_a_program_killed_by_the_system_is_killed_not_failed(project: Project):
    source = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
    over = wait_until_over(start_job(project, "train", [program(project, source)]))
    assert (over.state, over.exit_status) == ("killed", 139)


def test_starts_and_stops_leave_no_process_and_no_descriptor(project: Project):
    command = program(project, SAVES_ON_SIGTERM)
    children, descriptors = children_of(os.getpid()), Path("/proc/self/fd")
    num_before = len(list(descriptors.iterdir()))
    for number in range(4):
        job = start_job(project, "train", [command])
        if number % 2:
            wait_until_ready(job)
        stop_job(job)
        assert wait_until_over(job).state == "stopped"
    wait_for(job, lambda: children_of(os.getpid()) == children and not processes_in(project.root.parent))
    assert len(list(descriptors.iterdir())) == num_before
    assert len(list_jobs(project)) == 4
