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
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from indextts.commands import COMMANDS
from indextts.jobs.records import list_jobs
from indextts.jobs.stopping import kill_job
from indextts.launching import Launch
from indextts.project import Project
from tests import hostile_inputs
from tests.conftest import REPOSITORY
from tests.webui_server import Server, serving

pytestmark = pytest.mark.slow

PASSWORD = "correct horse battery"
SECRET = "the-canary-sings-4711"
LEAKS = (SECRET, "root:x:0:0", PASSWORD)
WATCH_S = 0.1
OTHER_INPUTS = 50  # for each handler, at least: bodies, addresses and headers
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
    """

    servers: list[Server]
    cookies: list[str]
    outside: Path
    values: list[Any]
    num_values: int
    handlers: list[dict[str, Any]]
    defaults: dict[int, Any]
    board: Board
    watcher: Watcher
    asked_elsewhere: list[str]

    @property
    def workspace(self) -> Path:
        return self.servers[0].workspace


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[tuple[int, list[str]]]:
    """A port of this machine where nobody of the page's should ask, and what was asked."""
    asked: list[str] = []

    class Listener(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_error(404)

        def do_POST(self) -> None:
            self.do_GET()

        def do_HEAD(self) -> None:
            self.do_GET()

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
    said = subprocess.run(argv, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
    return "\n".join(line for line in said.splitlines() if line.startswith("??"))


@pytest.fixture(scope="module")
def attacked(
    tmp_path_factory: pytest.TempPathFactory,
    pytestconfig: pytest.Config,
    elsewhere: tuple[int, list[str]],
) -> Iterator[Field]:
    folder = tmp_path_factory.mktemp("hostile")
    outside = lay_canaries(folder)
    (folder / "login").write_text(f"me:{PASSWORD}")
    (folder / "login").chmod(0o600)
    flags = [f"--auth-file={folder / 'login'}", "--max-upload-mb=1"]
    watcher = Watcher(folder / "workspace", f"HOSTILE_MARK={folder.name}")
    with pytest.MonkeyPatch.context() as patch, ExitStack() as running:
        patch.setenv("HOSTILE_MARK", folder.name)
        patch.setenv("GRADIO_TEMP_DIR", str(folder / "received"))
        servers = [running.enter_context(serving(folder, *flags)) for _ in range(2)]
        cookies = [server.cookie("me", PASSWORD) for server in servers]
        config = json.loads(servers[0].ask("GET", "/config", cookie=cookies[0]).body)
        values = hostile_inputs.values(outside, folder / "workspace", outside / "marker", elsewhere[0])
        random.Random(0).shuffle(values)
        watcher.thread.start()
        try:
            yield Field(
                servers,
                cookies,
                outside,
                values,
                pytestconfig.getoption("--hostile-inputs") - OTHER_INPUTS,
                [dependency for dependency in config["dependencies"] if dependency["backend_fn"]],
                {component["id"]: component["props"].get("value") for component in config["components"]},
                Board(),
                watcher,
                elsewhere[1],
            )
        finally:
            watcher.done.set()
            watcher.thread.join()
            watcher.end_jobs()


class Caller:
    """One connection that is kept, of somebody who is signed in."""

    def __init__(self, server: Server, cookie: str) -> None:
        self.server, self.cookie = server, cookie
        self.connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
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


def requests_for(attacked: Field, handler: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a handler's own request, and then others: each value in one place, the rest as it was."""
    inputs = [attacked.defaults[number] for number in handler["inputs"]]
    request = {"fn_index": handler["id"], "session_hash": f"hostile{handler['id']}"}
    yield request | {"data": inputs}
    # each handler gets its own choice, so that together they get all
    for n, value in enumerate(random.Random(handler["id"]).sample(attacked.values, attacked.num_values)):
        if inputs and n % 8:
            place = n % len(inputs)
            yield request | {"data": [*inputs[:place], value, *inputs[place + 1 :]]}
        else:
            yield request | {"data": inputs, "event_data": value}
            if handler["collects_event_data"]:  # as if a row of a table had been clicked
                row = {"index": [0, 0], "value": value, "row_value": [value]}
                yield request | {"data": inputs, "event_data": row}
    for value in attacked.values[::100]:
        yield request | {"data": [value] * len(inputs)}


def attack(attacked: Field, handler: dict[str, Any], caller: Caller) -> None:
    """Send a handler all that there is."""
    name, board = str(handler["id"]), attacked.board
    queued: list[object] = []
    for request in requests_for(attacked, handler):
        path = "/gradio_api/queue/join" if handler["queue"] else "/gradio_api/run/predict"
        status, text = caller.post(path, json.dumps(request).encode())
        if status == 200 and handler["queue"]:
            queued.append(request["data"])
        else:
            board.note(name, str(status), text, request["data"])
        if len(queued) == BATCH:
            take_results(board, name, caller, request["session_hash"], queued)
    take_results(board, name, caller, request["session_hash"], queued)

    inputs = [attacked.defaults[number] for number in handler["inputs"]]
    for body in hostile_inputs.bodies(handler["id"], inputs):
        status, text = caller.post("/gradio_api/queue/join", body)
        board.note(name, f"{status} no request", text, body)
        if status == 200:
            board.problems.append(f"{name}: took {body[:200]!r}")
    body = json.dumps({"fn_index": handler["id"], "data": inputs, "session_hash": "hostile"}).encode()
    for path in ("/gradio_api/call/x", f"/gradio_api/call/{handler['api_name']}", "/gradio_api/api/predict"):
        status, text = caller.post(path, body)
        board.note(name, f"{status} other address", text, path)
        if status != 404:
            board.problems.append(f"{name}: {path} is {status}")
    for headers in hostile_inputs.headers(caller.server.port, caller.cookie):
        answer = caller.server.ask_raw("POST", "/gradio_api/queue/join", body, **headers)
        board.note(name, f"{answer.status} other headers", answer.body, headers)
        if answer.status not in (400, 401, 403):
            board.problems.append(f"{name}: {headers} is {answer.status}")


def take_results(board: Board, name: str, caller: Caller, session: str, queued: list[object]) -> None:
    """Wait until what was queued is over."""
    if queued:
        results = caller.results(session)
        if len(results) != len(queued):
            board.problems.append(f"{name}: {len(results)} of {len(queued)} came back: {str(queued)[:500]}")
        for outcome, text in results:
            board.note(name, outcome, text, f"one of {len(queued)}")
        queued.clear()


def test_nothing_that_is_sent_to_a_handler_gets_outside(attacked: Field) -> None:
    before, tree = state_of(attacked.outside), repository_state()
    began = time.monotonic()
    todo = list(attacked.handlers)
    assert len(todo) > 80

    def work(caller: Caller) -> None:
        with closing(caller.connection):
            while todo:
                with suppress(IndexError):
                    handler = todo.pop()
                    attack(attacked, handler, caller)

    callers = [Caller(*pair) for pair in zip(attacked.servers, attacked.cookies, strict=True)]
    threads = [threading.Thread(target=work, args=[caller]) for caller in callers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    attacked.watcher.end_jobs()
    show(attacked.board, time.monotonic() - began)
    assert not attacked.board.problems, "\n".join(attacked.board.problems[:20])
    assert set(attacked.board.counts) == {str(handler["id"]) for handler in attacked.handlers}
    least = min(counts.total() for counts in attacked.board.counts.values())
    assert least >= attacked.num_values + OTHER_INPUTS
    assert state_of(attacked.outside) == before
    assert repository_state() == tree
    require_quiet(attacked)


def require_quiet(attacked: Field) -> None:
    """Require that nobody else was asked, that only jobs were started, and that no traceback was printed."""
    assert attacked.asked_elsewhere == []
    strange = [argv for argv in attacked.watcher.seen if not is_expected(argv, attacked.workspace)]
    assert not strange, "\n".join(map(repr, strange))
    for server in attacked.servers:
        printed = "".join(server.printed)
        assert server.process.poll() is None
        assert not [leak for leak in (*LEAKS, "Traceback") if leak in printed], printed[-3000:]
    projects = {path.name for path in attacked.workspace.iterdir()}
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
    if program == "indextts/jobs/runner.py":
        return Path(words[1]).parent.name == "jobs" and Path(words[1]).is_relative_to(workspace)
    commands = [command for command in COMMANDS if command.program == program]
    flags = {f"--{name.replace('_', '-')}" for command in commands for name in command.model_fields}
    flags |= {flag.replace("--", "--no-", 1) for flag in flags}
    return bool(commands) and all(word.partition("=")[0] in flags for word in words[1:])


def show(board: Board, seconds: float) -> None:
    """Print what was sent, and what came back."""
    total: Counter[str] = sum(board.counts.values(), Counter())
    print(f"\n{total.total():,} hostile requests to {len(board.counts)} handlers in {seconds:.0f} s")
    for outcome, count in sorted(total.items()):
        print(f"  {outcome:20} {count:7,}")
    print("handler: requests, and what came back")
    for name, counts in sorted(board.counts.items(), key=lambda item: int(item[0])):
        print(f"  {name:>4} {counts.total():5} {dict(sorted(counts.items()))}")
    print(f"problems: {len(board.problems)}")


FILES = ["{outside}/secret.txt", "{workspace}/../outside/secret.txt", "{workspace}/demo/escape/secret.txt"]
FILES += ["{workspace}/demo/linked_secret.txt", "{workspace}/linked/secret.txt", "{repository}/README.md"]
FILES += [
    "/etc/passwd",
    "../../../../../../etc/passwd",
    "/proc/self/environ",
    "/proc/self/cmdline",
    "{login}",
    "/",
    ".",
]
FILES += [
    "file:///etc/passwd",
    "http://127.0.0.1:{port}/x",
    "https://evil.test/x",
    "//evil.test/x",
    "\0",
    "a" * 5000,
]
FILES += [
    "{workspace}",
    "{workspace}/demo",
    "{workspace}%2f..%2foutside%2fsecret.txt",
    "{workspace}/demo/\ud800",
]


def test_no_file_of_elsewhere_is_served(attacked: Field, elsewhere: tuple[int, list[str]]) -> None:
    places = {
        "outside": attacked.outside,
        "workspace": attacked.workspace,
        "repository": REPOSITORY,
        "login": attacked.outside.parent / "login",
        "port": elsewhere[0],
    }
    board = Board()
    for server, cookie in zip(attacked.servers, attacked.cookies, strict=True):
        for file in FILES:
            path = file.format(**places)
            for quoted in (quote(path, errors="surrogatepass"), quote(path, safe="", errors="surrogatepass")):
                for address in (
                    "/gradio_api/file=",
                    "/gradio_api/file/",
                    "/file=",
                    "/static/",
                    "/assets/",
                    "/page_files/",
                ):
                    answer = server.ask("GET", address + quoted, cookie=cookie)
                    board.note(address, str(answer.status), answer.body, path)
                    assert answer.status in (400, 401, 403, 404), (address, path, answer)
    assert not board.problems
    require_quiet(attacked)


def test_no_project_is_made_through_a_link(attacked: Field) -> None:
    before = state_of(attacked.outside)
    server, cookie = attacked.servers[0], attacked.cookies[0]
    config = json.loads(server.ask("GET", "/config", cookie=cookie).body)
    [button] = [c["id"] for c in config["components"] if c["props"].get("elem_id") == "project-start"]
    [make] = [handler for handler in attacked.handlers if [button, "click"] in handler["targets"]]
    caller = Caller(server, cookie)
    with closing(caller.connection):
        for name in ("linked", "linked/new", "demo/escape"):
            request = {
                "fn_index": make["id"],
                "session_hash": "links",
                "data": [name, "", "demo/checkpoints"],
            }
            assert caller.post("/gradio_api/queue/join", json.dumps(request).encode())[0] == 200
            [(outcome, text)] = caller.results("links")
            assert outcome == "error", text
            assert "lies outside" in text or "must be letters" in text, text
    assert state_of(attacked.outside) == before


NAMES = [
    "../../outside/planted.wav",
    "/etc/planted",
    "..",
    ".",
    "",
    "a/b.wav",
    "a\\..\\b.wav",
    "a" * 400,
    "-x.wav",
]
NAMES += [
    "--help",
    "$(touch {marker}).wav",
    "`touch {marker}`",
    "<img src=x>.wav",
    "\u202efdp.wav",
    ".ssh",
    "CON",
    "a;b.zip",
]
NAMES += [
    "%2e%2e%2foutside%2fplanted",
    "..%2f..%2fplanted",
    "a\tb.wav",
    "NUL.wav",
    "ሰላም.wav",
    "a.wav/../../../b.wav",
]


def test_an_upload_lands_in_the_folder_of_uploads_and_nowhere_else(attacked: Field) -> None:
    before = state_of(attacked.outside)
    server, cookie = attacked.servers[0], attacked.cookies[0]
    received = attacked.outside.parent / "received"
    board = Board()
    for name in NAMES:
        for content in (b"x", b"x" * 1_100_000):
            part = f'form-data; name="files"; filename="{name.format(marker=attacked.outside / "marker")}"'
            body = f"--b\r\nContent-Disposition: {part}\r\n\r\n".encode() + content + b"\r\n--b--\r\n"
            kind = "multipart/form-data; boundary=b"
            answer = server.ask_raw("POST", "/gradio_api/upload", body, cookie=cookie, content_type=kind)
            board.note("upload", str(answer.status), answer.body, name)
            assert answer.status == (200 if content == b"x" else 413) or answer.status == 400, (name, answer)
            for path in json.loads(answer.body) if answer.status == 200 else []:
                assert Path(path).resolve().is_relative_to(received), path
            assert server.ask_raw("POST", "/gradio_api/upload", body, content_type=kind).status == 401
    for body in (
        b"",
        b"--b",
        b"--b\r\n\r\n",
        b"x" * 100_000,
        b"--b\r\nContent-Disposition: x\r\n\r\nx\r\n--b--\r\n",
    ):
        for kind in (
            "multipart/form-data; boundary=b",
            "multipart/form-data",
            "text/plain",
            "application/json",
            "",
        ):
            answer = server.ask_raw("POST", "/gradio_api/upload", body, cookie=cookie, content_type=kind)
            board.note("upload", str(answer.status), answer.body, (body[:40], kind))
    print(board.counts)
    assert not board.problems, "\n".join(board.problems)
    assert state_of(attacked.outside) == before
    require_quiet(attacked)
