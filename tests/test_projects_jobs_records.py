"""Tests of indextts/projects/jobs/records.py: jobs as read from the disk."""

import json
import math
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from indextts.projects.jobs.files import end_reason, live_processes
from indextts.projects.jobs.records import Job, clock, list_jobs, newest_job, outcome, read_job
from indextts.projects.jobs.starting import start_job
from indextts.projects.jobs.stopping import kill_job, stop_job
from indextts.projects.project import Project
from indextts.system.files import write_json
from indextts.system.messages import Message
from indextts.system.processes import Process, is_alive, read_stat
from tests.running_jobs import (
    SAVES_ON_SIGTERM,
    bytes_read_so_far,
    ended_jobs,
    program,
    reread,
    wait_until_over,
    wait_until_ready,
)

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


def test_an_end_at_an_impossible_time_is_not_recorded(project: Project):
    folder = project.jobs / "20260102_000000_train"
    folder.mkdir(parents=True)
    (folder / "job.json").write_text(json.dumps(RECORD))
    (folder / "exit.json").write_text(json.dumps({"status": 0, "reason": "finished", "ended": 1e300}))
    (job,) = list_jobs(project)
    assert (job.state, job.ended) == ("lost", None)


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
