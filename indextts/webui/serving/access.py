"""Access control: an allowlist of paths, login, and limits of requests.

Gradio exposes more than the page uses: a named API, a fetch of any URL, a recorder that starts ffmpeg, and
paths that stay open despite a login. This middleware answers 404 to every path that is not listed below, and
requires the login for all paths except the login itself and the files of the front end.

    PUBLIC       the login, the front end's files, requests of Gradio's own launch
    SIGNED_IN    paths that the page's script uses

Without the login, a request has no body, except the few kB of the login itself. With it, the bodies that
are read at a time share a budget; connections.py ends those that stand still, and an upload has no limit of
total time. sign_in.py slows down who tries passwords.
"""

import inspect
import json
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.routing import APIRoute
from gradio.block_function import BlockFunction
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from indextts.webui.serving.connections import admit
from indextts.webui.serving.sign_in import FailedSignIns

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
MAX_BYTES_AT_A_TIME = 6 * MAX_REQUEST_BYTES
SMALL_REQUEST_BYTES = 64 * 1024  # uvicorn buffers as much before the page reads it
REMOTE_FILE = re.compile(r"\s*[a-z][a-z0-9+.-]*:", re.IGNORECASE)

NOT_SIGNED_IN = "Not authenticated"
TOO_MUCH = "The page receives too much at a time; try again in a minute."
TOO_LARGE = "This request is too large."
NO_REQUEST = "This is no request of the page."


class AccessControl:
    """Middleware that passes a request on, or answers 404, 401, 413 or 503.

    Args:
        needs_login: the page requires a password.
    """

    def __init__(self, app: ASGIApp, *, needs_login: bool) -> None:
        self.app = app
        self.needs_login = needs_login
        self.failed = FailedSignIns()
        self.budget = Budget()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":  # the page uses no websocket
            await PlainTextResponse("", status_code=404)(scope, receive, send)
        elif scope["type"] == "http":
            refusal = await self._refusal(scope)
            if refusal is not None:
                await refusal(scope, receive, send)
            elif LOGIN.fullmatch(scope["path"]):
                await self._sign_in(scope, receive, send)
            elif UPLOAD.fullmatch(scope["path"]):
                await self.app(scope, receive, send)
            else:
                await self._answer(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    async def _refusal(self, scope: Scope) -> Response | None:
        path = scope["path"]
        if any(len(part.encode(errors="replace")) > MAX_NAME_BYTES for part in path.split("/")):
            return PlainTextResponse(
                "Not Found", status_code=404
            )  # longer than any file name; Gradio would fail
        is_signed_in = not self.needs_login or bool(await signed_in_user(scope))
        if is_signed_in:
            admit(scope)
        if PUBLIC.fullmatch(path):
            has_body = size_of_body(scope) != 0 and not LOGIN.fullmatch(path)
            return PlainTextResponse(TOO_LARGE, status_code=413) if has_body else None
        if not is_signed_in:
            return JSONResponse({"detail": {"error": NOT_SIGNED_IN}}, status_code=401)
        return None if SIGNED_IN.fullmatch(path) else PlainTextResponse("Not Found", status_code=404)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Read the body of a request, pass it on if it is valid, and return its bytes to the budget."""
        refusal: Response | None
        with self.budget.share() as share:
            try:
                body = await read_body(scope, receive, MAX_REQUEST_BYTES, share)
                refusal = refused_body(scope, body)
            except BudgetError:
                refusal = PlainTextResponse(TOO_MUCH, status_code=503, headers={"Retry-After": "60"})
            if refusal is not None:
                await refusal(scope, receive, send)
                return
            if DIRECT_CALL.fullmatch(scope["path"]):
                send = _without_500(send)
            await self.app(scope, _replayed(body or b"", receive), send)

    async def _sign_in(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a sign-in on, and note if it failed."""
        body = await read_body(scope, receive, MAX_LOGIN_BYTES)
        if body is None:
            await PlainTextResponse(TOO_LARGE, status_code=413)(scope, receive, send)
            return

        async def send_noted(message: Message) -> None:
            if message["type"] == "http.response.start":
                if scope["method"] == "POST" and message["status"] != 200:
                    self.failed.note(scope["client"][0] if scope["client"] else "")
                message["headers"] = [
                    (name, with_samesite_lax(name, text)) for name, text in message["headers"]
                ]
            await send(message)

        await self.app(scope, _replayed(body, receive), send_noted)


class BudgetError(Exception):
    """The bodies that are being read are too large together."""


class Budget:
    """Bytes of all the request bodies that are in memory."""

    def __init__(self) -> None:
        self.taken = 0

    @contextmanager
    def share(self) -> Iterator[Callable[[int], None]]:
        """Yield a function to call with the number of bytes of each piece; all are given back at the end."""
        size = 0

        def take(num_bytes: int) -> None:
            nonlocal size
            if size + num_bytes > SMALL_REQUEST_BYTES and self.taken + num_bytes > MAX_BYTES_AT_A_TIME:
                raise BudgetError
            size += num_bytes
            self.taken += num_bytes

        try:
            yield take
        finally:
            self.taken -= size


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


def size_of_body(scope: Scope) -> int | None:
    """Return the size of a request's body in bytes as its head says; None if it does not."""
    headers = dict(scope["headers"])
    if b"transfer-encoding" in headers:
        return None
    return int(headers.get(b"content-length", b"0"))  # h11 refuses what is no number


async def read_body(
    scope: Scope, receive: Receive, max_bytes: int, take: Callable[[int], None] = lambda num_bytes: None
) -> bytes | None:
    """Return the body of a request; None if it exceeds `max_bytes` or the client disconnects.

    Args:
        take: called with the number of bytes of each piece; what it raises ends the reading.
    """
    if (size_of_body(scope) or 0) > max_bytes:
        return None
    chunks, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        chunks.append(message.get("body", b""))
        take(len(chunks[-1]))
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
