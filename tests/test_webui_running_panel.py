"""Tests of indextts/webui/running/panel.py: the status line of a job."""

from pathlib import Path

import pytest

from indextts.commands.base import Command
from indextts.errors import UserError
from indextts.projects.jobs.records import newest_job, read_job
from indextts.projects.jobs.starting import start_job
from indextts.projects.project import Project, ProjectSettings
from indextts.webui.language import t
from indextts.webui.running.panel import Stage, describe, find_active, queued_jobs, show_job, waiting_choice
from tests.running_jobs import WAITS_FOR_GO, ended_job, program, wait_until_ready

LOG = "$ python x.py\n[Error] an earlier one\n[Error] the disk is full; free some space\n[Info] closed\n"


@pytest.mark.usefixtures("time_of_addis_ababa")
@pytest.mark.parametrize(
    ("reason", "status", "log", "expected"),
    [
        ("failed", 2, LOG, "failed with exit status 2 after 1:07. the disk is full; free some space"),
        ("failed", 1, "Traceback (most recent call last):\n", "failed with exit status 1 after 1:07"),
        ("finished", 0, LOG, "finished after 1:07"),
    ],
)
def test_a_failed_job_shows_the_last_error_of_its_program(
    tmp_path: Path, reason: str, status: int, log: str, expected: str
):
    folder = ended_job(tmp_path / "20260101_000000_train", log, reason=reason, status=status)
    job = read_job(folder)
    assert job is not None
    assert describe(job) == expected.replace("1:07", "1:07 (1970-01-01 03:17)")


def test_queued_jobs_are_counted_and_can_be_waited_for(project: Project, tmp_path: Path):
    project.root.mkdir(exist_ok=True)
    (project.root / "project.json").touch()
    command = program(project, WAITS_FOR_GO)
    first = wait_until_ready(start_job(project, "train", [command]))
    second = start_job(project, "train", [command], after=first.folder)
    assert [job.folder for job in queued_jobs(project, "train")] == [second.folder]
    status, _, _, unqueue, *_ = show_job(
        project, Stage("train", "training.start_training", lambda *_: [command]), ""
    )
    assert status.startswith("running for")
    assert status.endswith(t("jobs.queued", number=1))
    assert unqueue.visible is True
    assert newest_job(project, "train").folder == first.folder  # type: ignore[union-attr]

    chosen = f"voice/{first.folder.name}"
    assert find_active(tmp_path, chosen) == first.folder
    kept = waiting_choice(tmp_path, chosen)
    assert chosen in [value for _, value in kept.choices]
    assert kept._constructor_args[0].keys() == {"choices", "visible"}  # the choice itself is not touched
    assert waiting_choice(tmp_path, "voice/gone").value == ""
    with pytest.raises(UserError, match="ended"):
        find_active(tmp_path, "voice/gone")


def test_an_invalid_form_blocks_the_start(tmp_path: Path):
    def refuse(*_: object) -> list[Command]:
        raise UserError("--epochs: too small")

    settings = ProjectSettings(name="voice", base=tmp_path)
    found = Stage("train", "training.start_training", refuse).prepare(Project(tmp_path), settings)
    assert [notice.text for notice in found.outlook.blockers] == [found.error] == ["--epochs: too small"]
