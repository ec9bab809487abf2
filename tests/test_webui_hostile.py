"""Every handler of the page, called with harmful values: nothing outside is read, written or started.

Every handler of the real page gets all of hostile_inputs.py over HTTP, from a real server. Outside the
workspace there is a folder that must not be read, changed or run from, and a server that must not be called.
"""

import json
import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psutil
import pytest

from indextts.webui.serving.connections import MAX_ANONYMOUS
from indextts.webui.serving.launch import MAX_SESSIONS
from tests import hostile_inputs
from tests.attacked_page import (
    PASSWORD,
    Board,
    Caller,
    Field,
    Watcher,
    repository_state,
    require_quiet,
    state_of,
    write_canaries,
)
from tests.conftest import REPOSITORY
from tests.waiting import PATIENCE_S
from tests.webui_server import Server, packed_inputs, sent_values, serving

pytestmark = pytest.mark.long

OTHER_INPUTS = 50  # for each handler, at least: bodies, addresses and headers
BATCH = 40


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

        def do_CONNECT(self) -> None:  # as the proxy for https
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


@pytest.fixture(scope="module")
def attacked(
    tmp_path_factory: pytest.TempPathFactory,
    pytestconfig: pytest.Config,
    elsewhere: tuple[int, list[str]],
) -> Iterator[Field]:
    folder = tmp_path_factory.mktemp("hostile")
    outside = write_canaries(folder)
    (folder / "login").write_text(f"me:{PASSWORD}")
    (folder / "login").chmod(0o600)
    flags = [f"--auth-file={folder / 'login'}", "--max-upload-mb=1"]
    watcher = Watcher(folder / "workspace", f"HOSTILE_MARK={folder.name}")
    with pytest.MonkeyPatch.context() as patch, ExitStack() as running:
        patch.setenv("HOSTILE_MARK", folder.name)
        servers = [running.enter_context(serving(folder, *flags, proxy_port=elsewhere[0])) for _ in range(2)]
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
                sent_values(config),
                {
                    each["id"]: form
                    for each in config["dependencies"]
                    if (form := packed_inputs(config, each))
                },
                Board(),
                watcher,
                elsewhere[1],
            )
        finally:
            watcher.done.set()
            watcher.thread.join()
            watcher.end_jobs()


def requests_for(attacked: Field, handler: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a handler's own request, and then others: each value in one place, the rest as it was."""
    form = attacked.packed.get(handler["id"])
    inputs = [attacked.defaults[number] for number in form or handler["inputs"]]
    request = {"fn_index": handler["id"], "session_hash": f"hostile{handler['id']}"}
    for data in data_for(attacked, handler, inputs):
        yield request | (data | {"data": [json.dumps(data["data"])]} if form else data)
    if form:
        yield from (request | {"data": [value]} for value in attacked.values[::100])


def data_for(attacked: Field, handler: dict[str, Any], inputs: list[Any]) -> Iterator[dict[str, Any]]:
    """Yield the values of a handler's inputs, and then hostile ones."""
    yield {"data": inputs}
    # each handler gets its own choice, so that together they get all
    for n, value in enumerate(random.Random(handler["id"]).sample(attacked.values, attacked.num_values)):
        if inputs and n % 8:
            place = n % len(inputs)
            yield {"data": [*inputs[:place], value, *inputs[place + 1 :]]}
        else:
            yield {"data": inputs, "event_data": value}
            if handler["collects_event_data"]:  # as if a row of a table had been clicked
                row = {"index": [0, 0], "value": value, "row_value": [value]}
                yield {"data": inputs, "event_data": row}
    for value in attacked.values[::100]:
        yield {"data": [value] * len(inputs)}


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


def test_no_value_sent_to_a_handler_reaches_outside_the_roots(attacked: Field) -> None:
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


def test_no_file_outside_the_roots_is_served(attacked: Field, elsewhere: tuple[int, list[str]]) -> None:
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


def test_no_project_is_created_through_a_link(attacked: Field) -> None:
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
                "data": ["A title", "checkpoints", "am", "builtin", "", name, "demo/checkpoints"],
            }
            assert caller.post("/gradio_api/queue/join", json.dumps(request).encode())[0] == 200
            [(outcome, text)] = caller.results("links")
            assert outcome == "error", text
            assert name in text, text
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


def test_an_upload_is_stored_only_in_the_folder_of_uploads(attacked: Field) -> None:
    before = state_of(attacked.outside)
    server, cookie = attacked.servers[0], attacked.cookies[0]
    received = attacked.workspace / ".received"
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


NUM_SESSIONS = 150  # beyond those that the server keeps
SESSION_BYTES = 1_500_000  # of the state that Gradio keeps for each page


def test_many_sessions_do_not_fill_the_memory(attacked: Field) -> None:
    server, caller = attacked.servers[0], Caller(attacked.servers[0], attacked.cookies[0])
    [handler, *_] = [handler for handler in attacked.handlers if not handler["queue"]]
    data = [attacked.defaults[number] for number in handler["inputs"]]
    with closing(caller.connection):
        for number in range(MAX_SESSIONS + NUM_SESSIONS):
            if number == MAX_SESSIONS:
                before = memory_bytes(server)
            body = {"fn_index": handler["id"], "data": data, "session_hash": f"session{number}"}
            assert caller.post("/gradio_api/run/predict", json.dumps(body).encode())[0] == 200
    assert memory_bytes(server) - before < NUM_SESSIONS * SESSION_BYTES // 5


def memory_bytes(server: Server) -> int:
    lines = Path(f"/proc/{server.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS"))


def test_forged_forwarding_headers_change_nothing(attacked: Field) -> None:
    server, cookie = attacked.servers[0], attacked.cookies[0]
    plain = server.ask("GET", "/config", cookie=cookie).body
    for forged in hostile_inputs.forged_headers():
        assert server.ask("GET", "/config", cookie=cookie, **forged).body == plain, forged
        assert server.ask("GET", "/config", **forged).status == 401, forged
        assert server.sign_in("me", PASSWORD, **forged).status == 200, forged
    for n, forged in enumerate(hostile_inputs.forged_headers()[:20]):
        assert server.sign_in(f"guess {n}", "wrong", **forged).status == 400
    require_quiet(attacked)


NUM_CONNECTIONS = MAX_ANONYMOUS + 200
MAX_MORE_BYTES = 100_000_000


def test_slow_bodies_and_many_connections_keep_nobody_out(attacked: Field) -> None:
    server, cookie = attacked.servers[0], attacked.cookies[0]
    process = psutil.Process(server.process.pid)
    before = process.memory_info().rss
    starts = [
        b"",
        b"G",
        b"POST /theme.css HTTP/1.1\r\nHost: localhost\r\nContent-Length: 8000000\r\n\r\n" + bytes(10**6),
    ]
    starts += [
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ",
        b"\0" * 100,
        b"\x16\x03\x01\x02\0",
        b"PRI * HTTP/2.0\r\n\r\n",
    ]
    starts += [b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2000\r\n\r\nusername="]
    starts += [b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"]
    starts += [b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\nx"]
    starts += [b"GET /assets/x HTTP/1.1\r\nHost: localhost\r\n\r\n" * 1000]
    with ExitStack() as opened:
        for n in range(NUM_CONNECTIONS):
            line = opened.enter_context(socket.create_connection(("127.0.0.1", server.port), PATIENCE_S))
            with suppress(ConnectionError):
                line.sendall(starts[n % len(starts)])
            if n % 50 == 0:
                assert server.ask("GET", "/config", cookie=cookie).status == 200
        assert server.sign_in("me", PASSWORD).status == 200
        assert process.memory_info().rss - before < MAX_MORE_BYTES
        num_open = sum(c.status == psutil.CONN_ESTABLISHED for c in process.net_connections("tcp"))
        assert num_open < MAX_ANONYMOUS + 50
    require_quiet(attacked)
