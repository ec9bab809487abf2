"""Tests of background jobs: real programs, real signals, nothing faked."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest
from pydantic import Field

from indextts.commands import Command, Train, to_argv
from indextts.errors import UserError
from indextts.processes import Process, is_alive, read_stat, session_members
from indextts.project import Project
from indextts.jobs import log_tail, starting
from indextts.jobs.log_tail import tail
from indextts.jobs.records import Job, list_jobs, newest_job
from indextts.jobs.starting import shell_line, start_job
from indextts.jobs.stopping import kill_job, stop_job
from tests.conftest import REPOSITORY

SAVES_ON_SIGTERM = """
import signal, sys, time
def end(number, frame):
    print("saved")
    sys.exit(143)
signal.signal(signal.SIGTERM, end)
print("ready")
while True:
    time.sleep(0.01)
"""
DEAF_WITH_A_CHILD = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.fork()
print("ready")
while True:
    time.sleep(0.01)
"""
STARTS_A_JOB = """
import sys, time
from pathlib import Path
from indextts.errors import UserError
from indextts.project import Project
from indextts.jobs import starting
from tests.test_jobs_starting import command_for
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


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    """A project beside the programs of a test; nothing of its jobs lives on after the test."""
    monkeypatch.setattr(starting, "REPOSITORY", tmp_path)
    project = Project(tmp_path / "voice")
    yield project
    for job in list_jobs(project):
        kill_job(job)


def command_for(name: str, words: tuple[str, ...] = ()) -> Command:
    class Tiny(Command):
        program: ClassVar[str] = name
        words: list[str] = Field([])

    return Tiny(words=list(words))


def program(project: Project, source: str, name: str = "program.py") -> Command:
    """Write a program and return the command that runs it."""
    (project.root.parent / name).write_text(source, encoding="utf-8")
    return command_for(name)


def reread(job: Job) -> Job:
    (same,) = [other for other in list_jobs(Project(job.folder.parent.parent)) if other.folder == job.folder]
    return same


def wait_until_over(job: Job) -> Job:
    return wait_for(job, lambda: not reread(job).is_active)


def wait_until_ready(job: Job, times: int = 1) -> Job:
    return wait_for(job, lambda: tail(job.log).count("ready") >= times)


def wait_for(job: Job, is_true) -> Job:
    deadline = time.monotonic() + 15
    while not is_true():
        assert time.monotonic() < deadline, f"{reread(job)}\n{tail(job.log)}"
        time.sleep(0.01)
    return reread(job)


def runner_of(job: Job) -> Process:
    return Process.from_fields(json.loads((job.folder / "job.json").read_bytes())["runner"])


def program_of(job: Job) -> Process:
    return Process.from_json((job.folder / "program.json").read_bytes())


def kill(process: Process) -> None:
    os.kill(process.pid, signal.SIGKILL)
    while is_alive(process):
        time.sleep(0.001)


def starter(project: Project, name: str, go: Path, stays_s: float = 0) -> subprocess.Popen[str]:
    """Return a process that, like a page, starts a job once `go` is there."""
    argv = [sys.executable, "-c", STARTS_A_JOB, str(project.root.parent), name, str(go), str(stays_s)]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY)


def test_a_job_runs_to_its_end_and_its_output_is_in_the_log(project: Project):
    before = time.time()
    job = start_job(project, "data", [program(project, "import os; print('hello from', os.getcwd())")])
    assert job.state in ("running", "finished")
    assert job.argvs == (("program.py",),)
    over = wait_until_over(job)
    assert (over.state, over.exit_status, over.stage) == ("finished", 0, "data")
    assert over.ended is not None
    assert before <= over.started <= over.ended
    assert tail(over.log) == f"$ python program.py\nhello from {project.root.parent}"
    assert re.fullmatch(r"\d{8}_\d{6}_data", over.folder.name)
    assert over.folder.parent == project.jobs


def test_a_line_is_in_the_log_when_it_is_printed(project: Project, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    job = start_job(project, "data", [program(project, "import time; print('ready'); time.sleep(60)")])
    assert wait_until_ready(job).state == "running"


def test_a_job_that_fails_keeps_its_status_and_its_last_words(project: Project):
    source = "import sys; print('[Error] no such voice', file=sys.stderr); sys.exit(2)"
    over = wait_until_over(start_job(project, "data", [program(project, source)]))
    assert (over.state, over.exit_status) == ("failed", 2)
    assert tail(over.log, 1) == "[Error] no such voice"


def test_the_commands_of_a_job_run_in_order(project: Project):
    first, second = program(project, "print(1)", "first.py"), program(project, "print(2)", "second.py")
    over = wait_until_over(start_job(project, "data", [first, second]))
    assert over.state == "finished"
    assert tail(over.log) == "$ python first.py\n1\n$ python second.py\n2"


def test_after_a_command_that_fails_no_other_runs(project: Project):
    first, second = program(project, "raise SystemExit(1)", "first.py"), program(project, "", "second.py")
    over = wait_until_over(start_job(project, "data", [first, second]))
    assert (over.state, over.exit_status) == ("failed", 1)
    assert tail(over.log) == "$ python first.py"


def test_a_program_that_cannot_be_started_ends_the_job(project: Project):
    over = wait_until_over(start_job(project, "data", [command_for("program.py", ("x" * 200_000,))]))
    assert (over.state, over.exit_status) == ("failed", 127)
    assert "could not be started" in tail(over.log, 1)


def test_ten_megabytes_of_output_block_nothing(project: Project):
    source = "import sys\nfor _ in range(100_000): sys.stdout.buffer.write(b'x' * 99 + b'\\n')"
    over = wait_until_over(start_job(project, "data", [program(project, source)]))
    assert over.state == "finished"
    assert over.log.stat().st_size > 10_000_000


def test_stop_lets_the_program_save_and_starts_no_other(project: Project):
    training, export = program(project, SAVES_ON_SIGTERM), program(project, "print('late')", "export.py")
    job = wait_until_ready(start_job(project, "train", [training, export]))
    stop_job(job)
    over = wait_until_over(job)
    assert (over.state, over.exit_status) == ("stopped", 143)
    assert tail(over.log) == "$ python program.py\nready\nsaved"


def test_no_command_follows_one_that_ended_well_although_asked_to_stop(project: Project):
    source = SAVES_ON_SIGTERM.replace("143", "0")
    first, second = program(project, source), program(project, "print('late')", "second.py")
    job = wait_until_ready(start_job(project, "train", [first, second]))
    stop_job(job)
    over = wait_until_over(job)
    assert (over.state, over.exit_status) == ("stopped", 143)
    assert tail(over.log, 1) == "saved"


def test_a_stop_right_after_the_start_is_not_lost(project: Project):
    commands = [program(project, SAVES_ON_SIGTERM)]
    for _ in range(5):
        job = start_job(project, "train", commands)
        stop_job(job)
        over = wait_until_over(job)
        assert (over.state, over.exit_status) == ("stopped", 143)


@pytest.mark.parametrize("has_runner", [True, False])
def test_stop_pressed_three_times_is_one_signal_to_the_program(project: Project, has_runner: bool):
    source = (
        "import signal, time\ncount = 0\ndef note(*_):\n    global count; count += 1\n"
        "signal.signal(signal.SIGTERM, note)\nprint('ready')\n"
        "while not count: time.sleep(0.01)\n"
        "print('saving'); time.sleep(0.5); print(count, 'signals'); raise SystemExit(143)"
    )
    job = wait_until_ready(start_job(project, "train", [program(project, source)]))
    if not has_runner:
        kill(runner_of(job))
    for _ in range(3):
        stop_job(job)
        assert reread(job).state == "stopping"
        time.sleep(0.05)
    assert wait_until_over(job).state == ("stopped" if has_runner else "lost")
    assert tail(job.log, 1) == "1 signals"


def test_ctrl_c_and_a_closed_terminal_do_not_reach_a_job(project: Project):
    job = wait_until_ready(start_job(project, "train", [program(project, SAVES_ON_SIGTERM)]))
    for process in (runner_of(job), program_of(job)):
        stat = read_stat(process.pid)
        assert stat is not None
        assert stat.session != os.getsid(0)
    for number in (signal.SIGINT, signal.SIGHUP):
        os.kill(runner_of(job).pid, number)
    time.sleep(0.1)
    assert reread(job).state == "running"


def test_kill_leaves_no_process_of_a_deaf_job(project: Project):
    job = wait_until_ready(start_job(project, "train", [program(project, DEAF_WITH_A_CHILD)]), times=2)
    stat = read_stat(runner_of(job).pid)
    assert stat is not None
    assert len(session_members(stat.session)) == 3
    stop_job(job)
    time.sleep(0.1)
    assert reread(job).state == "stopping"
    kill_job(job)
    assert session_members(stat.session) == []
    over = reread(job)
    assert (over.state, over.exit_status) == ("killed", 137)


def test_a_program_killed_by_the_system_is_killed_not_failed(project: Project):
    source = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
    over = wait_until_over(start_job(project, "train", [program(project, source)]))
    assert (over.state, over.exit_status) == ("killed", 139)


def test_a_program_whose_runner_was_killed_runs_on_and_can_be_stopped(project: Project):
    job = wait_until_ready(start_job(project, "train", [program(project, SAVES_ON_SIGTERM)]))
    kill(runner_of(job))
    assert reread(job).state == "running"
    with pytest.raises(UserError, match="already running"):
        start_job(project, "train", [command_for("program.py")])
    stop_job(job)
    over = wait_until_over(job)
    assert tail(over.log, 1) == "saved"
    assert (over.state, over.exit_status, over.ended) == ("lost", None, None)


def test_kill_works_without_the_runner(project: Project):
    job = wait_until_ready(start_job(project, "train", [program(project, DEAF_WITH_A_CHILD)]), times=2)
    stat = read_stat(program_of(job).pid)
    assert stat is not None
    kill(runner_of(job))
    kill_job(job)
    assert session_members(stat.session) == []
    assert reread(job).state == "lost"


def test_a_stage_runs_once_at_a_time(project: Project):
    job = wait_until_ready(start_job(project, "train", [program(project, SAVES_ON_SIGTERM)]))
    with pytest.raises(UserError, match="train is already running in voice"):
        start_job(project, "train", [command_for("program.py")])
    other = start_job(project, "pairs", [program(project, "", "other.py")])
    assert wait_until_over(other).state == "finished"
    stop_job(job)
    wait_until_over(job)
    assert start_job(project, "train", [command_for("program.py")]).folder != job.folder


def test_of_eight_starts_at_once_exactly_one_is_let_through(project: Project):
    command = program(project, SAVES_ON_SIGTERM)

    def start(_: int) -> Job | None:
        try:
            return start_job(project, "train", [command])
        except UserError:
            return None

    with ThreadPoolExecutor(8) as threads:
        started = [job for job in threads.map(start, range(8)) if job]
    assert len(started) == len(list_jobs(project)) == 1


def test_of_three_pages_that_start_at_once_exactly_one_is_let_through(project: Project, tmp_path: Path):
    program(project, SAVES_ON_SIGTERM)
    pages = [starter(project, "program.py", tmp_path / "go") for _ in range(3)]
    for page in pages:
        assert page.stdout is not None
        assert page.stdout.readline() == "loaded\n"
    (tmp_path / "go").touch()
    answers = sorted(page.communicate()[0].strip() for page in pages)
    assert answers == ["refused", "refused", "started"]
    assert len(list_jobs(project)) == 1


def test_a_job_outlives_the_page_that_started_it(project: Project, tmp_path: Path):
    program(project, SAVES_ON_SIGTERM)
    (tmp_path / "go").touch()
    with starter(project, "program.py", tmp_path / "go", stays_s=60) as page:
        assert page.stdout is not None
        assert [page.stdout.readline() for _ in range(2)] == ["loaded\n", "started\n"]
        page.kill()
    job = newest_job(project, "train")
    assert job is not None
    assert wait_until_ready(job).state == "running"
    stop_job(job)
    over = wait_until_over(job)
    assert (over.state, over.exit_status) == ("stopped", 143)
    assert tail(over.log, 1) == "saved"


@pytest.mark.parametrize(
    "change",
    [{"start_ticks": 1}, {"boot_id": "an earlier boot"}],
    ids=["recycled number", "before a reboot"],
)
def test_a_stranger_with_the_number_of_a_job_is_not_signalled(project: Project, change: dict[str, int | str]):
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


def test_a_zombie_is_dead():
    with subprocess.Popen([sys.executable, "-S", "-c", ""]) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        stat = read_stat(child.pid)
        assert stat is not None
        assert stat.code == "Z"
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        assert not is_alive(Process(pid=child.pid, start_ticks=stat.start_ticks, boot_id=boot_id))
        assert child.pid not in [member.pid for member in session_members(stat.session)]


def test_init_is_nobodys_to_signal():
    stat = read_stat(1)
    assert stat is not None
    assert 1 not in [member.pid for member in session_members(stat.session)]


def test_a_folder_without_a_whole_record_is_no_job(project: Project):
    for name, content in {
        "half": '{"stage": "tr',
        "not_started": '{"stage": "train"}',
        "other": "[]",
    }.items():
        (project.jobs / name).mkdir(parents=True)
        (project.jobs / name / "job.json").write_text(content)
    assert list_jobs(project) == []
    assert newest_job(project, "train") is None


def test_a_job_folder_that_cannot_be_written_is_said_in_one_line(project: Project):
    project.root.write_text("a file where the project should be")
    with pytest.raises(UserError, match="train cannot be started"):
        start_job(project, "train", [command_for("program.py")])


def test_ten_jobs_leave_no_zombie_and_the_newest_is_first(project: Project):
    command = program(project, "")
    folders = [wait_until_over(start_job(project, "data", [command])).folder for _ in range(10)]
    assert [job.folder for job in list_jobs(project)] == folders[::-1]
    newest = newest_job(project, "data")
    assert newest is not None
    assert newest.folder == folders[-1]
    assert children_of(os.getpid()) == []


def children_of(pid: int) -> list[int]:
    """Return the children of a process, zombies included."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_nasty_values_arrive_unchanged(project: Project):
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


def test_a_shell_reads_the_shown_line_as_what_is_run(tmp_path: Path):
    command = Train(
        train_manifest=[Path("it's $(x).jsonl"), Path("ሁለት\n.jsonl")],
        val_manifest=[Path("-v")],
        tokenizer=Path('"t".model'),
        epochs=3,
    )
    line = shell_line(command)
    assert line.startswith("python trainers/train_gpt_v2.py ")
    assert line.endswith(" --epochs=3")
    read = subprocess.run(
        ["bash", "-c", f"for word in {line}; do printf '%s\\0' \"$word\"; done"],
        capture_output=True,
        text=True,
    )
    assert read.stdout.split("\0")[:-1] == ["python", command.program, *to_argv(command)]


@pytest.mark.parametrize(
    ("log", "shown"),
    [
        (b"one\ntwo\n", "one\ntwo"),
        (b"one\npart of a li", "one\npart of a li"),
        (b"", ""),
        (b"\n\nx\n\n", "\n\nx\n"),
        (b"  0%\r 50%\r100%\ndone\r\n 3%\r 4%\r", "100%\ndone\n 4%"),
        (b"\x1b[1;31mred\x1b[0m \x1b]0;title\x07\x1b(Bok\x1b[K", "red ok"),
        (b"a\x00b\x08\x7fc\td", "abc\td"),
        (b"\xe1\x88\xb0\xe1\x88 \xff!", "ሰ\ufffd \ufffd!"),
        (b"x" * 5000, "x" * 2000),
        ("one\u2028line\u0085\x0b\x1c".encode(), "one\u2028line"),
    ],
)
def test_tail_shows_what_a_terminal_would(tmp_path: Path, log: bytes, shown: str):
    path = tmp_path / "output.log"
    path.write_bytes(log)
    assert tail(path) == shown


def test_tail_of_a_file_that_is_not_there_is_empty(tmp_path: Path):
    assert tail(tmp_path / "output.log") == ""


def test_tail_keeps_the_last_lines(tmp_path: Path):
    path = tmp_path / "output.log"
    path.write_text("".join(f"{number}\n" for number in range(10_000_000 // 10)))
    assert tail(path, 3) == "999997\n999998\n999999"
    assert len(tail(path).splitlines()) == 200


def test_tail_reads_the_same_little_of_a_terabyte(tmp_path: Path):
    path = tmp_path / "output.log"
    with path.open("wb") as file:
        file.truncate(2**40)
        file.seek(0, os.SEEK_END)
        file.write("\nየመጨረሻ\n".encode())
    before = bytes_read_so_far()
    shown = tail(path)
    assert shown == "የመጨረሻ"
    assert bytes_read_so_far() - before < 2 * log_tail.MAX_TAIL_BYTES


def bytes_read_so_far() -> int:
    """Return what this process has read, from a cache or not."""
    return int(Path("/proc/self/io").read_text().split()[1])
