"""Tests of jobs with several ranks: PyTorch's launcher, real signals, no leftover processes."""

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from indextts.commands.launching import Launch
from indextts.projects.jobs.log_tail import tail
from indextts.projects.jobs.records import Job
from indextts.projects.jobs.starting import script, shell_line, start_job
from indextts.projects.jobs.stopping import kill_job, stop_job
from indextts.projects.project import Project
from indextts.webui.running.panel import error_of
from tests.running_jobs import (
    kill,
    processes_in,
    program,
    program_of,
    wait_for,
    wait_until_over,
    wait_until_ready,
)
from tests.waiting import PATIENCE_S

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


def test_a_script_launches_as_the_job_does(project: Project):
    command = program(project, "")
    job = start_job(project, "train", [command], launch=TWO)
    kill_job(job)
    line = script(job).read_text().splitlines()[-1]
    assert shlex.split(line) == [sys.executable, "-u", *TWO.prefix, "program.py"]
    assert shell_line(command, TWO) == shlex.join(["python", *TWO.prefix, "program.py"])
    assert job.argvs == (("program.py",),)
