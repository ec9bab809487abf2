"""Limits of connections: how many visitors without a sign-in may wait, and how long.

uvicorn waits for ever for the end of a request's head, and answers 503 to everybody once `limit_concurrency`
connections are open. So anybody who reaches the port could fill the file descriptors of the machine that
trains, or keep the owner out. Behind a tunnel all visitors have one address, so a visitor is limited by
sign-in and not by address:

    REQUEST_S        until a request has arrived, with its body
    ANSWER_S         until its answer is taken
    MAX_ANONYMOUS    connections; one more ends the oldest, so that the newest always gets an answer

A connection counts as signed in from a request with a valid session until its next request.
"""

import logging
import time
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

SIGNED_IN = "is_signed_in"  # in the state of a request's scope
REQUEST_S = 10.0
ANSWER_S = 120.0
MAX_ANONYMOUS = 400

State = tuple[RequestResponseCycle | None, object]


def limited_server(app: ASGIApp) -> uvicorn.Server:
    """Return a server of the app with these limits."""
    connections = Connections()
    config = uvicorn.Config(
        app,
        http=connections.open,  # type: ignore[arg-type]  # called like a class
        callback_notify=connections.end_slow,
        timeout_notify=0,  # every second
        ws="none",
        loop="asyncio",  # other packages bring uvloop, with which the limits are not tested
        backlog=50,  # connections that are accepted at once, before one more than MAX_ANONYMOUS is noticed
        log_config=None,  # so that its lines go through our formatter
        log_level="error",  # a warning for each invalid request would let anybody fill the terminal
        proxy_headers=False,  # guard.py decides whom to believe
        server_header=False,
        timeout_graceful_shutdown=1,  # an open page always has a request open
    )
    server = uvicorn.Server(config)
    # it would show a traceback for each open page that it ends
    logging.getLogger("uvicorn.error").addFilter(lambda _: not server.should_exit)
    return server


class Connections:
    """The open connections, and since when each is in its state: the request, and what has arrived of it."""

    def __init__(self) -> None:
        self.states: dict[H11Protocol, tuple[State | None, float]] = {}

    def open(self, **parts: Any) -> H11Protocol:
        """Return a new connection; uvicorn calls this for each visitor."""
        self._end_oldest()
        connection = H11Protocol(**parts)
        self.states[connection] = None, time.monotonic()
        return connection

    async def end_slow(self) -> None:
        """End the connections whose time is over; uvicorn calls this every second."""
        now = time.monotonic()
        self._end_oldest()
        for connection, (before, since) in list(self.states.items()):
            state = connection.cycle, connection.conn.their_state
            if connection.transport and connection not in connection.connections:
                del self.states[connection]
            elif state != before:
                self.states[connection] = state, since if before is None else now
            elif not is_signed_in(connection):
                is_arriving = state[1] in (h11.IDLE, h11.SEND_BODY)
                if now - since > (REQUEST_S if is_arriving else ANSWER_S):
                    self._end(connection)

    def _end_oldest(self) -> None:
        """End the oldest connections of visitors without a sign-in, until one more may come."""
        # those without a transport have just come; uvicorn accepts several at once
        anonymous = [each for each in self.states if each.transport and not is_signed_in(each)]
        anonymous.sort(key=lambda each: self.states[each][1], reverse=True)
        for connection in anonymous[MAX_ANONYMOUS - 1 :]:
            self._end(connection)

    def _end(self, connection: H11Protocol) -> None:
        """Close a connection at once, whatever has not been sent."""
        del self.states[connection]
        connection.transport.abort()


def is_signed_in(connection: H11Protocol) -> bool:
    """Return whether the latest request of a connection has a valid session."""
    return connection.scope is not None and bool(connection.scope["state"].get(SIGNED_IN))
