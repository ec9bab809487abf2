"""Tests of `outcome` in indextts/projects/jobs/records.py: the message about the state of a job."""

import json
from pathlib import Path
from string import Formatter
from typing import Any

import pytest

from indextts.projects.jobs import records as sentences
from indextts.projects.jobs.records import (
    COULD_NOT_START,
    FAILED,
    FINISHED,
    KILLED,
    KILLED_BY_HAND,
    KILLED_FOR_MEMORY,
    KILLED_STOPPING,
    LOST,
    NOT_STARTED,
    NOT_STARTED_AFTER,
    STOPPED,
    STOPPED_UNSAVED,
    STOPPED_WAITING,
    Job,
    clock,
    last_lines,
    outcome,
    read_job,
)
from indextts.system.messages import Message


def job_with(folder: Path, ending: dict[str, Any] | None, **fields: Any) -> Job:
    """Return a job that began at 100 and whose processes are gone."""
    record = {
        "stage": "train",
        "argvs": [["a.py"]],
        "started": 100,
        "runner": {"pid": 4_000_000, "start_ticks": 1, "boot_id": "x"},
        **fields,
    }
    (folder / "job.json").write_text(json.dumps(record))
    if ending is not None:
        (folder / "exit.json").write_text(json.dumps({"ended": 3823, **ending}))
    job = read_job(folder)
    assert job is not None
    return job


LONG = {"duration": "1:02:03"}


@pytest.mark.parametrize(
    ("ending", "message"),
    [
        ({"status": 0, "reason": "finished"}, Message(FINISHED, LONG)),
        ({"status": 143, "reason": "stopped"}, Message(STOPPED, LONG)),
        ({"status": 143, "reason": "stopped", "stop_stage": "ending"}, Message(STOPPED_UNSAVED, LONG)),
        ({"status": 2, "reason": "failed"}, Message(FAILED, {"status": 2, **LONG})),
        ({"status": 127, "reason": "failed"}, Message(COULD_NOT_START)),
        ({"status": 139, "reason": "killed"}, Message(KILLED, {"signal": "SIGSEGV", **LONG})),
        ({"status": 190, "reason": "killed"}, Message(KILLED, {"signal": "signal 62", **LONG})),
        ({"status": 137, "reason": "killed"}, Message(KILLED_FOR_MEMORY, {"signal": "SIGKILL", **LONG})),
        ({"status": 137, "reason": "killed", "stop_stage": "killing"}, Message(KILLED_STOPPING, LONG)),
        (
            {"status": None, "reason": "not_started", "before": "failed"},
            Message(NOT_STARTED_AFTER["failed"]),
        ),
        ({"status": None, "reason": "not_started", "before": "x"}, Message(NOT_STARTED)),
        (None, Message(LOST)),
    ],
)
def test_each_end_has_its_message(tmp_path: Path, ending: dict[str, Any] | None, message: Message):
    assert outcome(job_with(tmp_path, ending), now=1e9) == message


def test_a_kill_by_the_user_is_not_attributed_to_memory(tmp_path: Path):
    (tmp_path / "kill_asked").touch()
    job = job_with(tmp_path, {"status": 137, "reason": "killed"})
    assert outcome(job, 0) == Message(KILLED_BY_HAND, LONG)


def test_a_job_removed_from_the_queue_never_ran(tmp_path: Path):
    waited = {"status": 143, "reason": "stopped"}
    assert outcome(job_with(tmp_path, waited, after="/other"), 0) == Message(STOPPED_WAITING)


def test_time_in_the_queue_does_not_count_as_run_time(tmp_path: Path):
    job = job_with(tmp_path, {"status": 0, "reason": "finished"}, after="/other", began=3800)
    assert str(outcome(job, 0)) == "finished after 0:23"


def test_the_last_40_lines_of_a_failed_job_are_available(tmp_path: Path):
    job = job_with(tmp_path, {"status": 1, "reason": "failed"})
    job.log.write_text("".join(f"{number}\n" for number in range(100)))
    assert last_lines(job, 40).splitlines() == [str(number) for number in range(60, 100)]


def test_a_duration_is_the_same_in_every_language():
    assert [clock(seconds) for seconds in (0, 7.9, 750, 3723, 360000)] == [
        "0:00",
        "0:07",
        "12:30",
        "1:02:03",
        "100:00:00",
    ]


def test_templates_use_only_named_values():
    templates = [
        value for name, value in vars(sentences).items() if name.isupper() and isinstance(value, str)
    ]
    assert len(templates) >= 13
    for template in templates:
        names = {name for _, name, _, _ in Formatter().parse(template) if name is not None}
        assert names <= {"duration", "status", "signal"}
