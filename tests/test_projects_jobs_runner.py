"""Tests of indextts/projects/jobs/runner.py, real programs and signals: a job, a queue, several ranks."""

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest

from indextts.commands.launching import Launch
from indextts.errors import UserError
from indextts.projects.jobs.log_tail import tail
from indextts.projects.jobs.records import Job, list_jobs, newest_job, outcome
from indextts.projects.jobs.starting import script, shell_line, start_job
from indextts.projects.jobs.stopping import kill_job, stop_job
from indextts.projects.project import Project
from indextts.webui.running.panel import error_of
from tests.running_jobs import (
    SAVES_ON_SIGTERM,
    WAITS_FOR_GO,
    children_of,
    command_for,
    go,
    kill,
    processes_in,
    program,
    program_of,
    reread,
    wait_for,
    wait_until_over,
    wait_until_ready,
)
from tests.waiting import PATIENCE_S


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


TWO = Launch(processes=2)

# A rank of several: as trainers do, all end when one is asked to, and rank 0 alone saves.
TRAINS_TOGETHER = """
import os, pathlib, signal, sys, time
asked, saved = [], pathlib.Path("saved")
signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
print("ready")
while not asked and not saved.exists():
    time.sleep(0.01)
if os.environ["RANK"] == "0":
    with saved.open("x") as file:
        file.write(f"{os.environ['WORLD_SIZE']} {os.environ.get('CUDA_VISIBLE_DEVICES')}")
    print("saved")
while not saved.exists():
    time.sleep(0.01)
sys.exit(143)
"""
IGNORES_SIGTERM = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready")
while True:
    time.sleep(0.01)
"""
MISTAKEN = "import sys; sys.exit('[Error] no such voice')"


def leaves_nothing(job: Job) -> None:
    folder = job.folder.parent.parent.parent
    wait_for(job, lambda: processes_in(folder) <= {os.getpid()})


def test_a_stop_of_several_ranks_saves_once_and_counts_as_a_stop(project: Project, tmp_path: Path):
    launch = Launch(processes=2, gpus="5,7")
    job = start_job(project, "train", [program(project, TRAINS_TOGETHER)], launch=launch)
    job = wait_until_ready(job, times=2)
    stop_job(job)
    over = wait_until_over(job)
    assert (over.state, over.exit_status, over.stop_stage) == ("stopped", 143, "saving")
    assert (tmp_path / "saved").read_text() == "2 5,7"
    assert over.launch == launch
    assert "CUDA_VISIBLE_DEVICES" not in os.environ
    leaves_nothing(job)


@pytest.mark.long
def test_the_command_for_another_machine_joins_the_running_job(project: Project, tmp_path: Path):
    with socket.socket() as free:
        free.bind(("localhost", 0))
        launch = Launch(nodes=2, endpoint=f"localhost:{free.getsockname()[1]}")
    [other] = launch.on_other_nodes()
    command = program(project, TRAINS_TOGETHER)
    job = start_job(project, "train", [command], launch=launch)
    words = shlex.split(shell_line(command, other))
    with subprocess.Popen([sys.executable, *words[1:]], cwd=tmp_path, stderr=subprocess.DEVNULL) as there:
        stop_job(wait_until_ready(job))
        assert wait_until_over(job).state == "stopped"
        assert there.wait(timeout=PATIENCE_S) == 1
    assert (tmp_path / "saved").read_text() == "2 None"
    assert "saved" in tail(job.log).splitlines()  # rank 0 runs here
    leaves_nothing(job)


def test_a_killed_launcher_leaves_no_process(project: Project):
    job = wait_until_ready(
        start_job(project, "train", [program(project, IGNORES_SIGTERM)], launch=TWO), times=2
    )
    assert len(processes_in(project.root.parent)) == 4  # the runner too
    kill(program_of(job))
    over = wait_until_over(job)
    assert (over.state, over.exit_status) == ("killed", 128 + signal.SIGKILL)
    assert "[Warn]" in tail(over.log)
    leaves_nothing(job)


@pytest.mark.long
def test_the_last_error_of_a_rank_is_found_in_the_launchers_output(project: Project):
    over = wait_until_over(start_job(project, "train", [program(project, MISTAKEN)], launch=TWO))
    assert (over.state, over.exit_status) == ("failed", 1)
    assert error_of(over) == "no such voice"


def test_shell_line_script_record_and_log_have_the_same_command(project: Project):
    launch = Launch(processes=1, gpus="3")  # no launcher to wait for
    command = program(project, "import os; print(os.environ['CUDA_VISIBLE_DEVICES'])")
    over = wait_until_over(start_job(project, "train", [command], launch=launch))
    line = "CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=3 python program.py"
    assert shell_line(command, launch) == line
    assert tail(over.log) == f"$ {line}\n3"
    assert script(over).read_text().splitlines()[-1] == line.replace("python", f"{sys.executable} -u")
    record = json.loads((over.folder / "job.json").read_bytes())
    assert (record["launcher"], record["environment"]) == ([], launch.environment)


@pytest.mark.parametrize(("own", "expected"), [(None, "1000"), ("7", "7")])
def test_threads_of_a_program_wait_briefly_unless_the_environment_says_otherwise(
    project: Project, monkeypatch: pytest.MonkeyPatch, own: str | None, expected: str
):
    if own is None:
        monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
    else:
        monkeypatch.setenv("GOMP_SPINCOUNT", own)
    command = program(project, "import os; print(os.environ['GOMP_SPINCOUNT'])")
    assert tail(wait_until_over(start_job(project, "train", [command])).log).splitlines()[-1] == expected


def test_a_script_launches_as_the_job_does(project: Project):
    command = program(project, "")
    job = start_job(project, "train", [command], launch=TWO)
    kill_job(job)
    line = script(job).read_text().splitlines()[-1]
    assert shlex.split(line) == [sys.executable, "-u", *TWO.prefix, "program.py"]
    assert shell_line(command, TWO) == shlex.join(["python", *TWO.prefix, "program.py"])
    assert job.argvs == (("program.py",),)
