"""Middleware in front of Gradio: host names, cross-site requests and headers.

    SecureHeaders      on every answer: no external resources, no foreign frames, no content sniffing
    ForwardedHeaders   X-Forwarded-For, -Proto and -Host of declared proxies; drops them of all others
    OwnSite            400 for an unknown host name, 403 for a cross-site request

Anybody can send X-Forwarded-For, and behind a tunnel everybody's address is 127.0.0.1. So these headers
count only if the peer is a --trusted-proxy. All other X- headers are dropped: the page uses none, and Gradio
believes some.

A cross-site page cannot bypass OwnSite. Browsers put an Origin on every POST and on what a script
fetches, and no script can set it, Host, or Sec-Fetch-Site. X-Forwarded-Host is an ordinary header, which a
script may send once a preflight allowed it. So even from a proxy it counts only for hosts named with
--allowed-host, never for loopback names, which a page on another port of localhost could claim. A cross-site
preflight has that Origin too and is refused here, before Gradio's answer, which would allow any header. A
program without a browser can send anything, but it has no cookie of another user; the login
decides about it.
"""

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
FORWARDED = (b"x-forwarded-for", b"x-forwarded-proto", b"x-forwarded-host")

DEFAULT_PORTS = {"http": 80, "https": 443}
HOST = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[a-z0-9_.-]+)(?::(?P<port>\d{1,5}))?")

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


@dataclass
class AcceptedHosts:
    """Host names that the page answers to: lower case, without ports, IPv6 addresses in brackets.

    Args:
        direct: allowed in a Host header.
        forwarded: also allowed in a proxy's X-Forwarded-Host: hosts named with --allowed-host.
    """

    direct: set[str]
    forwarded: set[str] = field(default_factory=set)

    def add_shared(self, url: str) -> None:
        """Accept the host of the public link."""
        name = (urlsplit(url).hostname or "").lower()
        if name:
            self.direct.add(name)


class ForwardedHeaders:
    """Middleware that believes the forwarding headers of declared proxies, and drops all others."""

    def __init__(self, app: ASGIApp, proxies: Sequence[Network]) -> None:
        self.app = app
        self.proxies = proxies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket"):
            peer = scope["client"][0] if scope["client"] else ""
            believed = FORWARDED if self._is_proxy(peer) else ()
            scope["headers"] = [
                (name, text)
                for name, text in scope["headers"]
                if name in believed or not (name == b"forwarded" or name.startswith(b"x-"))
            ]
            if believed:
                headers = Headers(scope=scope)
                scope["client"] = (self._visitor(headers.getlist("x-forwarded-for"), peer), 0)
                if headers.get("x-forwarded-proto") == "https":
                    scope["scheme"] = "https"
        await self.app(scope, receive, send)

    def _visitor(self, forwarded_for: list[str], peer: str) -> str:
        """Return the last address before our proxies: each proxy appends the address of its peer."""
        for text in reversed([text.strip() for line in forwarded_for for text in line.split(",")]):
            if address_of(text) is None:
                break
            peer = text
            if not self._is_proxy(text):
                break
        return peer

    def _is_proxy(self, text: str) -> bool:
        address = address_of(text)
        return address is not None and any(address in network for network in self.proxies)


def address_of(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return an IP address, of IPv4 if it is one in IPv6 form; None if `text` is none."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


class OwnSite:
    """Middleware that passes requests from this page or from programs, and refuses other sites.

    Behind a tunnel or a proxy, the visitor uses https and the server sees http. So names and ports are
    compared, never schemes.
    """

    def __init__(self, app: ASGIApp, hosts: AcceptedHosts) -> None:
        self.app = app
        self.hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        refusal = refused_name(headers, self.hosts) or refused_site(headers, scope)
        await (refusal or self.app)(scope, receive, send)


def refused_name(headers: Headers, hosts: AcceptedHosts) -> PlainTextResponse | None:
    """Return the refusal of a request with an unknown host name, or None."""
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


def refused_site(headers: Headers, scope: Scope) -> PlainTextResponse | None:
    """Return the refusal of a cross-site request, or None."""
    own = [headers.get("host", ""), *forwarded_hosts(headers)]
    is_foreign = any(
        not any(is_same_host(origin, host) for host in own) for origin in headers.getlist("origin")
    )
    # Links on other sites may lead to the page itself only.
    is_visit = (
        scope.get("method") in ("GET", "HEAD")
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


class SecureHeaders:
    """Middleware that sets the security headers."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_secured(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, text in FIXED_HEADERS.items():
                    headers[name] = text
                headers["Content-Security-Policy"] = policy
            await send(message)

        policy = policy_of(scope.get("path", ""))
        await self.app(scope, receive, send_secured if scope["type"] == "http" else send)


def policy_of(path: str) -> str:
    """Return the Content-Security-Policy of a path."""
    if path.startswith("/tensorboard/"):
        return TENSORBOARD_POLICY
    return FILE_POLICY if "/file=" in path else PAGE_POLICY
