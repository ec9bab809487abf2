"""Limits of a connection: how long a request may take to arrive, and how many visitors may wait.

Without them, anybody who reaches the port can fill the memory and the file descriptors of the machine that
trains, without a password. Three states of a connection have a time limit:

    REQUEST    waiting for the end of a request's head, or of a body before the sign-in: REQUEST_S in all
    BODY       waiting for more of a signed-in visitor's body: PAUSE_S without a byte, however long in all
    ANSWER     waiting for a visitor who is not signed in to take more of an answer: PAUSE_S

Behind a tunnel all visitors have one address, so the number of connections is limited by sign-in and not by
address: at most MAX_ANONYMOUS belong to visitors who are not signed in. One more ends the oldest of these,
so that the newest always gets an answer, and the owner can sign in while a stranger opens connections. A
connection counts as signed in while it serves a request with a valid login.
"""

import asyncio
import enum
import socket
from typing import Any

import h11
import uvicorn
from fastapi import FastAPI
from gradio import http_server
from starlette.types import Scope
from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_S = 10.0
PAUSE_S = 30.0
MAX_ANONYMOUS = 400
MAX_ACCEPTED_AT_ONCE = 50  # so that a burst does not end a request that has just come
MAX_UNSENT_BYTES = 128 * 1024


class Waiting(enum.Enum):
    """States of a connection that have a time limit."""

    REQUEST = enum.auto()
    BODY = enum.auto()
    ANSWER = enum.auto()


class LimitedHTTP(H11Protocol):
    """A connection of uvicorn with the limits above."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.app_state = {**self.app_state, "connection": self}
        self.since = 0.0  # the connection's begin, or its latest request
        self.is_signed_in = False
        self.waiting: Waiting | None = None
        self.timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        anonymous = [c for c in self.connections if isinstance(c, LimitedHTTP) and not c.is_signed_in]
        super().connection_made(transport)
        # else the kernel would hold megabytes for each visitor who does not read
        transport.get_extra_info("socket").setsockopt(
            socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, MAX_UNSENT_BYTES
        )
        self.since = self.loop.time()
        if len(anonymous) >= MAX_ANONYMOUS:
            min(anonymous, key=lambda other: other.since).end()
        self.watch()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.stop_timer()

    def handle_events(self) -> None:
        served = self.cycle
        super().handle_events()
        if self.cycle is not served:
            self.is_signed_in = False  # a proxy may send requests of several visitors through one connection
            self.since = self.loop.time()
        self.watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self.watch()

    def pause_writing(self) -> None:
        super().pause_writing()
        self.watch()

    def resume_writing(self) -> None:
        super().resume_writing()
        self.watch()

    def sign_in(self) -> None:
        """Treat the current request as one of a signed-in visitor."""
        self.is_signed_in = True
        self.watch()

    def watch(self) -> None:
        """Start, restart or stop the timer after a change."""
        before, self.waiting = self.waiting, self._what_is_waited_for()
        if self.waiting is not before or self.waiting is Waiting.BODY:
            self.stop_timer()
            if self.waiting is not None:
                limit_s = REQUEST_S if self.waiting is Waiting.REQUEST else PAUSE_S
                self.timer = self.loop.call_later(limit_s, self._time_is_over)

    def _what_is_waited_for(self) -> Waiting | None:
        is_body_due = self.conn.their_state is h11.SEND_BODY  # also of a request that was refused meanwhile
        if is_body_due and self.is_signed_in:
            return Waiting.BODY
        if is_body_due or self.cycle is None or self.cycle.response_complete:
            return Waiting.REQUEST
        return Waiting.ANSWER if self.flow.write_paused and not self.is_signed_in else None

    def _time_is_over(self) -> None:
        if self.waiting is Waiting.BODY and self.flow.read_paused:  # the page is slow, not the visitor
            self.waiting = None
            self.watch()
        else:
            self.end()

    def stop_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def end(self) -> None:
        """Close the connection at once, whatever has not been sent."""
        self.connections.discard(self)  # now, for others may be accepted before `connection_lost`
        self.transport.abort()


def admit(scope: Scope) -> None:
    """Give a request the limits of a signed-in visitor."""
    connection: LimitedHTTP = scope["state"]["connection"]
    connection.sign_in()


def start_server(
    app: FastAPI, server_name: str | None = None, server_port: int | None = None, **_: object
) -> tuple[str, int, str, http_server.Server]:
    """Start the server with these limits in a thread; takes the place of `gradio.http_server.start_server`.

    Returns:
        The host, the port, the URL, and the server.
    """
    assert server_name is not None
    assert server_port is not None
    config = uvicorn.Config(
        app,
        host=server_name.strip("[]"),
        port=server_port,
        http=LimitedHTTP,
        ws="none",
        loop="asyncio",  # other packages bring uvloop, with which the limits are not tested
        log_config=None,  # so that its lines go through our formatter
        log_level="error",  # a warning for each invalid request would let anybody fill the terminal
        proxy_headers=False,  # middleware.py decides whom to believe
        backlog=MAX_ACCEPTED_AT_ONCE,
    )
    server = http_server.Server(config)
    server.run_in_thread()  # type: ignore[no-untyped-call]
    shown_name = "localhost" if server_name == "0.0.0.0" else server_name
    return server_name, server_port, f"http://{shown_name}:{server_port}/", server
