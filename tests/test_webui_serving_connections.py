"""Memory, connections and time of a visitor without the password; raw sockets and real servers."""

import contextlib
import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

import httpx
import psutil
import pytest

from indextts.webui.serving.access import MAX_BYTES_AT_A_TIME, MAX_REQUEST_BYTES
from indextts.webui.serving.connections import MAX_ANONYMOUS
from tests.waiting import PATIENCE_S, wait_until
from tests.webui_server import TWO_HANDLERS, Server, serving

PASSWORD = "correct horse battery"
HALF_HEAD = b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Half: "
PAUSE_S = 2.0
IMPATIENT = f"""
from indextts.webui.serving import connections
connections.REQUEST_S = 1.0
connections.PAUSE_S = {PAUSE_S}
"""
PATIENT = """
from indextts.webui.serving import connections
connections.REQUEST_S = connections.PAUSE_S = 3600.0
"""
COUNTING = """
import gradio.brotli_middleware

def counted(*args, **kwargs):
    print("compressed anew", flush=True)
    return real(*args, **kwargs)

real = gradio.brotli_middleware.Compressor
gradio.brotli_middleware.Compressor = counted
"""
MB = 1_000_000


@contextlib.contextmanager
def guarded(folder: Path, settings: str) -> Iterator[Server]:
    (folder / "login").write_text(f"me:{PASSWORD}")
    (folder / "login").chmod(0o600)
    with serving(folder, f"--auth-file={folder / 'login'}", program=settings + TWO_HANDLERS) as server:
        yield server


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A page with the time limits of a second or two."""
    with guarded(tmp_path_factory.mktemp("impatient"), IMPATIENT) as server:
        yield server


@pytest.fixture(scope="module")
def patient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A page whose time limits no test reaches."""
    with guarded(tmp_path_factory.mktemp("patient"), PATIENT + COUNTING) as server:
        yield server


@pytest.fixture
def connect() -> Iterator[Callable[[Server], socket.socket]]:
    """Return a function that opens a connection; all are closed at the end of the test."""
    with ExitStack() as opened:
        yield lambda server: opened.enter_context(
            socket.create_connection(("127.0.0.1", server.port), PATIENCE_S)
        )


def head(path: str, length: int, *more: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json", *more]
    return "\r\n".join([*lines, f"Content-Length: {length}", "", ""]).encode()


def is_ended(line: socket.socket) -> bool:
    """Return whether the server has closed a connection, without waiting."""
    line.setblocking(False)
    try:
        while True:
            if not line.recv(65536):
                return True
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def status(line: socket.socket) -> int:
    """Return the status of the next answer."""
    line.settimeout(PATIENCE_S)
    return int(line.recv(12).split()[1])


def test_a_head_that_does_not_end_is_ended(impatient: Server, connect):
    silent, half, slow = (connect(impatient) for _ in range(3))
    half.sendall(HALF_HEAD)

    def all_ended() -> bool:
        with contextlib.suppress(ConnectionError, BlockingIOError):
            slow.sendall(b"x")  # a byte at a time is no way around it
        return all(is_ended(line) for line in (silent, half, slow))

    slow.sendall(HALF_HEAD)
    wait_until(all_ended)


def test_a_second_request_that_does_not_end_is_ended_too(impatient: Server, connect):
    line = connect(impatient)
    line.sendall(b"GET /robots.txt HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert status(line) in (200, 404)
    line.sendall(HALF_HEAD)
    wait_until(lambda: is_ended(line))


@pytest.mark.parametrize("path", ["/login", "/theme.css", "/gradio_api/queue/join"])
def test_a_body_that_does_not_end_is_ended_without_a_login(impatient: Server, connect, path: str):
    line = connect(impatient)
    line.sendall(head(path, 2000) + b"username=me")
    wait_until(lambda: is_ended(line))


def test_who_does_not_read_the_answer_is_disconnected(impatient: Server):
    with socket.socket() as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        line.settimeout(PATIENCE_S)
        line.connect(("127.0.0.1", impatient.port))
        line.sendall(f"GET {largest_file()} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        port = line.getsockname()[1]
        process = psutil.Process(impatient.process.pid)
        wait_until(lambda: port not in [c.raddr.port for c in process.net_connections("tcp") if c.raddr])
        with contextlib.suppress(ConnectionError):
            num_bytes = 0
            while piece := line.recv(1 << 20):
                num_bytes += len(piece)
            assert num_bytes < MB  # a small part of the file


def largest_file() -> str:
    """Return the address of the largest script of the front end."""
    [package] = find_spec("gradio").submodule_search_locations
    folder = Path(package) / "templates/frontend/assets"
    path = max(folder.glob("*.js"), key=lambda path: path.stat().st_size)
    assert path.stat().st_size > 4 * MB
    return f"/assets/{path.name}"


def test_a_public_address_takes_no_body(patient: Server, connect):
    lines = [connect(patient) for _ in range(3)]
    for line, path in zip(lines, ("/theme.css", "/", "/assets/x"), strict=True):
        line.sendall(head(path, MAX_REQUEST_BYTES) + b"x" * 1000)
        assert status(line) == 413
    chunked = connect(patient)
    chunked.sendall(
        b"POST /theme.css HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab"
    )
    assert status(chunked) == 413


def test_unfinished_requests_without_a_login_take_little_memory(patient: Server, connect):
    process = psutil.Process(patient.process.pid)
    before = process.memory_info().rss
    body = bytes(MAX_REQUEST_BYTES - 1)
    for n in range(40):
        line = connect(patient)
        with contextlib.suppress(ConnectionError):
            line.sendall(head("/theme.css" if n % 2 else "/gradio_api/upload", MAX_REQUEST_BYTES) + body)
    assert patient.ask("GET", "/robots.txt").status in (200, 404)
    assert process.memory_info().rss - before < 100 * MB


def test_the_newest_visitor_always_gets_in_and_who_is_signed_in_stays(patient: Server, connect):
    cookie = patient.cookie("me", PASSWORD)
    upload = connect(patient)
    begin = head("/gradio_api/upload", 9 * MB, f"Cookie: {cookie}")
    begin = begin.replace(b"application/json", b"multipart/form-data; boundary=b")
    upload.sendall(begin + b'--b\r\nContent-Disposition: form-data; name="files"; filename="a.wav"\r\n\r\n')
    assert patient.ask("GET", "/config", cookie=cookie).status == 200  # by now the upload is admitted
    halves = []
    for _ in range(MAX_ANONYMOUS + 50):
        halves.append(connect(patient))
        halves[-1].sendall(HALF_HEAD)
    assert patient.sign_in("me", PASSWORD).status == 200
    assert patient.ask("GET", "/config", cookie=cookie).status == 200
    wait_until(lambda: sum(not is_ended(line) for line in halves) <= MAX_ANONYMOUS)
    assert not is_ended(halves[-1])
    assert not is_ended(upload)


def test_guesses_that_wait_for_their_answers_keep_no_newcomer_out(patient: Server, connect):
    guess = b"username=guess&password=wrong"
    more = "Content-Type: application/x-www-form-urlencoded"
    for _ in range(MAX_ANONYMOUS + 50):  # most of them are answered late
        line = connect(patient)
        line.sendall(
            head("/login", len(guess), more).replace(b"Content-Type: application/json\r\n", b"") + guess
        )
    assert patient.sign_in("me", PASSWORD).status == 200


def test_an_upload_ends_when_it_stands_still(impatient: Server, connect):
    cookie = impatient.cookie("me", PASSWORD)
    line = connect(impatient)
    line.sendall(head("/gradio_api/queue/join", 2000, f"Cookie: {cookie}") + b"{")
    wait_until(lambda: is_ended(line))


def test_an_upload_may_take_as_long_as_it_proceeds(impatient: Server, connect):
    cookie = impatient.cookie("me", PASSWORD)
    text = json.dumps({"fn_index": 0, "data": [], "session_hash": "slow"}).ljust(60).encode()
    is_slow_machine = True
    while is_slow_machine:
        line = connect(impatient)
        line.sendall(head("/gradio_api/queue/join", len(text), f"Cookie: {cookie}"))
        sent_at = began = time.monotonic()
        is_slow_machine = False
        with contextlib.suppress(ConnectionError):
            for n in range(len(text)):
                line.sendall(text[n : n + 1])
                is_slow_machine |= time.monotonic() - sent_at > PAUSE_S / 2
                sent_at = time.monotonic()
                time.sleep(1.5 * PAUSE_S / len(text))
    assert time.monotonic() - began > PAUSE_S
    assert status(line) == 200


def test_bodies_that_are_read_at_a_time_share_a_budget(patient: Server, connect):
    """For those who are signed in; nobody else may send one."""
    signed_in = {"cookie": patient.cookie("me", PASSWORD)}
    process = psutil.Process(patient.process.pid)
    before = process.memory_info().rss
    body = b"x" * MAX_REQUEST_BYTES
    lines = []
    for _ in range(3 * MAX_BYTES_AT_A_TIME // MAX_REQUEST_BYTES):
        lines.append(connect(patient))
        with contextlib.suppress(ConnectionError):
            lines[-1].sendall(
                head("/gradio_api/queue/join", len(body), f"Cookie: {signed_in['cookie']}") + body[1:]
            )
    assert patient.join(0, [], **signed_in).status == 200  # a small one always has room
    assert process.memory_info().rss - before < 100 * MB
    refused = patient.ask_raw("POST", "/gradio_api/queue/join", body, **signed_in)
    assert refused.status == 503
    assert int(refused.headers["retry-after"]) > 0
    for line in lines:
        line.close()
    wait_until(lambda: patient.ask_raw("POST", "/gradio_api/queue/join", body, **signed_in).status == 400)


def test_gradio_compresses_no_file_of_the_front_end_anew(patient: Server):
    path = largest_file()
    plain = patient.ask("GET", path)
    for coding in ("br", "gzip"):
        answers = [patient.ask("GET", path, accept_encoding=coding) for _ in range(2)]
        for answer in answers:
            assert answer.status == 200
            assert answer.headers["content-encoding"] == coding
            assert answer.headers["content-type"] == plain.headers["content-type"]
            assert int(answer.headers["content-length"]) < len(plain.body) / 2
        assert answers[0].body == answers[1].body
    assert patient.ask("GET", "/assets/absent.js", accept_encoding="br").status == 404
    assert "compressed anew\n" not in patient.printed


def test_the_page_of_each_visitor_is_compressed(patient: Server):
    page = f"http://127.0.0.1:{patient.port}/"
    own = {"Cookie": patient.cookie("me", PASSWORD)}
    plain = httpx.get(page, headers=own | {"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers
    for coding in ("br", "gzip"):
        signed_in = httpx.get(page, headers=own | {"Accept-Encoding": coding})
        assert signed_in.headers["content-encoding"] == coding
        assert int(signed_in.headers["content-length"]) < len(plain.content) / 2
        assert '"dependencies":[{' in signed_in.text.replace(" ", "")
        anonymous = httpx.get(page, headers={"Accept-Encoding": coding})
        assert anonymous.headers["content-encoding"] == coding
        assert '"dependencies":[{' not in anonymous.text.replace(" ", "")
