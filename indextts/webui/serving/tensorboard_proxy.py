"""Proxy of a project's TensorBoard: /tensorboard/PROJECT/...

It requires the login (access.py). A request cannot choose the target: the project must be in the workspace,
and the port is the one that its running TensorBoard recorded. The proxy passes no cookies and only the
headers listed below.
"""

import re
from pathlib import Path

import httpx
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from indextts.projects.project import Project, project_names
from indextts.projects.tensorboard import live_port

ADDRESS = re.compile(r"/tensorboard/([^/]+)/.*", re.DOTALL)
METHODS = ("GET", "HEAD", "POST")
PASSED_ON = ("accept", "accept-encoding", "content-type", "if-none-match", "if-modified-since")
PASSED_BACK = (
    "content-type",
    "content-encoding",
    "content-length",
    "cache-control",
    "etag",
    "expires",
    "last-modified",
    "vary",
)
TIMEOUT_S = 30.0

NOT_RUNNING = "TensorBoard does not run in this project; start it in the tab Monitor."
NO_ANSWER = "TensorBoard does not answer; stop it and start it again."


class TensorboardProxy:
    """Middleware that forwards TensorBoard requests, and passes the rest to the page."""

    def __init__(self, app: ASGIApp, workspace: Path) -> None:
        self.app = app
        self.workspace = workspace.resolve()
        # A transport instead of a client: it stores no cookies, follows no redirects and uses no proxy.
        self.transport = httpx.AsyncHTTPTransport()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith("/tensorboard/"):
            response = await self._answer(Request(scope, receive))
            await response(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        if request.method not in METHODS:
            return PlainTextResponse("Method Not Allowed", status_code=405)
        port = tensorboard_port(self.workspace, request.url.path)
        if port is None:
            return PlainTextResponse(NOT_RUNNING, status_code=404)
        asked = httpx.Request(
            request.method,
            httpx.URL(scheme="http", host="127.0.0.1", port=port, raw_path=_target(request)),
            headers=[(name, request.headers[name]) for name in PASSED_ON if name in request.headers],
            content=await request.body(),
            extensions={"timeout": httpx.Timeout(TIMEOUT_S).as_dict()},
        )
        try:
            answer = await self.transport.handle_async_request(asked)
        except httpx.HTTPError:
            return PlainTextResponse(NO_ANSWER, status_code=502)
        return StreamingResponse(
            answer.aiter_raw(),
            status_code=answer.status_code,
            headers={name: answer.headers[name] for name in PASSED_BACK if name in answer.headers},
            background=BackgroundTask(answer.aclose),
        )


def tensorboard_port(workspace: Path, path: str) -> int | None:
    """Return the TensorBoard port for a path of the page; None if none runs."""
    found = ADDRESS.fullmatch(path)
    if not found or found[1] not in project_names(workspace):
        return None
    return live_port(Project(workspace / found[1]).tensorboard_address)


def _target(request: Request) -> bytes:
    """Return the raw path and query."""
    query: bytes = request.scope["query_string"]
    raw_path: bytes = request.scope["raw_path"]
    return raw_path + b"?" + query if query else raw_path
