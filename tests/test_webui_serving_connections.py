"""How long, and how many, visitors without a sign-in keep connections open; raw sockets to a small app."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from indextts.webui.serving import connections
from indextts.webui.serving.connections import SIGNED_IN, limited_server
from tests.waiting import PATIENCE_S, wait_until

MAX_ANONYMOUS = 20
HALF_HEAD = b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Half: "
Connect = Callable[..., socket.socket]


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Read the body, and answer with 20 MB; a cookie counts as a sign-in."""
    if scope["type"] != "http":
        return
    scope["state"][SIGNED_IN] = b"cookie" in dict(scope["headers"])
    while scope["method"] == "POST" and (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for _ in range(20 if scope["path"] == "/large" else 0):
        await send({"type": "http.response.body", "body": bytes(10**6), "more_body": True})
    await send({"type": "http.response.body", "body": b""})


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Iterator[Connect]:
    """Return a function that opens a connection to the app and sends what it is given."""
    monkeypatch.setattr(connections, "MAX_ANONYMOUS", MAX_ANONYMOUS)
    listener = socket.create_server(("127.0.0.1", 0))
    server = limited_server(app)
    thread = threading.Thread(target=server.run, args=[[listener]])
    thread.start()
    with ExitStack() as opened:

        def open_line(*sent: bytes) -> socket.socket:
            line = socket.create_connection(listener.getsockname(), PATIENCE_S)
            opened.enter_context(line)
            for text in sent:
                line.sendall(text)
            return line

        wait_until(lambda: server.started)
        yield open_line
    server.should_exit = True
    thread.join()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "REQUEST_S", 1.0)
    monkeypatch.setattr(connections, "ANSWER_S", 1.0)


def request(path: str = "/", length: int | None = None, cookie: str = "") -> bytes:
    lines = [f"{'GET' if length is None else 'POST'} {path} HTTP/1.1", "Host: localhost"]
    lines += [f"Cookie: {cookie}"] * bool(cookie) + [f"Content-Length: {length}"] * (length is not None)
    return "\r\n".join([*lines, "", ""]).encode()


def is_ended(line: socket.socket) -> bool:
    """Return whether the server has closed a connection, without waiting."""
    line.setblocking(False)
    try:
        while line.recv(65536):
            pass
    except BlockingIOError:
        return False
    except ConnectionError:
        pass
    return True


def is_answered(line: socket.socket) -> bool:
    line.settimeout(PATIENCE_S)
    return line.recv(12).endswith(b" 200")


def test_a_request_that_does_not_arrive_is_ended(connect: Connect, impatient: None):
    second = connect(request())
    assert is_answered(second)
    second.sendall(HALF_HEAD)
    slow = connect(HALF_HEAD)
    lines = [connect(), connect(HALF_HEAD), second, slow, connect(request(length=2000), b"a")]
    upload = connect(request(length=2000, cookie="a"), b"a")  # who is signed in may take longer

    def all_ended() -> bool:
        with contextlib.suppress(ConnectionError, BlockingIOError):
            slow.sendall(b"x")  # a byte at a time is no way around it
        return all(map(is_ended, lines))

    wait_until(all_ended)
    assert not is_ended(upload)
    upload.setblocking(True)
    upload.sendall(bytes(1999))
    assert is_answered(upload)


def test_who_does_not_read_the_answer_is_disconnected(connect: Connect, impatient: None):
    line, own = connect(request("/large")), connect(request("/large", cookie="a"))
    wait_until(lambda: not open_ports(line))
    assert open_ports(own)


def open_ports(line: socket.socket) -> list[str]:
    """Return the server's side of a connection of this machine, while it is open."""
    server, own = (f"0100007F:{name()[1]:04X}" for name in (line.getpeername, line.getsockname))
    lines = Path("/proc/net/tcp").read_text().splitlines()
    return [text for text in lines if text.split()[1:4] == [server, own, "01"]]


def test_the_newest_visitor_always_gets_in_and_who_is_signed_in_stays(connect: Connect):
    upload = connect(request(length=2000, cookie="a"), b"a")
    assert is_answered(connect(request()))  # by now the upload is admitted
    halves = [connect(HALF_HEAD) for _ in range(4 * MAX_ANONYMOUS)]
    assert is_answered(connect(request()))
    wait_until(lambda: sum(not is_ended(line) for line in halves) <= MAX_ANONYMOUS)
    assert not is_ended(halves[-1])
    assert not is_ended(upload)
