"""Tests of a job with several real trainers: it behaves as estimated before the start."""

import json
from pathlib import Path

import pytest

from indextts.commands.launching import ALONE, Launch
from indextts.commands.terminal import parse
from indextts.commands.train import Train
from indextts.planning.hardware import MachineFacts
from indextts.planning.preflight import run_preflight
from indextts.projects.jobs.files import started_processes
from indextts.projects.jobs.log_tail import tail
from indextts.projects.jobs.starting import start_job
from indextts.projects.jobs.stopping import stop_job
from indextts.projects.project import Project
from indextts.runs.directory import read_metrics
from tests.running_jobs import wait_for, wait_until_over
from tests.tiny_run import make_tiny_run

TWO = Launch(processes=2)
CPU = MachineFacts((), 2, 8 << 30)


@pytest.mark.long
def test_two_ranks_save_once_on_a_stop_and_resume_as_estimated(tmp_path: Path):
    tiny, project = make_tiny_run(tmp_path), Project(tmp_path / "voice")
    command = parse(Train, tiny.flags(epochs=100_000, val_interval=1000, save_interval=1000))
    for launch, resume in ((TWO, ""), (ALONE, "auto")):
        asked = command.model_copy(update={"resume": resume})
        expected = run_preflight(asked, CPU, launch=launch)
        assert expected.problems == ()
        assert expected.estimate is not None
        job = start_job(project, "train", [asked], launch=launch)
        wait_for(job, lambda job=job: "[Train]" in tail(job.log))
        stop_job(job)
        over = wait_until_over(job)
        assert started_processes(job.runner) == []
        starts = [line for line in read_metrics(tiny.output / "metrics.jsonl") if line["kind"] == "start"]
        assert starts[-1]["total_steps"] == expected.estimate.total_steps
        assert (over.state, over.exit_status, over.stop_stage) == ("stopped", 143, "saving")
        assert tail(job.log).count("Stopped at step") == 1
    record = json.loads((tiny.output / "config.json").read_bytes())
    assert record["environment"]["processes"] == 1
