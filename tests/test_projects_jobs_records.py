"""Tests of indextts/projects/jobs/records.py and stopping.py, with real programs and real signals."""

import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from indextts.errors import UserError
from indextts.projects.jobs import files
from indextts.projects.jobs.files import end_reason, live_processes, started_processes
from indextts.projects.jobs.log_tail import tail
from indextts.projects.jobs.records import Job, clock, list_jobs, newest_job, outcome, read_job
from indextts.projects.jobs.starting import start_job
from indextts.projects.jobs.stopping import kill_job, stop_job, stop_progress
from indextts.projects.project import Project
from indextts.system.files import write_json
from indextts.system.messages import Message
from indextts.system.processes import Process, is_alive, read_stat
from tests.conftest import REPOSITORY
from tests.running_jobs import (
    DEAF_WITH_A_CHILD,
    SAVES_ON_SIGTERM,
    bytes_read_so_far,
    command_for,
    ended_jobs,
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

RECORD = {
    "stage": "train",
    "argvs": [["a.py"]],
    "started": 60.0,
    "runner": {"pid": 4_000_000, "start_ticks": 1, "boot_id": "x"},
}


@pytest.mark.parametrize(
    "change", [{"start_ticks": 1}, {"boot_id": "an earlier boot"}], ids=["recycled number", "before a reboot"]
)
@pytest.mark.failure(27)
def test_another_process_with_the_pid_of_a_job_is_not_signalled(
    project: Project, change: dict[str, int | str]
):
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as stranger:
        stat = read_stat(stranger.pid)
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        real = {"pid": stranger.pid, "start_ticks": stat.start_ticks, "boot_id": boot_id}
        assert is_alive(Process(**real))
        folder = project.jobs / "20260101_000000_train"
        folder.mkdir(parents=True)
        record = {"stage": "train", "argvs": [], "started": 0, "runner": {**real, **change}}
        (folder / "job.json").write_text(json.dumps(record))
        (folder / "program.json").write_text(json.dumps({**real, **change}))
        (job,) = list_jobs(project)
        assert (job.state, job.exit_status) == ("lost", None)
        stop_job(job)
        kill_job(job)
        time.sleep(0.05)
        assert stranger.poll() is None
        stranger.kill()


@pytest.mark.failure(57)
def test_a_folder_without_a_valid_record_is_not_a_job(project: Project):
    for name, content in {
        "half": '{"stage": "tr',
        "not_started": '{"stage": "train"}',
        "other": "[]",
        "other_launch": json.dumps({**RECORD, "launch": {"processes": 0}}),
        "nan": json.dumps({**RECORD, "started": math.nan}),
        "late": json.dumps({**RECORD, "started": 1e300}),
        "early": json.dumps({**RECORD, "started": -1}),
    }.items():
        (project.jobs / name).mkdir(parents=True)
        (project.jobs / name / "job.json").write_text(content)
    assert list_jobs(project) == []
    assert newest_job(project, "train") is None


def test_a_half_written_exit_file_is_ignored(project: Project):
    job = wait_until_ready(start_job(project, "train", [program(project, SAVES_ON_SIGTERM)]))
    (job.folder / "exit.json").write_text('{"status": 0, "reason": "fin')
    assert reread(job).state == "running"
    (job.folder / "program.json").write_text('{"pid": ')
    assert reread(job).state == "running"
    stop_job(job)
    over = wait_until_over(job)
    assert (over.state, over.exit_status) == ("stopped", 143)


@pytest.mark.parametrize("content", ["", "{", "[" * 100_000, '{"runner": 7}', '{"pid": true}', '{"pid": -1}'])
def test_an_invalid_record_names_no_process(tmp_path: Path, content: str):
    for name in ("job.json", "program.json", "exit.json"):
        (tmp_path / name).write_text(content)
    assert live_processes(tmp_path) == []
    assert end_reason(tmp_path) == "lost"
    assert read_job(tmp_path) is None


def test_ended_jobs_are_read_once(project: Project):
    ended_jobs(project, 200)
    assert newest_job(project, "train").started == 198
    jobs = list_jobs(project)
    before = bytes_read_so_far()
    again = list_jobs(project)
    assert bytes_read_so_far() - before < 1000  # of /proc, to ask just that
    assert again == jobs
    assert [job.started for job in jobs] == [float(number) for number in reversed(range(200))]
    rewritten = jobs[0].folder / "exit.json"
    write_json(rewritten, {"status": 1, "reason": "failed", "ended": 5.0})
    assert list_jobs(project)[0].state == "failed"


def test_the_running_job_is_found_behind_many_removed_from_the_queue(project: Project):
    job = wait_until_ready(start_job(project, "train", [program(project, SAVES_ON_SIGTERM)]))
    for number in range(10):
        queued = project.jobs / f"21000101_{number:06}_train"
        queued.mkdir()
        record = json.loads((job.folder / "job.json").read_bytes())
        record |= {"started": 4e9 + number, "after": str(job.folder)}
        (queued / "job.json").write_text(json.dumps(record))
        (queued / "exit.json").write_text('{"status": 143, "reason": "stopped", "ended": 4e9}')
    newest = newest_job(project, "train")
    assert newest.folder == job.folder
    stop_job(job)
    wait_until_over(job)
    newest = newest_job(project, "train")
    assert newest.folder.name == "21000101_000009_train"


def job_with(folder: Path, ending: dict[str, Any] | None, **fields: Any) -> Job:
    """Return a job that began at 100 and whose processes are gone."""
    record = {**RECORD, "started": 100, "began": 100, **fields}
    (folder / "job.json").write_text(json.dumps(record))
    if ending is not None:
        (folder / "exit.json").write_text(json.dumps({"ended": 3823, **ending}))
    job = read_job(folder)
    assert job is not None
    return job


@pytest.mark.parametrize(
    ("ending", "kind", "values"),
    [
        ({"status": 0, "reason": "finished"}, "finished", {}),
        ({"status": 143, "reason": "stopped"}, "stopped", {}),
        ({"status": 143, "reason": "stopped", "stop_stage": "ending"}, "stopped_unsaved", {}),
        ({"status": 2, "reason": "failed"}, "failed", {"status": 2}),
        ({"status": 127, "reason": "failed"}, "could_not_start", {"status": 127}),
        ({"status": 139, "reason": "killed"}, "killed", {"signal": "SIGSEGV"}),
        ({"status": 190, "reason": "killed"}, "killed", {"signal": "signal 62"}),
        ({"status": 137, "reason": "killed"}, "killed_for_memory", {"signal": "SIGKILL"}),
        (
            {"status": 137, "reason": "killed", "stop_stage": "killing"},
            "killed_stopping",
            {"signal": "SIGKILL"},
        ),
        ({"status": None, "reason": "not_started", "before": "failed"}, "not_started_after.failed", {}),
        ({"status": None, "reason": "not_started", "before": "x"}, "not_started", {}),
    ],
)
def test_each_end_has_its_message(tmp_path: Path, ending: dict[str, Any], kind: str, values: dict[str, Any]):
    found = outcome(job_with(tmp_path, ending), now=1e9)
    assert found == Message(f"jobs.outcome.{kind}", {"duration": "1:02:03", **values})
    assert "{" not in str(found)


def test_a_lost_job_and_a_kill_by_the_user_are_not_attributed_to_memory(tmp_path: Path):
    assert outcome(job_with(tmp_path, None), now=1e9).id == "jobs.outcome.lost"
    (tmp_path / "kill_asked").touch()
    job = job_with(tmp_path, {"status": 137, "reason": "killed"})
    assert outcome(job, 0).id == "jobs.outcome.killed_by_hand"


def test_time_in_the_queue_does_not_count_as_run_time(tmp_path: Path):
    job = job_with(tmp_path, {"status": 0, "reason": "finished"}, after="/other", began=3800)
    assert str(outcome(job, 0)) == "finished after 0:23"


def test_a_duration_is_the_same_in_every_language():
    shown = [clock(seconds) for seconds in (0, 7.9, 750, 3723, 360000)]
    assert shown == ["0:00", "0:07", "12:30", "1:02:03", "100:00:00"]


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
