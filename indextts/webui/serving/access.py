"""Access control: an allowlist of paths, login, request limits and login throttling.

Gradio exposes more than the page uses: a named API, a fetch of any URL, a recorder that starts ffmpeg, and
paths that stay open despite a login. This middleware answers 404 to every path that is not listed below, and
requires the login for all paths except the login itself and the files of the front end.

    PUBLIC       the login, the front end's files, requests of Gradio's own launch
    SIGNED_IN    paths that the page's script uses

Login attempts are limited by a token bucket for each client and one for all clients. A client with an empty
bucket does not use up the shared one. The state is in memory and bounded.

Behind a proxy that does not forward addresses, all visitors are one client. An attacker there blocks other
logins during the attack and for a few seconds after it; signed-in users are not affected.
"""

import inspect
import json
import logging
import re
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI, Request
from fastapi.routing import APIRoute
from gradio.block_function import BlockFunction
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

logger = logging.getLogger(__name__)

PUBLIC = re.compile(
    r"/|/login/?|/logout|/theme\.css|/favicon\.ico|/manifest\.json|/robots\.txt"
    r"|/(?:assets|static|svelte|page_files)/.+"
    r"|/gradio_api/(?:app_id|startup-events|theme\.css|login_check)/?"
)
SIGNED_IN = re.compile(
    r"/config/?"
    r"|/gradio_api/(?:info|user|queue/join|queue/data|queue/status|upload|upload_progress|cancel|reset)/?"
    r"|/gradio_api/run/\w+"
    r"|/gradio_api/heartbeat/[\w-]+|/gradio_api/file=/(?!/).+|/tensorboard/.*",  # a file, never an address
    re.DOTALL,
)
LOGIN = re.compile(r"/login/?")
CALL = re.compile(r"/gradio_api/(?:queue/join/?|run/\w+)")
DIRECT_CALL = re.compile(r"/gradio_api/run/\w+")
SESSION = re.compile(r"\w{1,64}", re.ASCII)
UPLOAD = re.compile(r"/gradio_api/upload/?")  # Gradio counts the bytes of each file

MAX_LOGIN_BYTES = 4 * 1024
MAX_NAME_BYTES = 255
MAX_ROWS = 2**31
MAX_REQUEST_BYTES = 8 * 1024 * 1024
MAX_VALUES = 20_000  # in a call: 2 million empty lists have 6 MB, and Gradio visits them for seconds
MAX_DEPTH = 50
REMOTE_FILE = re.compile(r"\s*[a-z][a-z0-9+.-]*:", re.IGNORECASE)

NOT_SIGNED_IN = "Not authenticated"
WAIT = "Too many tries; wait {seconds} s"
TOO_LARGE = "This request is too large."
NO_REQUEST = "This is no request of the page."


class AccessControl:
    """Middleware that passes a request on, or answers 404, 401, 413 or 429.

    Args:
        needs_login: the page requires a password.
    """

    def __init__(self, app: ASGIApp, *, needs_login: bool) -> None:
        self.app = app
        self.needs_login = needs_login
        self.throttle = LoginThrottle()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            refusal = await self._refusal(scope)
            if refusal is None and LOGIN.fullmatch(scope["path"]):
                await self._sign_in(scope, receive, send)
                return
            if refusal is None and not UPLOAD.fullmatch(scope["path"]):
                body = await read_body(receive, MAX_REQUEST_BYTES)
                refusal = refused_body(scope, body)
                receive = _replayed(body or b"", receive)
            if refusal is not None:
                await refusal(scope, receive, send)
                return
            if DIRECT_CALL.fullmatch(scope["path"]):
                send = _without_500(send)
        elif scope["type"] == "websocket":  # the page uses no websocket
            await PlainTextResponse("", status_code=404)(scope, receive, send)
            return
        await self.app(scope, receive, send)

    async def _refusal(self, scope: Scope) -> Response | None:
        path = scope["path"]
        if any(len(part.encode(errors="replace")) > MAX_NAME_BYTES for part in path.split("/")):
            return PlainTextResponse(
                "Not Found", status_code=404
            )  # longer than any file name; Gradio would fail
        if PUBLIC.fullmatch(path):
            return None
        if self.needs_login and not await signed_in_user(scope):
            return JSONResponse({"detail": {"error": NOT_SIGNED_IN}}, status_code=401)
        return None if SIGNED_IN.fullmatch(path) else PlainTextResponse("Not Found", status_code=404)

    async def _sign_in(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a login attempt on if the limit allows it, and record its result."""
        client = scope["client"][0] if scope["client"] else ""
        wait_s = self.throttle.wait_s(client) if scope["method"] == "POST" else 0.0
        if wait_s:
            seconds = int(wait_s) + 1
            detail = {"detail": WAIT.format(seconds=seconds)}
            answer = JSONResponse(detail, status_code=429, headers={"Retry-After": str(seconds)})
            await answer(scope, receive, send)
            return
        body = await read_body(receive, MAX_LOGIN_BYTES)
        if body is None:
            await PlainTextResponse(TOO_LARGE, status_code=413)(scope, receive, send)
            return

        async def send_noted(message: Message) -> None:
            if message["type"] == "http.response.start":
                if message["status"] == 200:
                    self.throttle.signed_in(client)
                else:
                    logger.warning("a sign-in failed, from %s", client)
                message["headers"] = [
                    (name, with_samesite_lax(name, text)) for name, text in message["headers"]
                ]
            await send(message)

        await self.app(scope, _replayed(body, receive), send_noted)


async def signed_in_user(scope: Scope) -> str | None:
    """Return the signed-in user of a request by Gradio's cookie check, or None."""
    user = current_user_check(scope["app"])(Request(scope))
    return await user if inspect.isawaitable(user) else user


def current_user_check(app: FastAPI) -> Callable[[Request], str | Awaitable[str | None] | None]:
    """Return Gradio's function that finds the current user."""
    [route] = [r for r in app.routes if isinstance(r, APIRoute) and r.path == "/logout"]
    [check] = [dependant.call for dependant in route.dependant.dependencies if dependant.name == "user"]
    assert check is not None
    return check


def with_samesite_lax(name: bytes, text: bytes) -> bytes:
    """Return a header value; cookies get SameSite=Lax."""
    return re.sub(rb"(?i)samesite=none", b"SameSite=lax", text) if name.lower() == b"set-cookie" else text


async def read_body(receive: Receive, max_bytes: int) -> bytes | None:
    """Return the body of a request; None if it exceeds `max_bytes` or the client disconnects."""
    chunks, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        chunks.append(message.get("body", b""))
        size += len(chunks[-1])
        if size > max_bytes:
            return None
        if not message.get("more_body"):
            return b"".join(chunks)


def refused_body(scope: Scope, body: bytes | None) -> Response | None:
    """Return the refusal of a body that is too large, invalid or names a remote file; None if valid."""
    if body is None:
        return PlainTextResponse(TOO_LARGE, status_code=413)
    if not (scope["method"] == "POST" and CALL.fullmatch(scope["path"])):
        return None
    if sum(map(body.count, (b"[", b"{", b","))) > MAX_VALUES:
        return PlainTextResponse(TOO_LARGE, status_code=413)
    try:
        asked = json.loads(body)
        # The answer must be UTF-8, and a lone surrogate from JSON is not.
        json.dumps(asked, ensure_ascii=False).encode()
        may_pass = is_call(asked, scope["app"].get_blocks().fns) and not names_remote_file(asked["data"])
    except (ValueError, RecursionError):
        may_pass = False
    return None if may_pass else PlainTextResponse(NO_REQUEST, status_code=400)


def is_call(asked: Any, handlers: Mapping[int, BlockFunction]) -> bool:
    """Return whether a request names an existing handler, with a value for each of its inputs."""
    if not isinstance(asked, dict) or type(asked.get("fn_index")) is not int:
        return False
    if any(asked.get(key) for key in ("batched", "event_id", "simple_format", "oauth_token")):
        return False  # Gradio's own handlers for features that the page does not use
    handler = handlers.get(asked["fn_index"])
    if handler is None or handler.fn is None:
        return False
    if handler.collects_event_data and not is_selection(asked.get("event_data")):
        return False  # only tables send a selection
    session = asked.get("session_hash")
    data = asked.get("data")
    return (
        isinstance(data, list)
        and len(data) == len(handler.inputs)
        and isinstance(session, str)
        and SESSION.fullmatch(session) is not None
    )


def is_selection(data: Any) -> bool:
    """Return whether event data match a click in a table: index, value and the row's values."""
    if not isinstance(data, dict) or "value" not in data:
        return False
    place, row = data.get("index"), data.get("row_value")
    cells = [cell for value in data.values() for cell in (value if isinstance(value, list) else [value])]
    return (
        isinstance(place, list)
        and all(type(number) is int and 0 <= number < MAX_ROWS for number in place)
        and isinstance(row, list)
        and len(row) > 0
        and not any(isinstance(cell, dict | list) for cell in cells)  # such as a file
    )


def names_remote_file(value: Any, depth: int = 1) -> bool:
    """Return whether a value holds a file that Gradio would fetch from elsewhere: {"path": "http://..."}.

    Raises:
        ValueError: the value is nested deeper than Gradio can walk.
    """
    if depth > MAX_DEPTH:
        raise ValueError(f"nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, dict):
        path = value.get("path")
        is_remote = isinstance(path, str) and REMOTE_FILE.match(path) is not None
        return is_remote or any(names_remote_file(item, depth + 1) for item in value.values())
    return isinstance(value, list) and any(names_remote_file(item, depth + 1) for item in value)


def _without_500(send: Send) -> Send:
    """Return a `send` that replaces the status 500 with which Gradio answers a wrong value."""

    async def send_as_refusal(message: Message) -> None:
        if message["type"] == "http.response.start" and message["status"] == 500:
            message["status"] = 422
        await send(message)

    return send_as_refusal


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that first returns `body`, which was already read."""
    is_given = False

    async def receive_again() -> Message:
        nonlocal is_given
        if is_given:
            return await receive()
        is_given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive_again


CLIENT_TRIES, CLIENT_REFILL_S = 10, 6.0
ALL_TRIES, ALL_REFILL_S = 60, 2.0
MAX_CLIENTS = 1024


@dataclass
class Bucket:
    """Token bucket of login attempts.

    Args:
        size: capacity.
        refill_s: seconds per new token.
        left, at: tokens that were left at a time.
    """

    size: int
    refill_s: float
    left: float
    at: float

    def fill(self, now: float) -> None:
        self.left = min(self.size, self.left + (now - self.at) / self.refill_s)
        self.at = now

    def wait_s(self) -> float:
        """Return the seconds until a token is available; 0 if there is one."""
        return max(0.0, 1 - self.left) * self.refill_s


class LoginThrottle:
    """Rate limit of login attempts."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.everybody = Bucket(ALL_TRIES, ALL_REFILL_S, ALL_TRIES, clock())
        self.clients: OrderedDict[str, Bucket] = OrderedDict()

    def wait_s(self, client: str) -> float:
        """Take a token for `client` and return 0, or return the seconds until the next one."""
        now = self.clock()
        own = self.clients.setdefault(client, Bucket(CLIENT_TRIES, CLIENT_REFILL_S, CLIENT_TRIES, now))
        self.clients.move_to_end(client)
        if len(self.clients) > MAX_CLIENTS:
            self.clients.popitem(last=False)
        for bucket in (own, self.everybody):
            bucket.fill(now)
            if bucket.left < 1:
                return bucket.wait_s()
        own.left -= 1
        self.everybody.left -= 1
        return 0.0

    def signed_in(self, client: str) -> None:
        """Return the token of a client that signed in."""
        for bucket in (self.clients.get(client), self.everybody):
            if bucket is not None:
                bucket.left = min(bucket.size, bucket.left + 1)
