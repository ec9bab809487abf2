"""Tests of indextts/webui/running: the run panel, its outlook and log box, and the list of all jobs."""

import re
import shutil
from pathlib import Path

import pytest

from indextts.errors import UserError
from indextts.projects.jobs.records import newest_job, read_job
from indextts.projects.jobs.starting import start_job
from indextts.projects.jobs.stopping import stop_job
from indextts.projects.project import Project, ProjectSettings, write_project
from indextts.system.messages import Message
from indextts.webui.language import t
from indextts.webui.project.tab import find_job, job_html, jobs_html
from indextts.webui.running import outlook
from indextts.webui.running.log_box import line_class, show_log
from indextts.webui.running.outlook import (
    Notice,
    Outlook,
    Start,
    disk_full,
    missing,
    outlook_html,
    with_next_step,
)
from indextts.webui.running.panel import Stage, describe, find_active, queued_jobs, show_job, waiting_choice
from indextts.webui.serving.launch import PAGE_FILES
from indextts.webui.stage_list import StageState, stage_states
from indextts.webui.view_versions import jobs_version
from tests.parsed_html import Parsed
from tests.running_jobs import (
    SAVES_ON_SIGTERM,
    WAITS_FOR_GO,
    command_for,
    ended_job,
    ended_jobs,
    kill,
    program,
    program_of,
    wait_until_over,
    wait_until_ready,
)

LOG = "$ python x.py\n[Error] an earlier one\n[Error] the disk is full; free some space\n[Info] closed\n"


@pytest.mark.usefixtures("time_of_addis_ababa")
@pytest.mark.parametrize(
    ("reason", "status", "log", "expected"),
    [
        ("failed", 2, LOG, "failed after 1:07. the disk is full; free some space"),
        ("failed", 1, "Traceback (most recent call last):\n", "failed after 1:07"),
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
        project, Stage("train", "training.start_training", lambda *_: Start([command])), ""
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
    def refuse(*_: object) -> Start:
        raise UserError("--epochs: too small")

    settings = ProjectSettings(name="voice", base=tmp_path)
    found = Stage("train", "training.start_training", refuse).prepare(Project(tmp_path), settings)
    assert [notice.text for notice in found.outlook.blockers] == [found.error] == ["--epochs: too small"]


NOTE, LOSS, BLOCKER = Notice("a <b>note</b>"), Notice("a loss"), Notice("a blocker", "#training/x", "Epochs")


def test_only_a_start_without_blockers_and_losses_is_shown_as_ready():
    assert t("outlook.ready") in outlook_html(Outlook())
    assert t("outlook.ready") in outlook_html(Outlook(notes=[NOTE]))
    assert t("outlook.ready") not in outlook_html(Outlook(), is_ready=False)
    assert t("outlook.ready") not in outlook_html(Outlook(losses=[LOSS]))
    assert t("outlook.ready") not in outlook_html(Outlook(blockers=[BLOCKER]))


def test_a_full_disk_blocks_a_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert disk_full(tmp_path / "absent") == []
    monkeypatch.setattr(outlook, "free_bytes", lambda _folder: 40_000_000)
    [blocker] = disk_full(tmp_path)
    assert "40.0 MB" in blocker.text


def test_notices_are_escaped_and_link_to_what_changes_them():
    html = outlook_html(Outlook([("Steps", "<5>")], blockers=[BLOCKER], losses=[LOSS], notes=[NOTE]))
    assert '<li class="bad">a blocker <a href="#training/x"' in html
    assert '<li class="warn">a loss</li>' in html
    assert "&lt;5&gt;" in html
    assert "a &lt;b&gt;note" in html
    assert [html.index(f'class="{level}"') for level in ("bad", "warn", "note")] == sorted(
        html.index(f'class="{level}"') for level in ("bad", "warn", "note")
    )


def test_a_confirmation_holds_for_the_same_losses_only():
    assert Outlook(notes=[NOTE]).loss_key == ""
    assert Outlook(losses=[LOSS]).loss_key == Outlook(losses=[LOSS], notes=[NOTE]).loss_key != ""
    assert Outlook(losses=[LOSS]).loss_key == Outlook([("Steps", "1")], losses=[LOSS]).loss_key
    assert Outlook(losses=[LOSS]).loss_key != Outlook(losses=[Notice("another loss")]).loss_key
    assert Outlook(losses=[LOSS]).loss_key != Outlook(losses=[LOSS, BLOCKER]).loss_key


@pytest.fixture
def untouched(tmp_path: Path) -> list[StageState]:
    write_project(Project(tmp_path), ProjectSettings(name="voice", base=tmp_path))
    return stage_states(Project(tmp_path))


def test_missing_outputs_of_earlier_stages_are_one_neutral_notice_of_the_next_step(
    untouched: list[StageState], tmp_path: Path
):
    gone = missing(tmp_path / "pairs.jsonl", "pairs.none_yet", "pairs")
    gone += missing(tmp_path / "tokenizer.model", "tokenizer.no_manifest", "tokenizer")
    outlook = with_next_step(Outlook(blockers=[*gone, BLOCKER]), untouched, "train")
    assert [notice.text for notice in outlook.blockers] == [
        t("outlook.comes_first", tab=t("tab.data")),
        BLOCKER.text,
    ]
    assert outlook.blockers[0].link == "#data"
    assert 'class="note"' in outlook_html(outlook)
    assert outlook_html(outlook).count('class="bad"') == 1  # of the other blocker
    assert 'href="#data" class="primary-link"' in outlook_html(outlook, is_main=True)
    # a notice that already leads to the next step stays
    texts = missing(tmp_path / "manifest.jsonl", "tokenizer.no_manifest", "data")
    assert with_next_step(Outlook(blockers=[*gone, *texts]), untouched, "train").blockers == texts
    # the stage whose turn it is names what it lacks
    assert with_next_step(Outlook(blockers=gone), untouched, "data").blockers == gone
    # all stages are done: other files were chosen, and they are missing
    assert with_next_step(Outlook(blockers=gone), [], "train").blockers == gone


def test_what_is_finished_is_no_problem_and_a_done_stage_is_not_ready():
    html = outlook_html(Outlook(blockers=[Notice("all epochs are done", kind="finished")]), is_ready=False)
    assert 'class="good"' in html
    assert 'class="bad"' not in html
    done = outlook_html(Outlook(), is_done=True)
    assert t("outlook.up_to_date") in done
    assert t("outlook.ready") not in done


ARGV = ("tools/x.py", "--text=<b>bold</b>")


def test_a_command_is_short_and_its_paths_are_names(project: Project):
    ended_jobs(project, 1)
    job = start_job(project, "data", [program(project, SAVES_ON_SIGTERM), command_for("other.py")])
    running, ended = (re.findall("<td>(.*?)</td>", row) for row in jobs_html(project).split("<tr")[2:])
    assert running == [job.folder.name, "", running[2], "program.py (and 1 more)"]
    assert ended[1:] == ["1:15", "finished after 1:15", "trainers/train_gpt_v2.py --tokenizer=t.model"]


def test_a_job_shows_command_versions_and_its_last_forty_lines_as_text(project: Project):
    log = "".join(f"line {number}<i>\n" for number in range(1, 61))
    ended_job(project.jobs / "20260101_000000_data", log, ARGV, status=1, reason="failed")
    shown = job_html(find_job(project, "20260101_000000_data"))
    assert "line 21&lt;i&gt;" in shown
    assert "line 20&lt;" not in shown
    assert "<i>" not in shown
    assert "<b>bold" not in shown
    assert "python 3" in shown
    assert "20260101_000000_data.log" in shown


@pytest.mark.parametrize(
    "name", ["", "..", "../jobs/20260101_000000_data", "/etc", "20260101_000000_data/", "x"]
)
def test_only_a_job_of_the_project_is_shown(project: Project, name: str):
    ended_job(project.jobs / "20260101_000000_data", "", status=0, reason="finished")
    with pytest.raises(UserError, match="has no job"):
        find_job(project, name)


def test_the_version_changes_with_every_state(project: Project):
    words = [jobs_version(project)]
    ended_jobs(project, 2)
    words.append(jobs_version(project))
    job = start_job(project, "train", [program(project, SAVES_ON_SIGTERM)])
    words.append(jobs_version(project))
    waiting = start_job(project, "export", [program(project, "", "export.py")], after=job.folder)
    words.append(jobs_version(project))
    wait_until_ready(job)
    assert jobs_version(project) == words[-1]
    stop_job(waiting)
    wait_until_over(waiting)
    words.append(jobs_version(project))
    kill(job.runner)
    kill(program_of(job))
    words.append(jobs_version(project))  # lost: nothing on the disk has changed
    shutil.rmtree(job.folder)
    words.append(jobs_version(project))
    assert len(set(words)) == len(words)


CSS = (PAGE_FILES / "page.css").read_text(encoding="utf-8")

HOSTILE = (
    "<script>alert(1)</script>",
    '<img src=x onerror="alert(1)">',
    "</pre></span><iframe src=//example.org>",
    "[Error] <svg/onload=alert(1)>",
    "\" onmouseover='alert(1)' x=\"",
    "<!-- <style>body{display:none}</style>",
    "&lt;b&gt; &#60;script&#62;",
    "[Train] \x1b]8;;javascript:alert(1)\x07click\x1b]8;;\x07",
    "<\x00script>",
    "\ufeff<a href=javascript:alert(1)>\u202e",
)


def log_of(folder: Path, *lines: str) -> Path:
    path = folder / "output.log"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_text_in_a_log_is_escaped(tmp_path: Path):
    page = Parsed(show_log(log_of(tmp_path, *HOSTILE))[0])
    assert {tag for tag, _ in page.tags} <= {"pre", "span"}
    assert page.tags[0] == ("pre", {"class": "log-view", "tabindex": "0"})
    for tag, attributes in page.tags[1:]:
        assert (tag, set(attributes)) == ("span", {"class"})
    shown = page.text.split("\n")
    assert len(shown) == len(HOSTILE)
    assert shown[:3] == list(HOSTILE[:3])
    assert shown[6] == HOSTILE[6]
    assert shown[7] == "[Train] click"
    assert shown[8] == "<script>"


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("[Error] --manifest: no such file", "error"),
        ("Traceback (most recent call last):", "error"),
        ("torch.cuda.OutOfMemoryError: CUDA out of memory", "error"),
        ("ValueError", "error"),
        ("[Warn] 3 clips were left out", "warning"),
        ("WARNING: the tokenizer is another", "warning"),
        ("/lib/x.py:3: UserWarning: this is old", "warning"),
        ("[Train] step 10 loss 3.1 lr=1.00e-05", "train"),
        ("[Val] step 10 loss 3.1", "val"),
        ("$ python trainers/train_gpt_v2.py --epochs=1", "command"),
        ("[Info] 0 errors, no warning", ""),
        ("ErrorBudget 3", ""),
        ("ሰላም", ""),
    ],
)
def test_a_line_has_the_class_of_its_level(line: str, name: str):
    assert line_class(line) == name
    assert not name or f".log-view .log-{name} {{" in CSS
    assert not name or f".dark .log-view .log-{name} {{" in CSS


def test_the_last_lines_are_shown_with_the_size_of_the_log(tmp_path: Path):
    path = log_of(tmp_path, *(f"[Train] step {number}" for number in range(100_000)))
    html, note = show_log(path)
    assert Parsed(html).text.split("\n")[-1] == "[Train] step 99999"
    assert len(html.splitlines()) == 200
    assert str(note) == str(Message("jobs.earlier_lines", {"lines": 200, "megabytes": "1.9"}))
    html, note = show_log(path, "STEP 9999")
    assert len(html.splitlines()) == 11
    assert str(note) == str(Message("jobs.found_lines", {"lines": 11, "megabytes": "1.9"}))
    assert show_log(log_of(tmp_path, "one", "two"))[1] is None
