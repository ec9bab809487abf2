"""Tests of how a job's end is said."""

import json
from pathlib import Path
from string import Formatter
from typing import Any

import pytest

from indextts.projects.jobs import records as sentences
from indextts.projects.jobs.records import Job, clock, last_lines, outcome, read_job


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


@pytest.mark.parametrize(
    ("ending", "said"),
    [
        ({"status": 0, "reason": "finished"}, "finished after 1:02:03"),
        ({"status": 143, "reason": "stopped"}, "stopped after 1:02:03"),
        (
            {"status": 143, "reason": "stopped", "stop_stage": "ending"},
            "stopped without saving after 1:02:03: saving took too long",
        ),
        ({"status": 2, "reason": "failed"}, "failed with exit status 2 after 1:02:03"),
        ({"status": 127, "reason": "failed"}, "the program could not be started"),
        ({"status": 139, "reason": "killed"}, "killed by SIGSEGV after 1:02:03"),
        ({"status": 190, "reason": "killed"}, "killed by signal 62 after 1:02:03"),
        (
            {"status": 137, "reason": "killed"},
            "killed by SIGKILL after 1:02:03: not by this page, most often because the memory was full",
        ),
        (
            {"status": 137, "reason": "killed", "stop_stage": "killing"},
            "killed after 1:02:03: it did not end when it was asked to",
        ),
        (
            {"status": None, "reason": "not_started", "before": "failed"},
            "not started: the job before it failed",
        ),
        (
            {"status": None, "reason": "not_started", "before": "x"},
            "not started: the job before it did not finish",
        ),
        (None, "lost: nobody saw it end, as when the machine is switched off"),
    ],
)
def test_each_end_is_said_as_it_was(tmp_path: Path, ending: dict[str, Any] | None, said: str):
    assert str(outcome(job_with(tmp_path, ending), now=1e9)) == said


def test_stop_now_is_not_laid_on_the_memory(tmp_path: Path):
    (tmp_path / "kill_asked").touch()
    job = job_with(tmp_path, {"status": 137, "reason": "killed"})
    assert str(outcome(job, 0)) == "killed after 1:02:03, as you asked"


def test_what_was_taken_out_of_the_queue_never_ran(tmp_path: Path):
    waited = {"status": 143, "reason": "stopped"}
    assert str(outcome(job_with(tmp_path, waited, after="/other"), 0)) == "taken out of the queue"


def test_time_in_the_queue_is_not_time_at_work(tmp_path: Path):
    job = job_with(tmp_path, {"status": 0, "reason": "finished"}, after="/other", began=3800)
    assert str(outcome(job, 0)) == "finished after 0:23"


def test_the_last_40_lines_of_a_failed_job_are_there(tmp_path: Path):
    job = job_with(tmp_path, {"status": 1, "reason": "failed"})
    job.log.write_text("".join(f"{number}\n" for number in range(100)))
    assert last_lines(job, 40).splitlines() == [str(number) for number in range(60, 100)]


def test_a_duration_is_read_the_same_in_every_language():
    assert [clock(seconds) for seconds in (0, 7.9, 750, 3723, 360000)] == [
        "0:00",
        "0:07",
        "12:30",
        "1:02:03",
        "100:00:00",
    ]


def test_a_template_asks_only_for_named_values():
    templates = [
        value for name, value in vars(sentences).items() if name.isupper() and isinstance(value, str)
    ]
    assert len(templates) >= 13
    for template in templates:
        names = {name for _, name, _, _ in Formatter().parse(template) if name is not None}
        assert names <= {"duration", "status", "signal"}
