"""Proxy of a project's TensorBoard: /tensorboard/PROJECT/...

It requires the sign-in (guard.py). A request cannot choose the target: the project must be in the workspace,
and the port is the one that its running TensorBoard recorded. The proxy passes no cookies and only the
headers listed below.
"""

import re
from pathlib import Path

import httpx
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse

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


async def ask_tensorboard(request: Request, workspace: Path, transport: httpx.AsyncHTTPTransport) -> Response:
    """Return the answer of a project's TensorBoard.

    Args:
        transport: not a client: it stores no cookies, follows no redirects and uses no proxy.
    """
    port = tensorboard_port(workspace, request.url.path)
    if port is None:
        return PlainTextResponse(NOT_RUNNING, status_code=404)
    query: bytes = request.scope["query_string"]
    target = request.scope["raw_path"] + (b"?" + query if query else b"")
    asked = httpx.Request(
        request.method,
        httpx.URL(scheme="http", host="127.0.0.1", port=port, raw_path=target),
        headers=[(name, request.headers[name]) for name in PASSED_ON if name in request.headers],
        content=await request.body(),
        extensions={"timeout": httpx.Timeout(TIMEOUT_S).as_dict()},
    )
    try:
        answer = await transport.handle_async_request(asked)
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
