import json
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from indextts.commands.terminal import to_argv
from indextts.errors import UserError
from indextts.projects.jobs.log_tail import tail
from indextts.projects.jobs.records import list_jobs, newest_job
from indextts.projects.jobs.starting import script, shell_line, start_job
from indextts.projects.jobs.stopping import stop_job
from indextts.projects.project import Project
from tests.conftest import REPOSITORY
from tests.running_jobs import SAVES_ON_SIGTERM, command_for, program, wait_until_over, wait_until_ready

STARTS_A_JOB = """
import sys, time
from pathlib import Path
from indextts.errors import UserError
from indextts.projects.project import Project
from indextts.projects.jobs import starting
from tests.running_jobs import command_for
folder, name, go = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
starting.REPOSITORY = folder
print("loaded", flush=True)
while not go.exists():
    time.sleep(0.001)
try:
    starting.start_job(Project(folder / "voice"), "train", [command_for(name)])
    print("started", flush=True)
except UserError:
    print("refused", flush=True)
time.sleep(float(sys.argv[4]))
"""


def starter(project: Project, name: str, go: Path, stays_s: float = 0) -> subprocess.Popen[str]:
    """Return a process that, like a page, starts a job once `go` is there."""
    argv = [sys.executable, "-c", STARTS_A_JOB, str(project.root.parent), name, str(go), str(stays_s)]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY)


def test_no_stage_starts_beside_the_demo(project: Project):
    start_job(project, "demo", [program(project, SAVES_ON_SIGTERM)])
    for stage in ("pairs", "demo"):
        with pytest.raises(UserError, match=r"^demo is "):
            start_job(project, stage, [command_for("program.py")])
    start_job(project, "listen", [command_for("program.py")])  # is no stage
    stop_job(list_jobs(project)[-1])
    wait_until_over(list_jobs(project)[-1])
    start_job(project, "data", [program(project, SAVES_ON_SIGTERM)])
    with pytest.raises(UserError, match=r"^data is "):
        start_job(project, "demo", [command_for("program.py")])


@pytest.mark.failure(28)
def test_of_three_pages_starting_a_job_exactly_one_succeeds(project: Project, tmp_path: Path):
    program(project, SAVES_ON_SIGTERM)
    pages = [starter(project, "program.py", tmp_path / "go") for _ in range(3)]
    for page in pages:
        assert page.stdout.readline() == "loaded\n"
    (tmp_path / "go").touch()
    answers = sorted(page.communicate()[0].strip() for page in pages)
    assert answers == ["refused", "refused", "started"]
    assert len(list_jobs(project)) == 1


@pytest.mark.failure(28)
def test_a_job_outlives_the_page_that_started_it(project: Project, tmp_path: Path):
    program(project, SAVES_ON_SIGTERM)
    (tmp_path / "go").touch()
    with starter(project, "program.py", tmp_path / "go", stays_s=60) as page:
        assert [page.stdout.readline() for _ in range(2)] == ["loaded\n", "started\n"]
        page.kill()
    job = newest_job(project, "train")
    assert job is not None
    assert wait_until_ready(job).state == "running"
    stop_job(job)
    over = wait_until_over(job)
    assert (over.state, over.exit_status) == ("stopped", 143)
    assert tail(over.log, 1) == "saved"


def test_an_unwritable_job_folder_is_an_error_that_names_it(project: Project):
    project.root.write_text("a file where the project should be")
    with pytest.raises(UserError, match=re.escape(str(project.jobs))):
        start_job(project, "train", [command_for("program.py")])


def test_after_the_clock_was_set_back_the_newest_job_is_the_last_one_started(project: Project):
    command = program(project, "")
    ahead = wait_until_over(start_job(project, "data", [command])).folder
    future = ahead.rename(ahead.with_name("20990101_000000_data"))  # as of a clock that was wrong
    record = json.loads((future / "job.json").read_bytes()) | {"started": 4_070_908_800.0}
    (future / "job.json").write_text(json.dumps(record))
    later = wait_until_over(start_job(project, "data", [command]))
    assert later.folder.name == "20990101_000001_data"
    assert later.started < record["started"]
    assert [job.folder for job in list_jobs(project)] == [later.folder, future]
    assert newest_job(project, "data").folder == later.folder


@pytest.mark.failure(52)
def test_unusual_values_reach_the_program_unchanged(project: Project):
    values = (
        'it\'s "so"',
        "$(touch x) `ls` ; rm -rf *",
        "two\nlines",
        "ሰላም ዓለም",
        "-rf",
        "--",
        " ",
        "a\\b",
        "",
    )
    source = "import json, sys; print(json.dumps(sys.argv[1:]))"
    program(project, source)
    command = command_for("program.py", values)
    over = wait_until_over(start_job(project, "data", [command]))
    assert json.loads(tail(over.log, 1)) == [f"--words={value}" for value in values]
    assert over.argvs == (("program.py", *to_argv(command)),)
    assert not (project.root.parent / "x").exists()
    assert shell_line(command) in over.log.read_text(encoding="utf-8")


def test_a_job_keeps_its_versions(project: Project):
    job = start_job(project, "train", [program(project, "")])
    assert job.versions["python"] == sys.version.split()[0]
    asked = subprocess.run(["git", "rev-parse", "HEAD"], cwd=REPOSITORY, capture_output=True, text=True)
    assert job.versions.get("commit") == (asked.stdout.strip() or None)
    assert job.versions["gradio"] == metadata.version("gradio")


def test_the_script_of_a_job_does_the_same(project: Project, tmp_path: Path):
    values = ("it's $(touch x)", "two\nlines", "ሰላም", "-rf", "")
    program(project, "import json, os, sys; print(os.getcwd(), json.dumps(sys.argv[1:]))")
    commands = [command_for("program.py", values), program(project, "raise SystemExit(3)", "second.py")]
    job = wait_until_over(start_job(project, "data", [*commands, command_for("program.py")]))
    (tmp_path / "elsewhere").mkdir()
    run = subprocess.run([script(job)], cwd=tmp_path / "elsewhere", capture_output=True, text=True)
    printed = [line for line in tail(job.log).splitlines() if line.startswith(str(tmp_path))]
    assert (run.stdout.splitlines(), run.stderr, run.returncode) == (printed, "", 3)
    assert len(printed) == 1
    assert not (tmp_path / "x").exists()
