"""Pages under attack: their responses, the processes they start, and files that must not change."""

import hashlib
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from indextts.commands.launching import Launch
from indextts.commands.reference_page import COMMANDS
from indextts.projects.jobs.records import list_jobs
from indextts.projects.jobs.stopping import kill_job
from indextts.projects.project import Project
from tests.conftest import REPOSITORY
from tests.waiting import PATIENCE_S
from tests.webui_server import Server

PASSWORD = "correct horse battery"
SECRET = "the-canary-sings-4711"
LEAKS = (SECRET, "root:x:0:0", PASSWORD)
WATCH_S = 0.1


@dataclass
class Board:
    """Counts of the answers by handler, and the answers that must not occur."""

    counts: dict[str, Counter[str]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def note(self, handler: str, outcome: str, text: str, sent: object) -> None:
        self.counts.setdefault(handler, Counter())[outcome] += 1
        found = [leak for leak in (*LEAKS, "Traceback") if leak in text]
        if found or outcome.startswith("5"):
            self.problems.append(f"{handler}: {outcome} {found} for {str(sent)[:200]}: {text[:300]}")


class Watcher:
    """Sees the processes that the server started, by a variable that they inherit, and ends the jobs."""

    def __init__(self, workspace: Path, mark: str) -> None:
        self.workspace, self.mark = workspace, mark.encode()
        self.seen: set[tuple[str, ...]] = set()
        self.done = threading.Event()
        self.thread = threading.Thread(target=self._watch)

    def _watch(self) -> None:
        while not self.done.wait(WATCH_S):
            self.look()
            self.end_jobs()

    def look(self) -> None:
        for entry in Path("/proc").iterdir():
            with suppress(OSError):
                if entry.name.isdigit() and self.mark in (entry / "environ").read_bytes():
                    argv = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
                    self.seen.add(tuple(argv))
                    if "--plan" in argv:  # the trainer, asked what a start would do; it takes seconds
                        os.kill(int(entry.name), signal.SIGKILL)

    def end_jobs(self) -> None:
        for project in [*self.workspace.glob("*/jobs"), self.workspace / "checkpoints/jobs"]:
            for job in list_jobs(Project(project.parent)):
                if job.is_active:
                    kill_job(job)


@dataclass(frozen=True)
class Field:
    """Pages under attack: two servers over one workspace, so that two processors have something to do.

    Args:
        cookies: of somebody who is signed in, one for each server.
        num_values: hostile ones in the place of a value, for each handler.
        handlers: what runs on the server, as the page's own config lists it.
        defaults: the value of each component when the page is opened.
        packed: the components whose values the only input of a handler carries, by its id.
    """

    servers: list[Server]
    cookies: list[str]
    outside: Path
    values: list[Any]
    num_values: int
    handlers: list[dict[str, Any]]
    defaults: dict[int, Any]
    packed: dict[int, list[int]]
    board: Board
    watcher: Watcher
    asked_elsewhere: list[str]

    @property
    def workspace(self) -> Path:
        return self.servers[0].workspace


class Caller:
    """One connection that is kept, of somebody who is signed in."""

    def __init__(self, server: Server, cookie: str) -> None:
        self.server, self.cookie = server, cookie
        self.connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_S)
        self.headers = {"Cookie": cookie, "Content-Type": "application/json"}

    def post(self, path: str, body: bytes) -> tuple[int, str]:
        self.connection.request("POST", path, body, self.headers)
        answer = self.connection.getresponse()
        return answer.status, answer.read().decode(errors="replace")

    def results(self, session: str) -> list[tuple[str, str]]:
        """Return the outcome and the text of each call that was queued in this session."""
        self.connection.request("GET", f"/gradio_api/queue/data?session_hash={session}", headers=self.headers)
        lines = self.connection.getresponse().read().decode(errors="replace").split("\n\n")
        events = [(json.loads(line.removeprefix("data: ") or "{}"), line) for line in lines]
        completed = [(event, line) for event, line in events if event.get("msg") == "process_completed"]
        return [("done" if event["success"] else "error", line) for event, line in completed]


def write_canaries(folder: Path) -> Path:
    """Make the folder that must not be touched, and ways that lead there from the workspace."""
    outside, demo = folder / "outside", folder / "workspace/demo"
    (outside / "folder").mkdir(parents=True)
    demo.mkdir(parents=True)
    utterance = {"id": "a", "audio": "secret.wav", "text": SECRET, "speaker": "s", "duration": 1.0}
    (outside / "secret.txt").write_text(SECRET)
    (outside / "secret.jsonl").write_text(json.dumps(utterance) + "\n")
    (outside / "secret.wav").write_bytes(b"RIFF" + SECRET.encode())
    settings = {"name": "outside", "base": str(outside), "normalizer": {"thousand": SECRET}}
    (outside / "project.json").write_text(json.dumps(settings))
    (folder / "workspace/linked").symlink_to(outside)
    (demo / "escape").symlink_to(outside)
    for path in list(outside.iterdir()):
        (demo / f"linked_{path.name}").symlink_to(path)
    return outside


def state_of(folder: Path) -> dict[str, tuple[float, str]]:
    """Return the time and the digest of each file below a folder, and of the folders themselves."""
    found = {}
    for path in (folder, *sorted(folder.rglob("*"))):
        digest = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        found[str(path.relative_to(folder))] = (path.stat().st_mtime, digest)
    return found


def repository_state() -> str:
    """Return what was made in the folder that jobs run in, and is no part of it."""
    argv = ["git", "status", "--porcelain"]
    output = subprocess.run(argv, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
    return "\n".join(line for line in output.splitlines() if line.startswith("??"))


def require_quiet(attacked: Field) -> None:
    """Require that nobody else was asked, that only jobs were started, and that no traceback was printed."""
    assert attacked.asked_elsewhere == []
    strange = [argv for argv in attacked.watcher.seen if not is_expected(argv, attacked.workspace)]
    assert not strange, "\n".join(map(repr, strange))
    for server in attacked.servers:
        printed = "".join(server.printed)
        assert server.process.poll() is None
        assert not [leak for leak in (*LEAKS, "Traceback", "\x1b") if leak in printed], printed[-3000:]
    projects = {path.name for path in attacked.workspace.iterdir()} - {".received"}
    assert all(re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", name) for name in projects), projects


LAUNCH_FLAG = re.compile(
    r"--standalone|--rdzv-backend=static|--rdzv-endpoint=[\w.:\[\]-]+"
    r"|--(nproc-per-node|nnodes|node-rank|shutdown-timeout)=\d+"
)


def is_expected(argv: tuple[str, ...], workspace: Path) -> bool:
    """Return whether a process is the page, a job's runner, or a program of ours with flags that it knows."""
    words = [word for word in argv[1:] if word not in ("-S", "-P", "-u")]
    if not argv or argv[0] != sys.executable or not words:
        return argv[:1] in (("git",), ("/usr/bin/git",), ("nvidia-smi",)) or not argv
    if words[:2] == ["-m", Launch.program]:
        at = next((place for place, word in enumerate(words[2:], 2) if word[:2] != "--"), 2)
        if not all(LAUNCH_FLAG.fullmatch(word) for word in words[2:at]):
            return False
        words = words[at:]
    program = words[0].removeprefix(f"{REPOSITORY}/")
    if program == "-c":  # the workers of a program, by Python itself
        return words[1].startswith("from multiprocessing.")
    if program == "indextts/projects/jobs/runner.py":
        return Path(words[1]).parent.name == "jobs" and Path(words[1]).is_relative_to(workspace)
    commands = [command for command in COMMANDS if command.program == program]
    flags = {f"--{name.replace('_', '-')}" for command in commands for name in command.model_fields}
    flags |= {flag.replace("--", "--no-", 1) for flag in flags}
    return bool(commands) and all(word.partition("=")[0] in flags for word in words[1:])
