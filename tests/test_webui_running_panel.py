"""Tests of indextts/webui/running/panel.py: how a job stands, in a sentence."""

import json
from pathlib import Path

import pytest

from indextts.jobs.records import Job, read_job
from indextts.webui.running.panel import describe


def ended_job(folder: Path, log: str, **ending: object) -> Job:
    folder.mkdir(parents=True)
    runner = {"pid": 1, "start_ticks": 0, "boot_id": "another boot"}
    record = {"stage": "train", "argvs": [["x.py"]], "started": 1000.0, "runner": runner}
    (folder / "job.json").write_text(json.dumps(record))
    (folder / "exit.json").write_text(json.dumps({"ended": 1067.0, **ending}))
    (folder / "output.log").write_text(log)
    job = read_job(folder)
    assert job is not None
    return job


LOG = "$ python x.py\n[Error] an earlier one\n[Error] the disk is full; free some space\n[Info] closed\n"


@pytest.mark.parametrize(
    ("reason", "status", "log", "said"),
    [
        ("failed", 2, LOG, "failed with exit status 2 after 1:07. the disk is full; free some space"),
        ("failed", 1, "Traceback (most recent call last):\n", "failed with exit status 1 after 1:07"),
        ("finished", 0, LOG, "finished after 1:07"),
    ],
)
def test_a_failed_job_says_what_its_program_said_last(
    tmp_path: Path, reason: str, status: int, log: str, said: str
):
    assert describe(ended_job(tmp_path / "20260101_000000_train", log, reason=reason, status=status)) == said


def test_no_job_is_not_started_yet():
    assert describe(None) == "not started yet"
