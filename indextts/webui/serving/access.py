"""THE DOOR: which addresses the page has, which of them need the login, and how much a request may carry.

Gradio brings more than the page uses: an API by name, a fetch of any URL, a recorder that starts ffmpeg, and,
with a login, some addresses that stay open. Here it is the other way round: what is not named below is 404,
and all but the login itself and the files of the front end asks for the login, the page's own additions too.

    PUBLIC       the login, the front end's files, what the launch asks for
    SIGNED_IN    what the page's script uses

How often a password may be tried.

Each client has a bucket of tries that fills again with time, and all clients together have one more. A client
whose own bucket is empty takes nothing from the common one. What is known is in memory and bounded.

Behind a proxy that does not say who asks, all visitors are one client. Somebody who tries passwords there
keeps others from signing in for as long as he goes on and a few seconds longer, never for good; who is signed
in notices nothing.
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
    r"|/gradio_api/heartbeat/[\w-]+|/gradio_api/file=.+|/tensorboard/.*",
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
REMOTE_FILE = re.compile(r"\s*[a-z][a-z0-9+.-]*:", re.IGNORECASE)

NOT_SIGNED_IN = "Not authenticated"
WAIT = "Too many tries; wait {seconds} s"
TOO_LARGE = "This request is too large."
NO_REQUEST = "This is no request of the page."


class AccessControl:
    """Answer 404, 401, 413 or 429, or let a request in.

    Args:
        needs_login: whether the page asks for a password at all.
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
        elif scope["type"] == "websocket":  # the page has none
            await PlainTextResponse("", status_code=404)(scope, receive, send)
            return
        await self.app(scope, receive, send)

    async def _refusal(self, scope: Scope) -> Response | None:
        path = scope["path"]
        if any(len(part.encode(errors="replace")) > MAX_NAME_BYTES for part in path.split("/")):
            return PlainTextResponse("Not Found", status_code=404)  # no file system has it; Gradio would fail
        if PUBLIC.fullmatch(path):
            return None
        if self.needs_login and not await signed_in_user(scope):
            return JSONResponse({"detail": {"error": NOT_SIGNED_IN}}, status_code=401)
        return None if SIGNED_IN.fullmatch(path) else PlainTextResponse("Not Found", status_code=404)

    async def _sign_in(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a try on, if there is one left, and learn from the answer how it ended."""
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
                message["headers"] = [(name, lax(name, text)) for name, text in message["headers"]]
            await send(message)

        await self.app(scope, _replayed(body, receive), send_noted)


async def signed_in_user(scope: Scope) -> str | None:
    """Return who sent a request, by Gradio's own check of its cookie; None for nobody."""
    user = current_user_check(scope["app"])(Request(scope))
    return await user if inspect.isawaitable(user) else user


def current_user_check(app: FastAPI) -> Callable[[Request], str | Awaitable[str | None] | None]:
    """Return the function by which Gradio's own routes know their user."""
    [route] = [r for r in app.routes if isinstance(r, APIRoute) and r.path == "/logout"]
    [check] = [dependant.call for dependant in route.dependant.dependencies if dependant.name == "user"]
    assert check is not None
    return check


def lax(name: bytes, text: bytes) -> bytes:
    """Return a header's text; a cookie is not sent along from other sites."""
    return re.sub(rb"(?i)samesite=none", b"SameSite=lax", text) if name.lower() == b"set-cookie" else text


async def read_body(receive: Receive, max_bytes: int) -> bytes | None:
    """Return the body of a request; None if it is larger than `max_bytes`, or its sender has gone."""
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
    """Return the answer to what carries too much, or asks for a file of elsewhere; None if it may pass."""
    if body is None:
        return PlainTextResponse(TOO_LARGE, status_code=413)
    if not (scope["method"] == "POST" and CALL.fullmatch(scope["path"])):
        return None
    try:
        asked = json.loads(body)
        # What the page answers must be UTF-8, and half a character from JSON is none.
        json.dumps(asked, ensure_ascii=False).encode()
        may_pass = is_call(asked, scope["app"].get_blocks().fns) and not names_remote_file(asked["data"])
    except (ValueError, RecursionError):
        may_pass = False
    return None if may_pass else PlainTextResponse(NO_REQUEST, status_code=400)


def is_call(asked: Any, handlers: Mapping[int, BlockFunction]) -> bool:
    """Return whether a request names a handler that runs here, with a value for each of its inputs."""
    if not isinstance(asked, dict) or type(asked.get("fn_index")) is not int:
        return False
    if any(asked.get(key) for key in ("batched", "event_id", "simple_format", "oauth_token")):
        return False  # Gradio's own, for what the page has not
    handler = handlers.get(asked["fn_index"])
    if handler is None or handler.fn is None:
        return False
    if handler.collects_event_data and not is_selection(asked.get("event_data")):
        return False  # tables alone tell what was chosen in them
    session = asked.get("session_hash")
    data = asked.get("data")
    return (
        isinstance(data, list)
        and len(data) == len(handler.inputs)
        and isinstance(session, str)
        and SESSION.fullmatch(session) is not None
    )


def is_selection(data: Any) -> bool:
    """Return whether event data is what a click into a table sends: place, value and the row's values."""
    if not isinstance(data, dict) or "value" not in data:
        return False
    place, row = data.get("index"), data.get("row_value")
    cells = [cell for value in data.values() for cell in (value if isinstance(value, list) else [value])]
    return (
        isinstance(place, list)
        and all(type(number) is int and 0 <= number < MAX_ROWS for number in place)
        and isinstance(row, list)
        and len(row) > 0
        and not any(isinstance(cell, dict | list) for cell in cells)  # a file, for one
    )


def names_remote_file(value: Any) -> bool:
    """Return whether a value holds a file that Gradio would fetch from elsewhere: {"path": "http://..."}."""
    if isinstance(value, dict):
        path = value.get("path")
        is_remote = isinstance(path, str) and REMOTE_FILE.match(path) is not None
        return is_remote or any(names_remote_file(item) for item in value.values())
    return isinstance(value, list) and any(names_remote_file(item) for item in value)


def _without_500(send: Send) -> Send:
    """Return a `send` for Gradio's direct calls, whose answer to a wrong value is 500 with its sentence."""

    async def send_as_refusal(message: Message) -> None:
        if message["type"] == "http.response.start" and message["status"] == 500:
            message["status"] = 422
        await send(message)

    return send_as_refusal


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that gives `body`, which was read before, and then what comes after it."""
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
    """Tries that are left at a time.

    Args:
        size: tries that it holds when full.
        refill_s: seconds until one more is there.
        left, at: what was left at which time.
    """

    size: int
    refill_s: float
    left: float
    at: float

    def fill(self, now: float) -> None:
        self.left = min(self.size, self.left + (now - self.at) / self.refill_s)
        self.at = now

    def wait_s(self) -> float:
        """Return the seconds until a whole try is there; 0 if one is."""
        return max(0.0, 1 - self.left) * self.refill_s


class LoginThrottle:
    """Decides whether a client may try a password now."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.everybody = Bucket(ALL_TRIES, ALL_REFILL_S, ALL_TRIES, clock())
        self.clients: OrderedDict[str, Bucket] = OrderedDict()

    def wait_s(self, client: str) -> float:
        """Take a try for `client` and return 0, or return the seconds until there is one."""
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
        """Give back the try of a client that knew the password."""
        for bucket in (self.clients.get(client), self.everybody):
            if bucket is not None:
                bucket.left = min(bucket.size, bucket.left + 1)
