"""Tests of indextts/projects/jobs/stopping.py, with real programs and real signals."""

import json
import os
import signal
import time

import pytest

from indextts.errors import UserError
from indextts.projects.jobs import files
from indextts.projects.jobs.files import started_processes
from indextts.projects.jobs.log_tail import tail
from indextts.projects.jobs.records import outcome
from indextts.projects.jobs.starting import start_job
from indextts.projects.jobs.stopping import kill_job, stop_job, stop_progress
from indextts.projects.project import Project
from indextts.system.messages import Message
from tests.conftest import REPOSITORY
from tests.running_jobs import (
    DEAF_WITH_A_CHILD,
    SAVES_ON_SIGTERM,
    command_for,
    kill,
    processes_in,
    program,
    program_of,
    reread,
    wait_for,
    wait_until_over,
    wait_until_ready,
)
from tests.waiting import wait_until

# A trainer whose save hangs, with the handler that trainers have.
HANGS_WHILE_SAVING = f"""
import sys, time
sys.path.insert(0, {str(REPOSITORY)!r})
from indextts.system.signals import StopRequest
with StopRequest(ends_process=True) as stop:
    print("ready")
    while not stop.is_requested:
        time.sleep(0.01)
    print("saving")
    while True:
        time.sleep(0.01)
"""
LEAVES_A_WORKER = """
import os, signal, sys, time
reading, writing = os.pipe()
if not os.fork():
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.write(writing, b"1")
    time.sleep(600)
os.read(reading, 1)
print("ready")
if "--words=wait" in sys.argv:
    time.sleep(600)
"""


@pytest.mark.parametrize("status", [143, 0])  # or it finished just then
def test_a_stop_lets_the_program_save_and_starts_no_other(project: Project, status: int):
    training = program(project, SAVES_ON_SIGTERM.replace("143", str(status)))
    job = start_job(project, "train", [training, program(project, "print('late')", "export.py")])
    stop_job(wait_until_ready(job))
    over = wait_until_over(job)
    assert (over.state, over.exit_status, over.stop_stage) == ("stopped", 143, "saving")
    assert outcome(over, 0).id == "jobs.outcome.stopped"
    assert tail(over.log) == "$ python program.py\nready\nsaved"


@pytest.mark.parametrize("has_runner", [True, False])
def test_three_stop_requests_send_one_signal_to_the_program(project: Project, has_runner: bool):
    source = (
        "import signal, time\ncount = 0\ndef note(*_):\n    global count; count += 1\n"
        "signal.signal(signal.SIGTERM, note)\nprint('ready')\n"
        "while not count: time.sleep(0.01)\n"
        "print('saving'); time.sleep(0.5); print(count, 'signals'); raise SystemExit(143)"
    )
    job = wait_until_ready(start_job(project, "train", [program(project, source)]))
    if not has_runner:
        kill(job.runner)
    for _ in range(3):
        stop_job(job)
        assert reread(job).state == "stopping"
        time.sleep(0.05)
    assert wait_until_over(job).state == ("stopped" if has_runner else "lost")
    assert tail(job.log, 1) == "1 signals"


@pytest.mark.parametrize("has_runner", [True, False])
def test_kill_leaves_no_process_of_a_job_that_ignores_signals(project: Project, has_runner: bool):
    job = wait_until_ready(start_job(project, "train", [program(project, DEAF_WITH_A_CHILD)]), times=2)
    assert len(started_processes(job.runner)) == 2
    stop_job(job)
    wait_for(job, lambda: reread(job).state == "stopping")
    if not has_runner:
        kill(job.runner)
    kill_job(job)
    assert processes_in(project.root.parent) == set()
    over = reread(job)
    assert (over.state, over.exit_status) == (("killed", 137) if has_runner else ("lost", None))


def test_a_program_with_a_killed_runner_continues_and_can_be_stopped(project: Project):
    job = wait_until_ready(start_job(project, "train", [program(project, SAVES_ON_SIGTERM)]))
    kill(job.runner)
    assert reread(job).state == "running"
    with pytest.raises(UserError, match="already running"):
        start_job(project, "train", [command_for("program.py")])
    stop_job(job)
    over = wait_until_over(job)
    assert tail(over.log, 1) == "saved"
    assert (over.state, over.exit_status, over.ended) == ("lost", None, None)


def patience(monkeypatch: pytest.MonkeyPatch, save_s: float, kill_s: float) -> None:
    monkeypatch.setattr(files, "SAVE_S", save_s)
    monkeypatch.setattr(files, "KILL_S", kill_s)


def test_a_trainer_that_does_not_end_in_time_ends_without_saving(project: Project, monkeypatch):
    patience(monkeypatch, 0.5, 600)
    job = wait_until_ready(start_job(project, "train", [program(project, HANGS_WHILE_SAVING)]))
    stop_job(job)
    over = wait_until_over(job)
    assert (over.state, over.exit_status, over.stop_stage) == ("stopped", 143, "ending")
    assert outcome(over, 0).id == "jobs.outcome.stopped_unsaved"


@pytest.mark.parametrize("by_page", [True, False])
def test_a_job_that_ignores_signals_is_killed_with_its_processes(
    project: Project, monkeypatch: pytest.MonkeyPatch, by_page: bool
):
    patience(monkeypatch, 0.3, 0.3)
    job = wait_until_ready(start_job(project, "train", [program(project, DEAF_WITH_A_CHILD)]), times=2)
    if by_page:
        stop_job(job)
    else:  # as when the machine is shut down: nobody but the runner writes down that it was asked
        os.kill(job.runner.pid, signal.SIGTERM)
    over = wait_until_over(job)
    assert (over.state, over.exit_status, over.stop_stage) == ("killed", 137, "killing")
    assert started_processes(job.runner) == []
    assert json.loads((job.folder / "stop_asked").read_bytes())["asked"] <= time.time()
    assert outcome(over, 0).id == "jobs.outcome.killed_stopping"


def test_the_phases_of_a_stop_are_counted_down(project: Project):
    job = wait_until_ready(start_job(project, "train", [program(project, DEAF_WITH_A_CHILD)]), times=2)
    assert stop_progress(job, time.time()) is None
    stop_job(job)
    job = reread(job)
    wait_until((job.folder / "stop_asked").read_bytes)  # the runner creates it, then writes
    asked = json.loads((job.folder / "stop_asked").read_bytes())["asked"]
    shown = [stop_progress(job, asked + later) for later in (85, 185, 500)]
    assert shown == [
        Message("jobs.stop.saving", {"seconds": 95}),
        Message("jobs.stop.ending", {"seconds": 15}),
        Message("jobs.stop.killing"),
    ]
    (job.folder / "stop_asked").write_text("")  # as a full disk leaves it
    assert stop_progress(job, asked + 85).values["seconds"] == pytest.approx(95, abs=30)
    kill(job.runner)
    assert stop_progress(job, asked + 500) == Message("jobs.stop.unattended")
    kill_job(job)
    assert stop_progress(reread(job), asked) is None


@pytest.mark.parametrize("end", ["by itself", "killed", "stop now"])
def test_a_worker_in_its_own_session_that_ignores_sigterm_is_killed(project: Project, end: str):
    words = () if end == "by itself" else ("wait",)
    program(project, LEAVES_A_WORKER)
    job = start_job(project, "train", [command_for("program.py", words)])
    wait_for(job, lambda: "ready" in tail(job.log))
    if end == "killed":
        kill(program_of(job))
    elif end == "stop now":
        kill_job(job)
    over = wait_until_over(job)
    assert over.state == ("finished" if end == "by itself" else "killed")
    assert processes_in(project.root.parent) <= {job.runner.pid}  # it may end a moment after its exit.json
    if end != "stop now":
        assert tail(over.log, 1).startswith("[Warn] program.py ")
        assert outcome(over, 0).id == (
            "jobs.outcome.finished" if end == "by itself" else "jobs.outcome.killed_for_memory"
        )
    else:
        assert outcome(over, 0).id == "jobs.outcome.killed_by_hand"
