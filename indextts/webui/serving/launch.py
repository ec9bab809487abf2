"""Start of the web server behind middleware.py and access.py.

Once the page answers, the program prints the generated user and password, if any, and then the line
`The page is at URL`. Ctrl-C stops it; jobs are separate processes and continue.
"""

import errno
import logging
import signal
import socket
import sys
import threading
from pathlib import Path

import gradio as gr
import httpx
from gradio import http_server
from gradio.routes import App, ORJSONResponse
from gradio.themes.utils.fonts import LocalFont
from gradio.utils import get_upload_folder
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from indextts.commands.app import WebUI
from indextts.errors import UserError
from indextts.system.log_lines import VisibleStream
from indextts.webui.serving.access import AccessControl, current_user_check
from indextts.webui.serving.connections import LimitedHTTP, start_server
from indextts.webui.serving.front_end import CompressedFrontEnd
from indextts.webui.serving.middleware import AcceptedHosts, ForwardedHeaders, OwnSite, SecureHeaders
from indextts.webui.serving.security import (
    WILDCARD_ADDRESSES,
    accepted_hosts,
    in_url,
    is_loopback,
    login,
    trusted_proxies,
)
from indextts.webui.serving.sign_in import PasswordCheck
from indextts.webui.serving.tensorboard_proxy import TensorboardProxy
from indextts.webui.serving.uploads import Uploads

PAGE_FILES = Path(__file__).parent.parent / "page_files"  # fonts and style

# The semibold fonts of Gradio lack all Latin letters but two.
SANS = (LocalFont("Source Sans Pro", weights=(400, 700)), "ui-sans-serif", "system-ui", "sans-serif")
MONO = (LocalFont("IBM Plex Mono", weights=(400, 700)), "ui-monospace", "Consolas", "monospace")

# Gradio keeps the state of all components for each page that was ever opened, about 1 MB; it forgets the one
# that has been quiet for longest, and a reload makes a new one.
MAX_SESSIONS = 64

# Gradio polls its queue every millisecond, which takes 3 % of a core.
QUEUE_PAUSE_S = 0.02

AUTH_MESSAGE = (
    "User and password: in the terminal that started the page, or in its --auth-file. "
    "After ten wrong ones each answer takes longer; the right ones are accepted at once."
)


class GuardedApp(App):
    """Gradio's app with all checks in front, also of its answers to preflight requests."""

    def __init__(self, command: WebUI, hosts: AcceptedHosts, *, needs_login: bool) -> None:
        super().__init__(
            routes=[Mount("/page_files", StaticFiles(directory=PAGE_FILES))],
            default_response_class=ORJSONResponse,
            docs_url=None,
            redoc_url=None,
            openapi_url=None,
        )
        self.command = command
        self.hosts = hosts
        self.needs_login = needs_login

    def build_middleware_stack(self) -> ASGIApp:
        current_user_check(self)  # fails here instead of at the first request if Gradio moves it
        served = CompressedFrontEnd(super().build_middleware_stack())
        proxied = TensorboardProxy(served, self.command.workspace)
        uploads = Uploads(proxied, Path(get_upload_folder()), self.command.max_upload_mb * 2**20)
        checked = OwnSite(AccessControl(uploads, needs_login=self.needs_login), self.hosts)
        return SecureHeaders(ForwardedHeaders(checked, trusted_proxies(self.command)))


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
    credentials = login(command)
    hosts = accepted_hosts(command)
    trusted_proxies(command)
    check_address(command.host, command.port)
    logging.getLogger("httpx").setLevel(logging.WARNING)  # Gradio checks itself for readiness
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # else the tunnel process would remain
    if command.share:
        _say("Asking gradio.live for a public link; this can take half a minute.")
    sys.stdout, sys.stderr = VisibleStream(sys.stdout), VisibleStream(sys.stderr)  # Gradio prints tracebacks
    try:
        _start(demo, command, hosts, credentials)
        if demo.share_url:
            hosts.add_shared(demo.share_url)
            demo.share = False  # otherwise Gradio's page would load its script from an external host
        _say_where(demo, command, hosts, credentials)
        threading.Event().wait()
    except httpx.TransportError as error:
        raise UserError(
            f"the page cannot reach itself ({error}); with HTTP_PROXY set, set NO_PROXY=127.0.0.1,localhost"
        ) from None
    except KeyboardInterrupt:
        _say("The page is closed. Running jobs continue.")
    finally:
        demo.close(verbose=False)


def check_address(host: str, port: int) -> None:
    """Raise a UserError unless `host` and `port` are free."""
    try:
        address = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)[0]
        # Gradio treats a port as in use if it is in use on 127.0.0.1, whatever the host.
        for family, where in ((address[0], address[4]), (socket.AF_INET, ("127.0.0.1", port))):
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(where)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise UserError(
                f"--port {port}: another program listens there already, perhaps this page; stop it or choose "
                "another port"
            ) from None
        if error.errno == errno.EACCES:
            raise UserError(f"--port {port}: not permitted; choose a port above 1023") from None
        raise UserError(f"--host {host}: {error.strerror}; use an address of this machine") from None


def _start(
    demo: gr.Blocks, command: WebUI, hosts: AcceptedHosts, credentials: tuple[str, str] | None
) -> None:
    """Start the server in a thread; it answers when this function returns."""
    demo.queue(api_open=False)
    demo._queue.sleep_when_free = QUEUE_PAUSE_S
    http_server.start_server = start_server  # type: ignore[assignment]  # called with keywords
    demo.launch(
        server_name=in_url(command.host),
        server_port=command.port,
        share=command.share,  # an explicit False, because None means True in a notebook
        auth=PasswordCheck(*credentials).verify if credentials else None,  # type: ignore[arg-type]  # is awaited
        auth_message=AUTH_MESSAGE,
        allowed_paths=[str(command.workspace.resolve())],  # players and downloads, wherever the workspace is
        blocked_paths=[str(command.auth_file.resolve())] if command.auth_file else None,
        _app=GuardedApp(command, hosts, needs_login=credentials is not None),
        max_file_size=f"{command.max_upload_mb}mb",
        state_session_capacity=MAX_SESSIONS,
        show_error=False,
        footer_links=[],
        run_history=False,
        enable_monitoring=False,
        mcp_server=False,
        ssr_mode=False,
        num_workers=0,  # more processes would serve files on other ports without the checks
        inbrowser=False,
        inline=False,
        quiet=True,
        prevent_thread_lock=True,
        theme=gr.themes.Default(font=SANS, font_mono=MONO),
        css_paths=sorted(PAGE_FILES.glob("*.css")),
        head="".join(
            f'<script src="page_files/{path.name}"></script>' for path in sorted(PAGE_FILES.glob("*.js"))
        ),
    )
    assert demo.server.config.http is LimitedHTTP  # fails here if Gradio starts its server in another way


def _say_where(
    demo: gr.Blocks, command: WebUI, hosts: AcceptedHosts, credentials: tuple[str, str] | None
) -> None:
    """Print the URL, and the password if it was generated."""
    loopback = WILDCARD_ADDRESSES.get(command.host.strip("[]"))
    shown_host = loopback or in_url(command.host)
    if loopback:
        names = " ".join(sorted(hosts.direct))
        _say(f"The page answers to the names {names}; add one with --allowed-host.")
    if demo.share_url:
        _say(f"The public link is {demo.share_url}")
    elif command.share:
        _say("There is no public link: gradio.live was not reached. The page is served here only.")
    if credentials and not command.auth_file:
        _say(f"User: {credentials[0]}  Password: {credentials[1]}")
    if credentials and not is_loopback(command.host):
        logging.getLogger(__name__).warning("the page is served unencrypted: use it in a network you trust")
    _say(f"The page is at http://{shown_host}:{command.port}")


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - the result of the program
