"""Tests of indextts/projects/jobs/records.py: jobs as read from the disk."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from indextts.projects.jobs.files import end_reason, live_processes
from indextts.projects.jobs.records import list_jobs, newest_job, read_job
from indextts.projects.jobs.starting import start_job
from indextts.projects.jobs.stopping import kill_job, stop_job
from indextts.projects.project import Project
from indextts.system.files import write_json
from indextts.system.processes import Process, is_alive, read_stat
from indextts.webui.running import history
from tests.running_jobs import (
    SAVES_ON_SIGTERM,
    bytes_read_so_far,
    ended_jobs,
    program,
    project_with_jobs,
    reread,
    wait_until_over,
    wait_until_ready,
)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    with project_with_jobs(tmp_path, monkeypatch) as project:
        yield project


@pytest.mark.parametrize(
    "change",
    [{"start_ticks": 1}, {"boot_id": "an earlier boot"}],
    ids=["recycled number", "before a reboot"],
)
@pytest.mark.failure(27)
def test_another_process_with_the_pid_of_a_job_is_not_signalled(
    project: Project, change: dict[str, int | str]
):
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as stranger:
        stat = read_stat(stranger.pid)
        assert stat is not None
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        real = {"pid": stranger.pid, "start_ticks": stat.start_ticks, "boot_id": boot_id}
        assert is_alive(Process.from_fields(real))
        folder = project.jobs / "20260101_000000_train"
        folder.mkdir(parents=True)
        record = {"stage": "train", "argvs": [], "started": 0, "runner": {**real, **change}}
        (folder / "job.json").write_text(json.dumps(record))
        (folder / "program.json").write_text(json.dumps({**real, **change}))
        (job,) = list_jobs(project)
        assert (job.state, job.exit_status) == ("lost", None)
        stop_job(replace(job, state="running"))
        kill_job(replace(job, state="running"))
        time.sleep(0.05)
        assert stranger.poll() is None
        stranger.kill()


@pytest.mark.failure(57)
def test_a_folder_without_a_valid_record_is_not_a_job(project: Project):
    for name, content in {
        "half": '{"stage": "tr',
        "not_started": '{"stage": "train"}',
        "other": "[]",
    }.items():
        (project.jobs / name).mkdir(parents=True)
        (project.jobs / name / "job.json").write_text(content)
    assert list_jobs(project) == []
    assert newest_job(project, "train") is None


def test_a_record_older_than_the_queue_is_read(project: Project):
    folder = project.jobs / "20250101_000000_train"
    folder.mkdir(parents=True)
    runner = {"pid": 4_000_000, "start_ticks": 1, "boot_id": "x"}
    record = {"stage": "train", "argvs": [["a.py", "--b=1"]], "started": 10.0, "runner": runner}
    (folder / "job.json").write_text(json.dumps(record))
    (folder / "exit.json").write_text('{"status": 1, "reason": "failed", "ended": 70.0}')
    job = newest_job(project, "train")
    assert job is not None
    assert (job.state, job.exit_status, job.form, job.versions, job.after) == ("failed", 1, {}, {}, None)
    assert (job.began, job.seconds(1e9)) == (10.0, 60.0)


@pytest.mark.parametrize("time", ["NaN", "Infinity", "-Infinity", "1e300", "-1"])
def test_a_record_with_an_impossible_time_is_invalid(project: Project, time: str):
    runner = '{"pid": 4000000, "start_ticks": 1, "boot_id": "x"}'
    for name, started, ended in (
        ("20260101_000000_train", time, "70"),
        ("20260102_000000_train", "60", time),
    ):
        folder = project.jobs / name
        folder.mkdir(parents=True)
        record = f'{{"stage": "train", "argvs": [["a.py"]], "started": {started}, "runner": {runner}}}'
        (folder / "job.json").write_text(record)
        (folder / "exit.json").write_text(f'{{"status": 0, "reason": "finished", "ended": {ended}}}')
    (row,) = history.rows(project, now=100.0)
    assert (row.folder.name, row.state, row.duration) == ("20260102_000000_train", "lost", "")
    newest = newest_job(project, "train")
    assert newest is not None
    assert newest.folder == row.folder


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
    ended_jobs(project, 1000)
    jobs = list_jobs(project)
    before = bytes_read_so_far()
    again = list_jobs(project)
    assert bytes_read_so_far() - before < 1000  # of /proc, to ask just that
    assert again == jobs
    assert [job.started for job in jobs] == [float(number) for number in reversed(range(1000))]
    rewritten = jobs[0].folder / "exit.json"
    write_json(rewritten, {"status": 1, "reason": "failed", "ended": 5.0})
    assert list_jobs(project)[0].state == "failed"


def test_the_newest_of_a_thousand_jobs_is_found_without_reading_all(project: Project):
    ended_jobs(project, 1000)
    before = bytes_read_so_far()
    newest = newest_job(project, "train")
    assert bytes_read_so_far() - before < 20_000
    assert newest is not None
    assert newest.started == 998


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
    assert newest is not None
    assert newest.folder == job.folder
    stop_job(job)
    wait_until_over(job)
    newest = newest_job(project, "train")
    assert newest is not None
    assert newest.folder.name == "21000101_000009_train"
