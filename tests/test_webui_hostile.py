"""Everything that runs on the page, called by hand with what harms: what is read, written and started.

Every handler of the real page gets all of hostile_inputs.py over HTTP, from a real server. Outside of the
workspace lies a folder that nobody may read, change or run from, and on a port listens somebody whom nobody
may ask.
"""

import hashlib
import http.client
import json
import os
import random
import subprocess
import threading
import time
import urllib.parse
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from indextts.jobs.records import list_jobs
from indextts.jobs.stopping import kill_job
from indextts.project import Project
from tests import hostile_inputs
from tests.conftest import REPOSITORY
from tests.webui_server import Server, serving

pytestmark = pytest.mark.slow

PASSWORD = "correct horse battery"
SECRET = "the-canary-sings-4711"
LEAKS = (SECRET, "root:x:0:0", PASSWORD)
WATCH_S = 0.1
NUM_INPUTS = 300
BATCH = 40


@dataclass
class Board:
    """What came back: by handler, how often what; and what must not have come at all."""

    counts: dict[str, Counter[str]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def note(self, handler: str, outcome: str, text: str, sent: object) -> None:
        self.counts.setdefault(handler, Counter())[outcome] += 1
        found = [leak for leak in (*LEAKS, "Traceback") if leak in text]
        if found or outcome.startswith("5"):
            self.problems.append(f"{handler}: {outcome} {found} for {str(sent)[:200]}: {text[:300]}")


class Watcher:
    """Sees the processes that the server's own started, by a variable that they inherit, and ends the jobs."""

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

    def end_jobs(self) -> None:
        for project in [*self.workspace.glob("*/jobs"), self.workspace / "checkpoints/jobs"]:
            for job in list_jobs(Project(project.parent)):
                if job.is_active:
                    kill_job(job)


@dataclass(frozen=True)
class Field:
    """A page under attack."""

    server: Server
    cookie: str
    outside: Path
    values: list[Any]
    handlers: list[dict[str, Any]]
    defaults: dict[int, Any]
    board: Board
    watcher: Watcher
    asked_elsewhere: list[str]


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[tuple[int, list[str]]]:
    """A port of this machine where nobody of the page's should ask, and what was asked."""
    asked: list[str] = []

    class Listener(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_error(404)

        do_HEAD = do_POST = do_GET

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Listener)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_port, asked
    server.shutdown()
    thread.join()
    server.server_close()


def lay_canaries(folder: Path) -> Path:
    """Make the folder that must not be touched, and ways that lead there from the workspace."""
    outside, demo = folder / "outside", folder / "workspace/demo"
    (outside / "folder").mkdir(parents=True)
    demo.mkdir(parents=True)
    utterance = {"id": "a", "audio": "secret.wav", "text": SECRET, "speaker": "s", "duration": 1.0}
    (outside / "secret.txt").write_text(SECRET)
    (outside / "secret.jsonl").write_text(json.dumps(utterance) + "\n")
    (outside / "secret.wav").write_bytes(b"RIFF" + SECRET.encode())
    (outside / "project.json").write_text(json.dumps({"name": "outside", "base": str(outside), "canary": SECRET}))
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


@pytest.fixture(scope="module")
def attacked(
    tmp_path_factory: pytest.TempPathFactory, elsewhere: tuple[int, list[str]]
) -> Iterator[Field]:
    folder = tmp_path_factory.mktemp("hostile")
    outside = lay_canaries(folder)
    (folder / "login").write_text(f"me:{PASSWORD}")
    (folder / "login").chmod(0o600)
    mark = f"HOSTILE_MARK={folder.name}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(*mark.split("="))
        patch.setenv("GRADIO_TEMP_DIR", str(folder / "received"))
        with serving(folder, f"--auth-file={folder / 'login'}", "--max-upload-mb=1") as server:
            cookie = server.cookie("me", PASSWORD)
            config = json.loads(server.ask("GET", "/config", cookie=cookie).body)
            values = hostile_inputs.values(outside, server.workspace, outside / "marker", elsewhere[0])
            random.Random(0).shuffle(values)
            watcher = Watcher(server.workspace, mark)
            watcher.thread.start()
            try:
                yield Field(
                    server,
                    cookie,
                    outside,
                    values,
                    [dependency for dependency in config["dependencies"] if dependency["backend_fn"]],
                    {c["id"]: c["props"].get("value") for c in config["components"]},
                    Board(),
                    watcher,
                    elsewhere[1],
                )
            finally:
                watcher.done.set()
                watcher.thread.join()
                watcher.end_jobs()


def sent_data(attacked: Field, handler: dict[str, Any]) -> Iterator[list[Any]]:
    """Yield what a handler is called with: each value in one place after the other, the rest as it was."""
    inputs = [attacked.defaults[number] for number in handler["inputs"]]
    if not inputs:
        return
    for n, value in enumerate(attacked.values):
        # half of them where the project's name stands, so that the rest meets a real project
        place = n % len(inputs)
        yield [*inputs[:place], value, *inputs[place + 1 :]]
    for value in attacked.values[:10]:
        yield [value] * len(inputs)


class Caller:
    """One connection that is kept."""

    def __init__(self, server: Server, cookie: str) -> None:
        self.server = server
        self.connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        self.headers = {"Cookie": cookie, "Content-Type": "application/json"}

    def post(self, path: str, body: bytes) -> tuple[int, str]:
        self.connection.request("POST", path, body, self.headers)
        answer = self.connection.getresponse()
        return answer.status, answer.read().decode(errors="replace")

    def results(self, session: str) -> list[tuple[str, str]]:
        """Return the outcome and the text of each call that was queued in this session."""
        self.connection.request("GET", f"/gradio_api/queue/data?session_hash={session}", headers=self.headers)
        answer = self.connection.getresponse()
        found = []
        for line in answer.read().decode(errors="replace").split("\n\n"):
            event = json.loads(line.removeprefix("data: ") or "{}")
            if event.get("msg") == "process_completed":
                found.append(("done" if event["success"] else "refused", line))
        return found


def attack(attacked: Field, handler: dict[str, Any], caller: Caller) -> None:
    """Call one handler with every value."""
    name, board = str(handler["id"]), attacked.board
    session = f"hostile{handler['id']}"
    queued: list[Any] = []
    for data in sent_data(attacked, handler):
        body = json.dumps({"fn_index": handler["id"], "data": data, "session_hash": session}).encode()
        path = "/gradio_api/queue/join" if handler["queue"] else "/gradio_api/run/predict"
        status, text = caller.post(path, body)
        if status == 200 and handler["queue"]:
            queued.append(data)
        else:
            board.note(name, str(status), text, data)
        if len(queued) == BATCH:
            take_results(board, name, caller, session, queued)
    take_results(board, name, caller, session, queued)


def take_results(board: Board, name: str, caller: Caller, session: str, queued: list[Any]) -> None:
    if queued:
        results = caller.results(session)
        assert len(results) == len(queued)
        for (outcome, text), _ in zip(results, queued, strict=True):
            board.note(name, outcome, text, f"one of {len(queued)} in a session")
        queued.clear()


def test_every_handler_with_every_value(attacked: Field) -> None:
    before, tree = state_of(attacked.outside), repository_state()
    began = time.monotonic()
    callers = [Caller(attacked.server, attacked.cookie) for _ in range(2)]
    todo = list(attacked.handlers)
    assert len(todo) > 80

    def work(caller: Caller) -> None:
        with closing(caller.connection):
            while todo:
                with suppress(IndexError):
                    attack(attacked, todo.pop(), caller)

    threads = [threading.Thread(target=work, args=[caller]) for caller in callers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    board = attacked.board
    print(f"\n{sum(map(Counter.total, board.counts.values())):,} calls in {time.monotonic() - began:.0f} s")  # noqa: T201
    assert not board.problems, "\n".join(board.problems[:20])
    assert state_of(attacked.outside) == before
    assert repository_state() == tree


def repository_state() -> str:
    status = ["git", "status", "--porcelain", "--ignored=no"]
    return subprocess.run(status, cwd=REPOSITORY, capture_output=True, text=True).stdout


def test_every_handler_with_requests_that_are_none(attacked: Field) -> None:
    for handler in attacked.handlers:
        data = [attacked.defaults[number] for number in handler["inputs"]]
        for body in hostile_inputs.bodies(handler["id"], data):
            for path in ("/gradio_api/queue/join",):
                answer = attacked.server.ask_raw("POST", path, body, cookie=attacked.cookie)
                attacked.board.note(str(handler["id"]), str(answer.status), answer.body, body)
    print(attacked.board.counts)  # noqa: T201
    assert not attacked.board.problems, "\n".join(attacked.board.problems[:20])
    os.sync()
    urllib.parse.quote("x")
