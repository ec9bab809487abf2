"""Users of the page, allowed folders, declared proxies, and links to files.

A client can call every handler over HTTP, whatever the page shows. So every handler checks its paths, and
opens only the result of `Roots.inside`. Files of the workspace are served in place. No Gradio here.
"""

import html
import ipaddress
import logging
import os
import re
import secrets
import socket
import stat
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from indextts.commands.app import WebUI
from indextts.errors import UserError
from indextts.system.addresses import is_loopback
from indextts.system.disk import read_text_lines
from indextts.webui.language import t

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

logger = logging.getLogger(__name__)

LOOPBACK_NAMES = ["localhost", "127.0.0.1", "[::1]"]
WILDCARD_ADDRESSES = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}  # and the loopback address that they include
GENERATED_USER = "amharic"
LONGEST_NAME = 255  # bytes, of a file on Linux
MIN_PASSWORD_CHARACTERS = 12


@dataclass(frozen=True)
class Roots:
    """Resolved folders that the page may use: the workspace, then those of --root."""

    workspace: Path
    others: tuple[Path, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "workspace", self.workspace.resolve())
        object.__setattr__(self, "others", tuple(root.resolve() for root in self.others))

    def inside(self, typed: str | Path | None, what: str) -> Path:
        """Return the resolved path of `typed`, with symlinks followed; it need not exist.

        Args:
            typed: relative to the workspace; a UserError if it is empty, invalid, or outside the roots.
            what: the name of the field, for the message, in the current language.
        """
        text = str(typed or "").strip()
        if not text:
            raise UserError(t("paths.no_path", what=what, roots=self))
        try:
            path = (self.workspace / text).resolve()
            if any(len(os.fsencode(name)) > LONGEST_NAME for name in path.parts):
                raise ValueError
            if any(map(os.path.islink, (path, *path.parents))):  # only circular ones; Python 3.13 leaves them
                raise ValueError
        except (
            ValueError,
            RuntimeError,
        ):  # a NUL byte, a lone surrogate, circular symlinks, or a name that is too long
            raise UserError(t("paths.not_a_path", what=what, path=text, roots=self)) from None
        if not any(path.is_relative_to(root) for root in (self.workspace, *self.others)):
            raise UserError(t("paths.outside", what=what, path=text, roots=self))
        return path

    def __str__(self) -> str:
        return " or ".join(str(root) for root in (self.workspace, *self.others))


def in_url(host: str) -> str:
    """Return `host` as in a URL, with brackets around an IPv6 address."""
    return f"[{host.strip('[]')}]" if ":" in host else host


def own_names() -> list[str]:
    """Return the name and the outward IPv4 address of this machine, if known."""
    names = [socket.gethostname()]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as unused:
        try:
            unused.connect(("192.0.2.1", 9))  # sends nothing; the kernel only selects the address to use
            names.append(unused.getsockname()[0])
        except OSError:  # no network route
            pass
    return names


@dataclass(frozen=True)
class AcceptedHosts:
    """Host names that the page answers to: lower case, without ports, IPv6 addresses in brackets."""

    direct: set[str]  # allowed in a Host header; the public link adds its own
    forwarded: set[str]  # also allowed in a proxy's X-Forwarded-Host: hosts named with --allowed-host


def accepted_hosts(command: WebUI) -> AcceptedHosts:
    """Return the host names that a request may use; a UserError for an invalid --allowed-host."""
    for name in command.allowed_host:
        if not re.fullmatch(r"[A-Za-z0-9_.-]+|\[?[0-9A-Fa-f:.]+\]?", name):
            raise UserError(f"--allowed-host {name}: use a bare name, such as studio.example.org")
    named = {in_url(name).lower() for name in command.allowed_host}
    names = [*LOOPBACK_NAMES, in_url(command.host)]
    if command.host.strip("[]") in WILDCARD_ADDRESSES:
        names += own_names()
    return AcceptedHosts(direct={name.lower() for name in names} | named, forwarded=named)


def trusted_proxies(command: WebUI) -> list[Network]:
    """Return the networks of --trusted-proxy; a UserError for what is neither an address nor a network."""
    networks = []
    for text in command.trusted_proxy:
        try:
            networks.append(ipaddress.ip_network(text))
        except ValueError:
            raise UserError(
                f"--trusted-proxy {text}: give an address or a network, such as 127.0.0.1 or 10.0.0.0/8"
            ) from None
    return networks


def login(command: WebUI) -> tuple[str, str] | None:
    """Return user and password, None if only this machine reaches it; a UserError for an invalid file."""
    if command.auth_file:
        return _read_login(command.auth_file)
    if command.share or not is_loopback(command.host):
        return GENERATED_USER, secrets.token_urlsafe(24)
    return None


def _read_login(path: Path) -> tuple[str, str]:
    """Return user and password from the line `user:password` of a file; the password may contain colons."""
    lines = read_text_lines(path, "--auth-file", "write one line there: user:password")
    user, colon, password = lines[0].partition(":") if len(lines) == 1 else ("", "", "")
    if not (user.strip() and colon):
        raise UserError(
            f"--auth-file {path}: {len(lines)} lines; write exactly one line there: user:password"
        )
    if len(password) < MIN_PASSWORD_CHARACTERS:
        raise UserError(
            f"--auth-file {path}: the password has {len(password)} characters; "
            f"make it at least {MIN_PASSWORD_CHARACTERS}"
        )
    if path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH):
        logger.warning("--auth-file %s: other users of this machine can read it; run chmod 600 on it", path)
    return user.strip(), password


def file_address(path: Path) -> str:
    """Return the URL of a file for an attribute; its modification time makes browsers load a new version."""
    return html.escape(f"/gradio_api/file={quote(str(path.resolve()))}?{path.stat().st_mtime_ns}", quote=True)


def download_link(path: Path, name: str, text: str = "") -> str:
    """Return a download link for a file under a name; empty if the file is absent."""
    if not path.is_file() or path.is_symlink():
        return ""
    shown = html.escape(text or name)
    return f'<a href="{file_address(path)}" download="{html.escape(name, quote=True)}">{shown}</a>'
