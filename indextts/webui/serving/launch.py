"""Start of the web server: Gradio's app behind guard.py, on a socket that is bound before anything else.

The program prints the generated user and password, if any, and then the line `The page is at URL`; who
connects from then on gets an answer. Ctrl-C stops it; jobs are separate processes and continue.
"""

import asyncio
import errno
import logging
import secrets
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NoReturn
from urllib.parse import urlsplit

import gradio as gr
import httpx
from fastapi import FastAPI
from gradio import networking, processing_utils, utils
from gradio.routes import App
from gradio.server_messages import CloseStreamMessage
from gradio.themes.utils.fonts import LocalFont
from gradio.utils import get_upload_folder
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from indextts.commands.app import WebUI
from indextts.errors import UserError
from indextts.system.addresses import is_loopback
from indextts.system.log_lines import VisibleStream
from indextts.webui.layout import DOCS
from indextts.webui.serving.connections import limited_server
from indextts.webui.serving.front_end import served_assets
from indextts.webui.serving.guard import Guard
from indextts.webui.serving.routes import METHODS, ask_tensorboard, receive_upload, send_export
from indextts.webui.serving.security import (
    WILDCARD_ADDRESSES,
    AcceptedHosts,
    accepted_hosts,
    in_url,
    login,
    trusted_proxies,
)

PAGE_FILES = Path(__file__).parent.parent / "page_files"  # fonts, style and scripts
OWN_SCRIPT = "page.js"  # all scripts of page_files as one

# The semibold fonts of Gradio lack all Latin letters but two.
SANS = (LocalFont("Source Sans Pro", weights=(400, 700)), "ui-sans-serif", "system-ui", "sans-serif")
MONO = (LocalFont("IBM Plex Mono", weights=(400, 700)), "ui-monospace", "Consolas", "monospace")

# Gradio keeps the state of all components for each page that was ever opened, about 1 MB; it forgets the one
# that has been quiet for longest, and a reload makes a new one.
MAX_SESSIONS = 64

# Gradio polls its queue every millisecond, which takes 3 % of a core.
QUEUE_PAUSE_S = 0.02

# of an answer; the kernel would hold megabytes for each visitor who does not read
MAX_UNSENT_BYTES = 128 * 1024
KEEP_ALIVE_S = 60  # until the kernel asks a silent visitor for a sign of life

IDLE_S = 1.0  # of a stream until it ends: an opening tab sends many calls shortly after one another
END_OF_STREAM = f"data: {CloseStreamMessage().model_dump_json()}\n\n"

AUTH_MESSAGE = (
    "User and password: in the terminal that started the page, or in its --auth-file. "
    "After ten wrong ones each answer takes longer; the right ones are accepted at once."
)


def launch(demo: gr.Blocks, command: WebUI) -> None:
    """Serve `demo` until Ctrl-C or SIGTERM.

    Args:
        demo: built with `analytics_enabled=False`; otherwise Gradio contacts its own server. Uploads go to
            the `received_folder` that it was built in.

    Raises:
        UserError: the address is in use, or --auth-file, --allowed-host or --trusted-proxy is invalid.
    """
    assert not demo.analytics_enabled
    assert Path(get_upload_folder()).is_relative_to(command.workspace.resolve())
    credentials, hosts, proxies = login(command), accepted_hosts(command), trusted_proxies(command)
    listener = listen(command.host, command.port)
    logging.getLogger("httpx").setLevel(logging.WARNING)  # it logs each request for the public link
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # else the tunnel process would remain
    sys.stdout, sys.stderr = VisibleStream(sys.stdout), VisibleStream(sys.stderr)  # Gradio prints tracebacks
    try:
        share_url = _public_link(command) if command.share else ""
        if share_url:
            hosts = replace(hosts, direct=hosts.direct | {urlsplit(share_url).hostname or ""})
        app = _app(demo, command, credentials)
        inside = (route.app for route in app.routes if isinstance(route, Mount))
        [gradio_app] = [each for each in inside if isinstance(each, App)]
        guard = Guard(without_idle_streams(app, gradio_app), gradio_app, hosts, proxies)
        _say_where(command, share_url, hosts, credentials)
        limited_server(guard).run([listener])
    except KeyboardInterrupt:  # uvicorn passes the signal on that ended it
        _say("The page is closed. Running jobs continue.")


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens on the address; a UserError if it cannot be used."""
    try:
        family, *_, address = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)[0]
        listener = socket.create_server(address[:2], family=family)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise UserError(
                f"--port {port}: another program listens there already, perhaps this page; stop it or choose "
                "another port"
            ) from None
        if error.errno == errno.EACCES:
            raise UserError(f"--port {port}: not permitted; choose a port above 1023") from None
        raise UserError(f"--host {host}: {error.strerror}; use an address of this machine") from None
    # the connections inherit these
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # else each answer waits 40 ms for its end
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, MAX_UNSENT_BYTES)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEP_ALIVE_S)
    return listener


def _app(demo: gr.Blocks, command: WebUI, credentials: tuple[str, str] | None) -> FastAPI:
    """Return the app with the page and the addresses that take the place of Gradio's."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    folder, max_file_bytes = Path(get_upload_folder()), command.max_upload_mb * 2**20
    upload = partial(receive_upload, folder=folder, max_file_bytes=max_file_bytes)
    board = partial(
        ask_tensorboard, workspace=command.workspace.resolve(), transport=httpx.AsyncHTTPTransport()
    )
    own = "\n".join(path.read_text(encoding="utf-8") for path in sorted(PAGE_FILES.glob("*.js")))
    kinds = {component["type"] for component in demo.config["components"]}
    for name, text in {OWN_SCRIPT: own, **served_assets(kinds)}.items():
        headers = {"Cache-Control": "no-cache"}  # the name stays when a replacement changes
        kind = "text/css" if name.endswith(".css") else "text/javascript"
        asset = partial(Response, text, media_type=kind, headers=headers)
        app.add_route(f"/assets/{name}", partial(_answer, asset))
    app.mount("/page_files", StaticFiles(directory=PAGE_FILES))
    app.add_route("/gradio_api/upload", upload, methods=["POST"])
    app.add_route("/tensorboard/{rest:path}", board, methods=list(METHODS))
    export = partial(send_export, workspace=command.workspace.resolve())
    app.add_route("/export/{project}.zip", export)
    for path in DOCS.glob("*.md"):
        page = partial(FileResponse, path, media_type="text/plain")  # browsers would download Markdown
        app.add_route(f"/docs/{path.name}", partial(_answer, page))
    demo.queue(api_open=False)
    demo._queue.sleep_when_free = QUEUE_PAUSE_S
    # Of what Blocks.launch() sets, a mounted page lacks these two; the rest is passed below, set when the
    # server starts (is_running), the same by default, or for notebooks and the server of Gradio.
    demo.state_session_capacity = MAX_SESSIONS
    demo.has_launched = True  # else Gradio copies any file of the machine that a request names
    processing_utils.async_ssrf_protected_get = _fetch_nothing  # a request may name a URL in place of a file
    # it imports pyplot at the first request, a second, for figures that no handler makes
    utils.MatplotlibBackendMananger = nullcontext  # type: ignore[assignment,misc]
    gr.mount_gradio_app(
        app,
        demo,
        path="/",
        auth=credentials,
        auth_message=AUTH_MESSAGE,
        allowed_paths=[str(command.workspace.resolve())],  # players and downloads, wherever the workspace is
        blocked_paths=[str(command.auth_file.resolve())] if command.auth_file else None,
        max_file_size=f"{command.max_upload_mb}mb",  # so that the browser does not even begin a larger one
        show_error=False,
        footer_links=[],
        run_history=False,
        enable_monitoring=False,
        mcp_server=False,
        ssr_mode=False,
        theme=gr.themes.Default(font=SANS, font_mono=MONO),
        css_paths=sorted(PAGE_FILES.glob("*.css")),
        head=f'<script src="assets/{OWN_SCRIPT}"></script>',
    )
    return app


async def _answer(response: Callable[[], Response], _request: Request) -> Response:
    return response()


async def _fetch_nothing(url: str) -> NoReturn:
    raise gr.Error(f"{url}: this page takes files, no addresses", print_exception=False)


def without_idle_streams(app: ASGIApp, gradio_app: App) -> ASGIApp:
    """Return the app, which ends a stream of results soon if its page waits for no result.

    Gradio's script opens a stream after each call if none is open, even if a stream that has ended brought
    the result before the call was answered. It would stay open until the next call.
    """

    def is_idle(session: str) -> bool:
        # an unknown session gets Gradio's answer
        return gradio_app.get_blocks()._queue.pending_event_ids_session.get(session) == set()

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope.get("path") == "/gradio_api/queue/data":
            session = Request(scope).query_params.get("session_hash", "")
            until = time.monotonic() + IDLE_S
            while (idle := is_idle(session)) and time.monotonic() < until:
                await asyncio.sleep(QUEUE_PAUSE_S)
            if idle:
                await Response(END_OF_STREAM, media_type="text/event-stream")(scope, receive, send)
                return
        await app(scope, receive, send)

    return answer


def _public_link(command: WebUI) -> str:
    """Return the URL of a new public link; empty if gradio.live was not reached."""
    _say("Asking gradio.live for a public link; this can take half a minute.")
    host = WILDCARD_ADDRESSES.get(command.host.strip("[]"), command.host)
    try:
        url = networking.setup_tunnel(host, command.port, secrets.token_urlsafe(32), None, None)
    except Exception as error:  # noqa: BLE001 - Gradio documents none
        _say(f"There is no public link: gradio.live was not reached ({error}). The page is served here only.")
        return ""
    return urlsplit(url)._replace(scheme="https").geturl()


def _say_where(
    command: WebUI, share_url: str, hosts: AcceptedHosts, credentials: tuple[str, str] | None
) -> None:
    loopback = WILDCARD_ADDRESSES.get(command.host.strip("[]"))
    shown_host = loopback or in_url(command.host)
    if loopback:
        names = " ".join(sorted(hosts.direct))
        _say(f"The page answers to the names {names}; add one with --allowed-host.")
    if share_url:
        _say(f"The public link is {share_url}")
    if credentials and not command.auth_file:
        _say(f"User: {credentials[0]}  Password: {credentials[1]}")
    if credentials and not is_loopback(command.host):
        logging.getLogger(__name__).warning("the page is served unencrypted: use it in a network you trust")
    _say(f"The page is at http://{shown_host}:{command.port}")


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - the result of the program
