"""Tests of indextts/webui/project: a new project, the offer of the demo, runs and facts."""

import json
import os
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from indextts.commands.bases import PROPOSED
from indextts.commands.data import DownloadCheckpoints, Preprocess
from indextts.commands.train import Train
from indextts.errors import UserError
from indextts.projects.jobs import starting
from indextts.projects.jobs.records import list_jobs
from indextts.projects.jobs.stopping import kill_job
from indextts.projects.pipeline import copy_base_files
from indextts.projects.project import DEMO, PUBLISHED, Project, read_project, read_settings
from indextts.projects.stages import PLANNERS, plan_stage
from indextts.webui.forms import store_draft, with_drafts
from indextts.webui.page import Page
from indextts.webui.project import creating, tab
from indextts.webui.project.creating import create, published_rows, summary_html
from indextts.webui.project.runs import run_rows, runs_html
from indextts.webui.project.tab import next_html, stage_fact, way_html
from indextts.webui.running.job_chip import chip_html
from indextts.webui.serving.security import Roots
from indextts.webui.stage_list import STAGES
from tests.conftest import REPOSITORY
from tests.running_jobs import SAVES_ON_SIGTERM, program
from tests.test_webui_stage_list import begin_demo, make_all_files, make_files
from tests.written_run import WrittenRun


@pytest.fixture
def page(tmp_path: Path) -> Any:
    """Give what the functions of the tab use of a page, over a workspace with the demo."""
    workspace = tmp_path / "workspace"
    settings = read_settings(DEMO)
    copy_base_files(Project(workspace / settings.name), settings)
    return SimpleNamespace(workspace=workspace, roots=Roots(workspace))


@pytest.fixture
def project(page: Page) -> Project:
    return Project(page.workspace / read_settings(DEMO).name)


def made(page: Page, **changes: Any) -> Any:
    form = {"title": "My voice", "base_folder": PUBLISHED, "language": "am", "folder": "", "other_base": ""}
    return create(page, **{**form, **changes})


def download(page: Page) -> None:
    """Put the files of a base model where a download puts them."""
    folder = page.workspace / PUBLISHED
    folder.mkdir()
    for name in ("config.yaml", "bpe.model"):
        shutil.copy(REPOSITORY / "tests/base_2.0" / name, folder)
    (folder / "gpt.pth").write_bytes(b"weights")


def test_a_project_has_a_title_and_a_derived_folder(page: Page):
    download(page)
    chosen = made(page, title="  የእኔ   ድምፅ ")
    project = Project(page.workspace / "yaenee-demetze")
    assert project.uploads.is_dir()
    assert project.recordings.is_dir()
    settings = read_project(project)
    assert (settings.title, settings.name) == ("የእኔ ድምፅ", "yaenee-demetze")
    assert chosen.value == "yaenee-demetze"
    assert ("የእኔ ድምፅ", "yaenee-demetze") in chosen.choices


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"title": " "}, "60"),
        ({"title": "a\u202eb"}, "60"),
        ({"title": "x" * 100}, "60"),
        ({"folder": "../outside"}, "../outside"),
        ({"folder": "ድምፅ"}, "ድምፅ"),
        ({"folder": PUBLISHED}, PUBLISHED),
        ({"folder": "demo"}, "demo"),
        ({"folder": "linked"}, "linked"),
        ({"title": "demo"}, "demo"),
        ({"other_base": "/etc"}, "/etc"),
    ],
)
def test_a_wrong_value_creates_nothing(page: Page, tmp_path: Path, changes: dict, named: str):
    download(page)
    (tmp_path / "outside").mkdir()
    (page.workspace / "linked").symlink_to(tmp_path / "outside")
    before = sorted(path.name for path in page.workspace.iterdir())
    with pytest.raises(UserError, match=re.escape(named)):
        made(page, **changes)
    assert sorted(path.name for path in page.workspace.iterdir()) == before
    assert not any((tmp_path / "outside").iterdir())


def test_own_data_can_be_tried_with_the_base_of_the_demo(page: Page):
    chosen = made(page, base_folder=creating.DEMO_BASE)
    project = Project(page.workspace / str(chosen.value))
    settings = read_project(project)
    assert (settings.base, settings.train) == (read_settings(DEMO).base, read_settings(DEMO).train)
    assert plan_stage(project, settings, "train").commands
    assert tab.offer(page, project) == ""


def test_2_5_is_proposed_and_its_project_has_its_tokenizer(page: Page):
    shutil.copytree(DEMO.parent / "checkpoints", page.workspace / PROPOSED.folder)
    weights = page.workspace / PROPOSED.folder / "gpt.pth"
    weights.unlink()
    with pytest.raises(UserError, match=PROPOSED.title):
        made(page, base_folder=PROPOSED.folder)
    weights.write_bytes(b"weights")
    made(page, base_folder=PROPOSED.folder)
    project = Project(page.workspace / "my-voice")
    assert project.base == PROPOSED
    assert project.base_tokenizer.name == PROPOSED.tokenizer_file
    settings = read_project(project).with_fields("preprocess", backend="indextts2")
    commands = [command for stage in PLANNERS for command in plan_stage(project, settings, stage).commands]
    [preprocess] = [command for command in commands if isinstance(command, Preprocess)]
    assert preprocess.semantic_codec == page.workspace / PROPOSED.folder / PROPOSED.codec_file
    assert preprocess.campplus.parent.parent == page.workspace / PROPOSED.folder
    [train] = [command for command in commands if isinstance(command, Train)]
    assert train.tokenizer == project.tokenizer == project.root / "tokenizers/amharic_extended.tiktoken"


def test_a_workspace_in_which_nothing_has_run_is_a_first_visit(page: Page, project: Project):
    assert tab.offer(page, project) == "first"
    assert next_html(page, project) == ""
    begin_demo(project, "data", "stopped")
    assert tab.offer(page, project) == "first"
    assert tab.outlook(project).button  # the same button resumes
    download(page)
    made(page, title="other")
    assert tab.offer(page, project) == "demo"
    assert tab.offer(page, Project(page.workspace / "other")) == ""


def test_what_remains_of_a_project_with_data_runs_from_its_next_stage(page: Page):
    download(page)
    made(page, title="other")
    own = Project(page.workspace / "other")
    make_files(own, "data")
    assert tab.offer(page, own) == "rest"
    assert 'class="onward"' in next_html(page, own)
    assert tab.outlook(own).facts[0][1].startswith("1 ")
    store_draft(own, "train", {"epochs": 7, "amp": "on", "output_dir": "/etc", "learning_rate": None})
    assert with_drafts(own, read_project(own)).train == {"epochs": 7, "amp": True}


def test_the_demo_ends_with_a_link_to_its_sound(page: Page, project: Project):
    make_all_files(project)
    begin_demo(project, "export", "finished")
    assert tab.offer(page, project) == ""
    assert next_html(page, project).count("primary-link") == 1
    assert 'href="#listen"' in next_html(page, project)
    assert way_html(page, project).count('<li class="done">') == len(STAGES)


@pytest.fixture
def started(project: Project, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    """Give the demo with a running demo job."""
    program_here = program(project, SAVES_ON_SIGTERM)
    monkeypatch.setattr(starting, "REPOSITORY", project.root.parent)
    starting.start_job(project, "demo", [program_here])
    yield project
    for job in list_jobs(project):
        kill_job(job)


def test_the_running_demo_marks_its_stage_and_shows_its_share(page: Page, started: Project):
    make_files(started, "data", "tokenizer")
    (job,) = list_jobs(started, "demo")
    (started.root / "pipeline").mkdir()
    now = {"stage": "preprocess", "started": job.began + 1}
    (started.root / "pipeline/now.json").write_text(json.dumps(now))
    assert tab.offer(page, started) == "first"
    classes = re.findall(r'<li class="(\w+)"', way_html(page, started))
    assert classes == ["done", "done", "running", "later", "later", "later"]
    chip = chip_html(page.workspace, time.time())
    assert "#project" in chip
    assert "--share:11" in chip  # 2 of 18 parts
    assert 'data-title="All stages 11 %"' in chip
    assert 'aria-valuenow="11"' in tab.progress_html(started)
    assert not tab.outlook(started).blockers


def write_run(folder: Path, losses: list[float], part: int = 1) -> WrittenRun:
    run = WrittenRun(part=part)
    for number, loss in enumerate(losses, start=1):
        run.val(100 * number, loss)
    run.write(folder)
    return run


def test_the_last_runs_have_their_best_loss_and_a_row_for_each_part(project: Project):
    assert runs_html(run_rows(project)) == ""
    run = WrittenRun()
    for part, losses in ((1, [5.0, 3.25, 4.0]), (2, [2.5])):
        run.part = part
        run.start()
        run.val(0, 1.0)  # of the untrained model
        for number, loss in enumerate(losses, start=1):
            run.val(100 * number, loss)
    run.write(project.run_dir)
    rows = run_rows(project)
    assert [(row.part, row.step) for row in rows] == [(2, 100), (1, 300)]
    html = runs_html(rows)
    assert "3.250" in html
    assert "2.500" in html
    assert "1.000" not in html
    assert html.count("<svg") == 2


def test_at_most_five_runs_are_listed_and_none_outside_the_project(project: Project, tmp_path: Path):
    for number in range(7):
        write_run(project.root / f"run{number}", [1.0])
        os.utime(project.root / f"run{number}/metrics.jsonl", (number, number))
    write_run(tmp_path / "elsewhere", [1.0])
    (project.root / "linked").symlink_to(tmp_path / "elsewhere")
    assert {row.name for row in run_rows(project)} == {f"run{number}" for number in range(2, 7)}


def test_corrupt_files_give_no_fact(project: Project):
    make_all_files(project)
    project.tokenizer.write_bytes(b"\xff\xff no model")
    project.manifest.write_text('{"id": 1\n')
    for stage in STAGES[:2]:
        assert stage_fact(project, stage.name) == ""


def test_what_is_missing_of_the_published_files_is_one_line(page: Page):
    assert re.search(r"\bGB", summary_html(page))
    assert "14" not in summary_html(page)  # nobody who needs none is told that all are missing
    download(page)
    assert re.search(r"\b3\b.*\b14\b.*GB", summary_html(page))
    assert len(published_rows(page)) >= 28
    home = Project(page.workspace / PUBLISHED)
    [command] = creating.download(home, read_settings(DEMO), PROPOSED.name, None).commands
    assert command == DownloadCheckpoints(output_dir=page.workspace / PROPOSED.folder, base=PROPOSED.name)
