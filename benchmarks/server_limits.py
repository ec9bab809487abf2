"""Memory, connections and sign-ins of the page's server while visitors without the password attack it.

    python -m benchmarks.server_limits

The page runs in its own process with a password. Raw sockets send bodies that never end to a public address,
request heads that never end, and wrong passwords with forged headers. Memory is the server's resident memory.
"""

import socket
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import ClassVar
from urllib.parse import urlencode

import psutil
from pydantic import Field

from benchmarks.frame import Benchmark, publish, table
from indextts.commands.terminal import parse, run
from tests.webui_server import PAGE, Server, serving

USER, PASSWORD = "owner", "correct horse battery"
BODY_BYTES = 8_000_000
SETTLE_S = 10
HEAD_LIMIT_S = 20
FORGED = "9.9.{}.{}\x1b]0;owned\x07\x1b[2J"
GUESSING_THREADS = 4


class ServerLimits(Benchmark):
    """Measure what visitors without the password can take from the server."""

    program: ClassVar[str] = "benchmarks.server_limits"
    bodies: int = Field(150, ge=1, description="Unfinished requests of 8 MB.")
    heads: int = Field(500, ge=1, description="Unfinished request heads.")
    guesses: int = Field(1000, ge=1, description="Sign-ins with a wrong password.")


def main(argv: Sequence[str] | None = None) -> int:
    command = parse(ServerLimits, argv)
    with tempfile.TemporaryDirectory(prefix="server_limits_") as temporary:
        folder = Path(temporary)
        login = folder / "login"
        login.write_text(f"{USER}:{PASSWORD}")
        login.chmod(0o600)
        with serving(folder, f"--auth-file={login}", program=PAGE) as server:
            assert server.sign_in(USER, PASSWORD).status == 200
            rows = [
                *unfinished_bodies(server, command.bodies),
                *unfinished_heads(server, command.heads),
                *wrong_passwords(server, command.guesses),
            ]
            time.sleep(SETTLE_S + 1)  # failed sign-ins are printed once in ten seconds
            rows.append(["escape characters in the terminal", str("".join(server.printed).count("\x1b"))])
    publish(command, "What visitors without the password can take", table(["measured", "value"], rows))
    return 0


def unfinished_bodies(server: Server, number: int) -> list[list[str]]:
    """Send bodies without their last byte to a public address."""
    memory = memory_meter(server)
    before = peak = memory()
    head = f"POST /theme.css HTTP/1.1\r\nHost: localhost\r\nContent-Length: {BODY_BYTES}\r\n\r\n".encode()
    lines = []
    for _ in range(number):
        lines.append(connect(server))
        with suppress(OSError):  # the server may close the connection
            lines[-1].sendall(head + bytes(BODY_BYTES - 1))
        peak = max(peak, memory())
    close(lines)
    time.sleep(SETTLE_S)
    return [
        [f"memory more during {number} unfinished requests of 8 MB (MB)", f"{peak - before:.0f}"],
        [f"memory more {SETTLE_S} s after they closed (MB)", f"{memory() - before:.0f}"],
    ]


def unfinished_heads(server: Server, number: int) -> list[list[str]]:
    """Send the beginnings of requests and wait until the server has closed them."""
    lines, process = [], psutil.Process(server.process.pid)

    def num_open() -> int:
        return sum(each.status == "ESTABLISHED" for each in process.net_connections("tcp"))

    for _ in range(number):
        lines.append(connect(server))
        lines[-1].sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Half: ")
    sent = time.monotonic()
    time.sleep(1)  # the server accepts them first
    while num_open() and time.monotonic() - sent < HEAD_LIMIT_S:
        time.sleep(0.1)
    rows = [
        [f"seconds until {number} unfinished heads are closed", f"{time.monotonic() - sent:.1f}"],
        ["unfinished heads that stay open", str(num_open())],
    ]
    close(lines)
    return rows


def wrong_passwords(server: Server, number: int) -> list[list[str]]:
    """Guess the password with forged headers, while the owner signs in again and again."""
    todo, lines = list(range(number)), []

    def guess() -> None:
        while todo:
            with suppress(IndexError, OSError):
                guessed = todo.pop()
                body = urlencode({"username": USER, "password": f"wrong {guessed}"})
                head = (
                    "POST /login HTTP/1.1\r\nHost: localhost\r\n"
                    f"X-Forwarded-For: {FORGED.format(guessed // 250, guessed % 250)}\r\n"
                    "Content-Type: application/x-www-form-urlencoded\r\n"
                    f"Content-Length: {len(body)}\r\n\r\n"
                )
                lines.append(connect(server))
                lines[-1].sendall((head + body).encode())
                time.sleep(0.02)

    started = time.monotonic()
    threads = [threading.Thread(target=guess) for _ in range(GUESSING_THREADS)]
    for thread in threads:
        thread.start()
    statuses, longest = [], 0.0
    while any(thread.is_alive() for thread in threads):
        asked = time.monotonic()
        statuses.append(server.sign_in(USER, PASSWORD, x_forwarded_for="9.9.9.9").status)
        longest = max(longest, time.monotonic() - asked)
        time.sleep(0.3)
    took = time.monotonic() - started
    close(lines)
    return [
        [f"seconds of {number} wrong sign-ins", f"{took:.1f}"],
        ["sign-ins with the right password meanwhile", f"{statuses.count(200)} of {len(statuses)}"],
        ["longest of them (s)", f"{longest:.2f}"],
    ]


def memory_meter(server: Server) -> Callable[[], float]:
    """Return a function that returns the server's resident memory in MB."""
    process = psutil.Process(server.process.pid)
    return lambda: process.memory_info().rss / 1e6


def connect(server: Server) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), 30)


def close(lines: Sequence[socket.socket]) -> None:
    for line in lines:
        line.close()


if __name__ == "__main__":
    run(main)
