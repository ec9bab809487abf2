"""Every handler of the page, called with harmful values: nothing outside is read, written or started.

Every handler of the real page gets values of hostile_inputs.py over HTTP, from a real server. Outside the
workspace there is a folder that must not be read or changed, and a port that must not be asked, but
for the way to the hub: a button starts a download, which may get that far before it is ended.
"""

import hashlib
import http.client
import json
import random
import re
import socket
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import psutil
import pytest

from indextts.projects.jobs.records import list_jobs
from indextts.projects.jobs.stopping import kill_job
from indextts.projects.project import Project
from indextts.webui.serving.launch import MAX_SESSIONS
from tests import hostile_inputs
from tests.conftest import REPOSITORY
from tests.waiting import PATIENCE_S
from tests.webui_server import Server, packed_inputs, sent_values, serving, size_of

PASSWORD = "correct horse battery"
SECRET = "the-canary-sings-4711"
SECRETS = (SECRET, "root:x:0:0", PASSWORD)
LEAKS = (*SECRETS, "Traceback")
BATCH = 40
HUB = b"CONNECT huggingface.co:443 HTTP/1.1"  # from the job that a button for a download starts
QUICK_S = 10.0  # less than between two signs of life of a call


@dataclass(frozen=True)
class Attacked:
    """The page under attack, over one connection of somebody who is signed in."""

    server: Server
    connection: http.client.HTTPConnection
    headers: dict[str, str]
    outside: Path
    values: list[Any]
    config: dict[str, Any]
    handlers: list[dict[str, Any]]  # what runs on the server, as the page's own config lists it
    defaults: dict[int, Any]  # the value of each component when the page is opened

    def post(self, path: str, request: dict[str, Any]) -> tuple[int, str]:
        self.connection.request("POST", path, json.dumps(request).encode(), self.headers)
        answer = self.connection.getresponse()
        return answer.status, answer.read().decode(errors="replace")

    def results(self, session: str) -> list[tuple[str, str]]:
        """Return the outcome and the text of each call that was queued in this session."""
        self.connection.request("GET", f"/gradio_api/queue/data?session_hash={session}", headers=self.headers)
        lines = self.connection.getresponse().read().decode(errors="replace").split("\n\n")
        events = [(json.loads(line.removeprefix("data: ") or "{}"), line) for line in lines]
        completed = [(event, line) for event, line in events if event.get("msg") == "process_completed"]
        return [("done" if event["success"] else "error", line) for event, line in completed]

    def inputs(self, handler: dict[str, Any]) -> list[int]:
        """Return the components whose values a handler receives."""
        return packed_inputs(self.config, handler) or list(handler["inputs"])

    def values_of(self, handler: dict[str, Any]) -> list[Any]:
        """Return the values that a handler receives when the page is opened."""
        return [self.defaults[number] for number in self.inputs(handler)]

    def data(self, handler: dict[str, Any], values: list[Any]) -> list[Any]:
        """Return the data of a request that has these values."""
        return [json.dumps(values)] if packed_inputs(self.config, handler) else values


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    folder = tmp_path_factory.mktemp("hostile")
    outside, workspace = write_canaries(folder), folder / "workspace"
    (folder / "login").write_text(f"me:{PASSWORD}")
    (folder / "login").chmod(0o600)
    with socket.create_server(("127.0.0.1", 0)) as elsewhere:
        port = elsewhere.getsockname()[1]
        flags = [f"--auth-file={folder / 'login'}", "--max-upload-mb=1"]
        with serving(folder, *flags, proxy_port=port) as server:
            cookie = server.cookie("me", PASSWORD)
            config = json.loads(server.ask("GET", "/config", cookie=cookie).body)
            values = hostile_inputs.values(outside, workspace, port)
            random.Random(0).shuffle(values)
            handlers = [dependency for dependency in config["dependencies"] if dependency["backend_fn"]]
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_S)
            headers = {"Cookie": cookie, "Content-Type": "application/json"}
            before, tree = state_of(outside), repository_state()
            with closing(connection):
                yield Attacked(
                    server, connection, headers, outside, values, config, handlers, sent_values(config)
                )
            end_jobs(workspace)
            assert state_of(outside) == before
            assert repository_state() == tree
            assert server.process.poll() is None
            printed = "".join(server.printed)
            assert not [leak for leak in (*SECRETS, "\x1b") if leak in printed], printed[-3000:]
            names = {path.name for path in workspace.iterdir()} - {".received"}
            assert all(re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", name) for name in names), names
        assert set(asked(elsewhere)) <= {HUB}


def asked(elsewhere: socket.socket) -> Iterator[bytes]:
    """Yield the first line of each request that was sent there, all of whose senders have ended."""
    elsewhere.setblocking(False)
    with suppress(BlockingIOError):
        while True:
            connection, _ = elsewhere.accept()
            with connection:
                connection.settimeout(PATIENCE_S)
                yield connection.recv(1000).partition(b"\r\n")[0]


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


def repository_state() -> list[str]:
    """Return what was made in the folder that jobs run in, and is no part of it."""
    argv = ["git", "status", "--porcelain"]
    output = subprocess.run(argv, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
    return [line for line in output.splitlines() if line.startswith("??")]


def end_jobs(workspace: Path) -> None:
    for folder in {*workspace.glob("*/jobs"), workspace / "checkpoints/jobs"}:
        for job in list_jobs(Project(folder.parent)):
            if job.is_active:
                kill_job(job)


def requests_for(attacked: Attacked, handler: dict[str, Any], num_values: int) -> Iterator[dict[str, Any]]:
    """Yield requests to a handler with one value in one place, the rest as when the page opened."""
    inputs = attacked.values_of(handler)
    # in one session, because a new one takes half a second
    request = {"fn_index": handler["id"], "session_hash": "hostile"}
    # each handler gets its own choice, so that together they get all
    for n, value in enumerate(random.Random(handler["id"]).sample(attacked.values, num_values)):
        if inputs:
            place = n % len(inputs)
            changed = [*inputs[:place], value, *inputs[place + 1 :]]
            yield request | {"data": attacked.data(handler, changed)}
        if handler["collects_event_data"] and isinstance(value, str):  # as if a row of a table was clicked
            row = {"index": [0, 0], "value": value, "row_value": [value]}
            yield request | {"data": inputs, "event_data": row}


def more_requests_for(attacked: Attacked, handler: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a handler's own request, and requests with one value in all places."""
    inputs = attacked.values_of(handler)
    request = {"fn_index": handler["id"], "session_hash": "hostile"}
    yield request | {"data": attacked.data(handler, inputs)}
    if inputs:
        one = attacked.values[handler["id"] % len(attacked.values)]
        yield request | {"data": attacked.data(handler, [one] * len(inputs))}
        yield request | {"data": [one] * len(handler["inputs"])}


@pytest.mark.parametrize("are_many", [False, pytest.param(True, marks=pytest.mark.long)])
def test_no_value_sent_to_a_handler_reaches_outside_the_roots(
    attacked: Attacked, are_many: bool, pytestconfig: pytest.Config
):
    assert len(attacked.handlers) > 80
    outcomes: Counter[str] = Counter()
    problems: list[str] = []
    for handler in attacked.handlers:
        num_queued = 0

        def note(outcome: str, text: str, sent: object, name: str = str(handler["id"])) -> None:
            outcomes[outcome] += 1
            if any(leak in text for leak in LEAKS) or outcome not in (
                "200",
                "413",
                "422",
                "500",
                "done",
                "error",
            ):
                problems.append(f"{name}: {outcome} for {str(sent)[:200]}: {text[:300]}")

        def take_results() -> None:
            for outcome, text in attacked.results("hostile"):
                note(outcome, text, "a call in the queue")

        requests = requests_for(attacked, handler, 1)
        if are_many:
            many = requests_for(attacked, handler, pytestconfig.getoption("--hostile-inputs"))
            requests = chain(more_requests_for(attacked, handler), many)
        for request in requests:
            status, text = attacked.post(
                "/gradio_api/queue/join" if handler["queue"] else "/gradio_api/run/predict", request
            )
            note(str(status), text, request["data"])
            num_queued += bool(handler["queue"] and status == 200)
            if num_queued == BATCH:
                take_results()
                num_queued = 0
        if num_queued:
            take_results()
        end_jobs(attacked.server.workspace)
    print(dict(outcomes))
    assert not problems, "\n".join(problems[:20])


FILES = """
{outside}/secret.txt {workspace}/../outside/secret.txt {workspace}/demo/escape/secret.txt
{workspace}/demo/linked_secret.txt {workspace}/linked/secret.txt {repository}/README.md {outside}/../login
/etc/passwd /proc/self/environ {workspace} {workspace}/demo {workspace}%2f..%2foutside%2fsecret.txt
"""


def test_no_file_outside_the_roots_is_served(attacked: Attacked):
    places = {"outside": attacked.outside, "workspace": attacked.server.workspace, "repository": REPOSITORY}
    for path in FILES.format(**places).split():
        answer = attacked.server.ask("GET", f"/gradio_api/file={path}", cookie=attacked.headers["Cookie"])
        assert answer.status in (403, 404), path


@pytest.mark.parametrize("path", ["{outside}/secret.wav", "/dev/zero", "https://evil.test/a.wav"])
def test_a_path_in_place_of_an_upload_is_refused_at_once_and_not_copied(attacked: Attacked, path: str):
    file = {"path": path.format(outside=attacked.outside), "meta": hostile_inputs.FILE}
    fields = {each["id"] for each in attacked.config["components"] if each["type"] == "file"}
    handlers = [handler for handler in attacked.handlers if fields & set(attacked.inputs(handler))]
    assert handlers
    received = attacked.server.workspace / ".received"
    before = size_of(received)
    connection = http.client.HTTPConnection("127.0.0.1", attacked.server.port, timeout=QUICK_S)
    with closing(connection):
        quick = replace(attacked, connection=connection)
        for handler in handlers:
            values = [[file] if n in fields else attacked.defaults[n] for n in attacked.inputs(handler)]
            data = attacked.data(handler, values)
            request = {"fn_index": handler["id"], "session_hash": "files", "data": data}
            if handler["queue"]:
                assert quick.post("/gradio_api/queue/join", request)[0] == 200
                assert [outcome for outcome, _ in quick.results("files")] == ["error"]
            else:
                assert quick.post("/gradio_api/run/predict", request)[0] == 500
    assert size_of(received) == before


UPLOADED = ["../../outside/planted.wav", "/etc/planted", "..", "", "a\\..\\b.wav", "a" * 400, "--help"]
UPLOADED += ["$(touch marker).wav", "<img src=x>.wav", "..%2f..%2fplanted", "ሰላም.wav", "a.wav/../../../b.wav"]


def test_an_upload_is_stored_only_in_the_folder_of_uploads(attacked: Attacked):
    received = attacked.server.workspace / ".received"
    sent = {"content_type": "multipart/form-data; boundary=b", "cookie": attacked.headers["Cookie"]}
    for name in UPLOADED:
        about = f'--b\r\nContent-Disposition: form-data; name="files"; filename="{name}"\r\n\r\n'
        body = about.encode() + b"x\r\n--b--\r\n"
        answer = attacked.server.ask_raw("POST", "/gradio_api/upload", body, **sent)
        for path in json.loads(answer.body) if answer.status == 200 else []:
            assert Path(path).resolve().is_relative_to(received), path


NUM_SESSIONS = 150  # beyond those that the server keeps
SESSION_BYTES = 1_500_000  # of the state that Gradio keeps for each page


@pytest.mark.long
def test_many_sessions_do_not_fill_the_memory(attacked: Attacked):
    process = psutil.Process(attacked.server.process.pid)
    # a select without its event is refused
    handlers = (each for each in attacked.handlers if each["targets"] and each["targets"][0][1] != "select")
    handler = next(each for each in handlers if not each["queue"])
    for number in range(MAX_SESSIONS + NUM_SESSIONS):
        if number == MAX_SESSIONS:
            before = process.memory_info().rss
        session = {"session_hash": f"session{number}", "fn_index": handler["id"]}
        data = attacked.data(handler, attacked.values_of(handler))
        assert attacked.post("/gradio_api/run/predict", session | {"data": data})[0] == 200
    assert process.memory_info().rss - before < NUM_SESSIONS * SESSION_BYTES // 5
