"""The middleware in front of Gradio: who may ask, from where, for what, and how much.

A request passes these checks in this order, before a byte of its body is read:

    headers    forwarding headers count only from a --trusted-proxy; all other X- headers are dropped
    name       400 for an unknown host name
    site       403 for a request that another site makes in the visitor's name
    session    401 without a sign-in, except for the sign-in page and the files of the front end
    path       404 for what the page does not use: Gradio exposes more, such as an API by name
    size       413; without a sign-in there is no body, except the few kB of the sign-in itself

Anybody can send X-Forwarded-For, and behind a tunnel everybody's address is 127.0.0.1. So these headers
count only if the peer is a declared proxy, and then X-Forwarded-Host only for hosts named with
--allowed-host: a script may send it once a preflight allowed it, and a page on another port of localhost
could claim a loopback name. No script can set Host, Origin or Sec-Fetch-Site.

Who is signed in is trusted with the workspace. connections.py limits how long visitors without a sign-in may
take.
"""

import asyncio
import ipaddress
import logging
import re
import time
from collections.abc import Sequence
from urllib.parse import urlsplit

from gradio.routes import App
from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from indextts.webui.language import language_of, use_language
from indextts.webui.serving.connections import SIGNED_IN
from indextts.webui.serving.security import AcceptedHosts, Network

logger = logging.getLogger(__name__)

LOGIN = re.compile(r"/login/?")
PUBLIC = re.compile(
    r"/|/login/?|/logout|/theme\.css|/favicon\.ico|/manifest\.json|/robots\.txt"
    r"|/(?:assets|static|svelte|page_files)/[\w@./-]{1,200}"  # Gradio fails at a name that is no file name
    r"|/gradio_api/(?:app_id|theme\.css|login_check)/?",
    re.ASCII,
)
OF_THE_PAGE = re.compile(
    r"/config/?"
    r"|/gradio_api/(?:info|user|queue/join|queue/data|queue/status|upload|upload_progress|cancel|reset)/?"
    r"|/gradio_api/run/\w+"
    r"|/docs/[\w-]+\.md|/gradio_api/heartbeat/[\w-]+"
    r"|/gradio_api/file=/(?!/).+|/tensorboard/.*|/export/[^/]+\.zip",  # a file, never an address
    re.DOTALL,
)
ZIPPED = re.compile(r"/(?:$|assets/|page_files/)")
UPLOAD = re.compile(r"/gradio_api/upload/?")  # routes.py limits each file

MAX_LOGIN_BYTES = 4 * 1024
MAX_REQUEST_BYTES = 8 * 1024 * 1024
DEFAULT_PORTS = {"http": 80, "https": 443}
HOST = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[a-z0-9_.-]+)(?::(?P<port>\d{1,5}))?")
FORWARDED = (b"x-forwarded-for", b"x-forwarded-proto", b"x-forwarded-host")

NOT_SIGNED_IN = "Not authenticated"
TOO_LARGE = "This request is too large, or it does not say its size."
OTHER_SITE = (
    "This request comes from another site. If it comes through your own proxy that changes the host name, "
    "start the page with --trusted-proxy and the proxy's address."
)
UNKNOWN_NAME = (
    "This page does not answer to the name {name}. If it is yours, start the page with --allowed-host={name}"
)
NO_NAME = "This request names no host, or several."

# Gradio creates plots and templates with Function() and inline styles.
PAGE_POLICY = "; ".join(
    [
        "default-src 'self'",
        "script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data: blob:",
        "media-src 'self' data: blob:",
        "font-src 'self' data:",
        "connect-src 'self' data: blob:",
        "worker-src 'self' blob:",
        "frame-src 'self'",
        "object-src 'none'",
        "base-uri 'self'",
        "form-action 'self'",
        "frame-ancestors 'self'",
    ]
)
FILE_POLICY = "sandbox; frame-ancestors 'self'"  # an .html or .svg file in a data set must not run scripts
# TensorBoard is part of this site, so scripts in event files must not run.
TENSORBOARD_POLICY = PAGE_POLICY.replace("script-src 'self' 'unsafe-inline'", "script-src 'self'")
FIXED_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "SAMEORIGIN",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), payment=(), usb=(), microphone=(self)",
    "X-Robots-Tag": "noindex, nofollow",
}

FREE_FAILURES = 10
MAX_FAILURES = 15  # in a row; more change nothing
FORGIVE_S = 6.0
DELAY_S = 0.25  # after that it doubles, up to 8 s
MAX_WAITING = 1000  # answers; more would fill the memory
TELL_S = 10.0


class Guard:
    """Middleware that passes a request on or refuses it, and sets the security headers of each answer.

    Args:
        gradio_app: it holds the sessions.
        proxies: networks whose forwarding headers count.
    """

    def __init__(
        self, app: ASGIApp, gradio_app: App, hosts: AcceptedHosts, proxies: Sequence[Network]
    ) -> None:
        self.app = ProxyHeadersMiddleware(app, [str(network) for network in proxies])  # type: ignore[arg-type]
        # Gradio compresses its files, but not the page, which has most of a megabyte, nor what we serve.
        self.zipped = GZipMiddleware(self.app, compresslevel=6)  # type: ignore[arg-type]
        self.gradio_app = gradio_app
        self.hosts = hosts
        self.proxies = proxies
        self.failed = FailedSignIns()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # the start and the end; the server accepts no websockets
            await self.app(scope, receive, send)  # type: ignore[arg-type]
            return
        self._drop_forged_headers(scope)
        send = with_security_headers(scope["path"], send)
        if scope["method"] == "POST" and LOGIN.fullmatch(scope["path"]):
            send = self._as_sign_in(scope, send)
        served: ASGIApp = self.app  # type: ignore[assignment]
        if scope["path"] == "/" and scope["method"] == "HEAD":
            # Gradio asks for it at its start and waits 3 s, too few to draw the page on a busy machine
            served = Response()
        elif ZIPPED.match(scope["path"]):
            served = self.zipped
        with use_language(language_of(Headers(scope=scope).get("cookie"))):
            await (self._refusal(scope) or served)(scope, receive, send)

    def _drop_forged_headers(self, scope: Scope) -> None:
        """Drop the headers that only a proxy may set; Gradio believes some of them."""
        peer = ipaddress.ip_address(scope["client"][0])
        believed = FORWARDED if any(peer in network for network in self.proxies) else ()
        scope["headers"] = [
            (name, text)
            for name, text in scope["headers"]
            if name in believed or not (name == b"forwarded" or name.startswith(b"x-"))
        ]

    def _refusal(self, scope: Scope) -> Response | None:
        headers, path = Headers(scope=scope), scope["path"]
        refusal = refused_name(headers, self.hosts) or refused_site(headers, scope)
        if refusal:
            return refusal
        is_signed_in = self._is_signed_in(scope)
        scope["state"][SIGNED_IN] = is_signed_in
        if not is_signed_in:  # a stranger could keep a core busy with compression
            scope["headers"] = [each for each in scope["headers"] if each[0] != b"accept-encoding"]
        is_public = PUBLIC.fullmatch(path)
        if not is_public and not is_signed_in:
            return JSONResponse({"detail": {"error": NOT_SIGNED_IN}}, status_code=401)
        if not is_public and not OF_THE_PAGE.fullmatch(path):
            return PlainTextResponse("Not Found", status_code=404)
        if UPLOAD.fullmatch(path):
            return None
        max_bytes = MAX_LOGIN_BYTES if LOGIN.fullmatch(path) else 0 if is_public else MAX_REQUEST_BYTES
        # the server refuses a length that is no number
        if "transfer-encoding" in headers or int(headers.get("content-length", "0")) > max_bytes:
            return PlainTextResponse(TOO_LARGE, status_code=413)
        return None

    def _is_signed_in(self, scope: Scope) -> bool:
        if self.gradio_app.auth is None:
            return True
        kinds = ("access-token", "access-token-unsecure")
        cookies = Request(scope).cookies
        tokens = [cookies.get(f"{kind}-{self.gradio_app.cookie_id}") for kind in kinds]
        return any(token in self.gradio_app.tokens for token in tokens)

    def _as_sign_in(self, scope: Scope, send: Send) -> Send:
        """Return a `send` that delays the answer to a wrong password; cookies get SameSite=Lax."""

        async def send_late(message: Message) -> None:
            if message["type"] == "http.response.start":
                if message["status"] != 200:
                    await self.failed.wait(scope["client"][0])
                message["headers"] = [
                    (name, re.sub(rb"(?i)samesite=none", b"SameSite=lax", text))
                    for name, text in message["headers"]
                ]
            await send(message)

        return send_late


class FailedSignIns:
    """Recent sign-ins that failed: how late they are answered, and how often the terminal hears of them.

    The right password is accepted at once, however many wrong ones came before: a stranger cannot lock the
    owner out. FREE_FAILURES wrong ones are answered at once, and then each waits twice as long as the one
    before. One is forgiven every FORGIVE_S. The terminal shows no name, because people type their password
    there by mistake.
    """

    def __init__(self) -> None:
        self.number = 0.0
        self.noted_at = self.told_at = -TELL_S
        self.num_untold = 0
        self.num_waiting = 0

    async def wait(self, client: str) -> None:
        """Note a failure from an address, and return when it may be answered."""
        delay_s = self.note(client, time.monotonic())
        if self.num_waiting >= MAX_WAITING:
            return
        self.num_waiting += 1
        try:
            await asyncio.sleep(delay_s)
        finally:
            self.num_waiting -= 1

    def note(self, client: str, now: float) -> float:
        """Note a failure at a time in seconds, and return the seconds until its answer."""
        self.num_untold += 1
        if now - self.told_at >= TELL_S:
            if self.num_untold == 1:
                logger.warning("a sign-in failed, from %s", client)
            else:
                logger.warning(
                    "%d sign-ins failed, the last from %s; somebody may be guessing the password",
                    self.num_untold,
                    client,
                )
            self.told_at, self.num_untold = now, 0
        self.number = min(MAX_FAILURES, max(0.0, self.number - (now - self.noted_at) / FORGIVE_S) + 1)
        self.noted_at = now
        excess = self.number - FREE_FAILURES
        return 0.0 if excess <= 0 else DELAY_S * 2.0**excess


def refused_name(headers: Headers, hosts: AcceptedHosts) -> Response | None:
    """Return the refusal of a request with an unknown host name, or None.

    A foreign site can point its own name at this address, so that the browser treats this page as part of
    that site (DNS rebinding). The Host header reveals this.
    """
    asked = headers.getlist("host")
    if len(asked) != 1:
        return PlainTextResponse(NO_NAME, status_code=400)
    named = [(asked[0], hosts.direct), *((name, hosts.forwarded) for name in forwarded_hosts(headers))]
    for netloc, accepted in named:
        found = HOST.fullmatch(netloc.lower())
        if not found or found["name"] not in accepted:
            shown = found["name"] if found else "that it asks for"
            return PlainTextResponse(UNKNOWN_NAME.format(name=shown), status_code=400)
    return None


def refused_site(headers: Headers, scope: Scope) -> Response | None:
    """Return the refusal of a cross-site request, or None.

    Behind a tunnel or a proxy, the visitor uses https and the server sees http. So names and ports are
    compared, never schemes.
    """
    own = [headers.get("host", ""), *forwarded_hosts(headers)]
    is_foreign = any(
        not any(is_same_host(origin, host) for host in own) for origin in headers.getlist("origin")
    )
    # Links on other sites may lead to the page itself only.
    is_visit = (
        scope["method"] in ("GET", "HEAD")
        and scope["path"] == "/"
        and headers.get("sec-fetch-mode") == "navigate"
        and headers.get("sec-fetch-dest") == "document"
    )
    is_cross_site = headers.get("sec-fetch-site", "none") not in ("none", "same-origin")
    if is_foreign or (is_cross_site and not is_visit):
        return PlainTextResponse(OTHER_SITE, status_code=403)
    return None


def forwarded_hosts(headers: Headers) -> list[str]:
    """Return the hosts in X-Forwarded-Host, the first proxy's first."""
    return [name.strip() for line in headers.getlist("x-forwarded-host") for name in line.split(",")]


def is_same_host(origin: str, host: str) -> bool:
    """Return whether an Origin header names the host and port of a Host header; "null" names none."""
    try:
        site = urlsplit(origin)
        default_port = DEFAULT_PORTS[site.scheme]
        asked = urlsplit(f"//{host}")
        # Only the part before the path counts, and browsers omit default ports.
        return bool(site.hostname) and (site.hostname, site.port or default_port) == (
            asked.hostname,
            asked.port or default_port,
        )
    except (KeyError, ValueError):  # "null", chrome-extension://..., or an invalid port
        return False


def with_security_headers(path: str, send: Send) -> Send:
    """Return a `send` that adds the security headers of an answer of `path`."""
    if path.startswith("/tensorboard/"):
        policy = TENSORBOARD_POLICY
    else:
        policy = FILE_POLICY if "/file=" in path else PAGE_POLICY

    async def send_secured(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers.update({**FIXED_HEADERS, "Content-Security-Policy": policy})
            if path.startswith("/assets/") and message["status"] == 200:  # their names contain their digests
                headers.setdefault("Cache-Control", "public, max-age=31536000, immutable")
        await send(message)

    return send_secured
