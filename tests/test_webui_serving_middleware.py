"""Tests of the sites and host names that the page accepts, also behind proxies."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from starlette.datastructures import Headers

from indextts.commands.app import WebUI
from indextts.webui.serving.middleware import ForwardedHeaders, is_same_host, refused_site
from indextts.webui.serving.security import trusted_proxies
from tests.conftest import REPOSITORY
from tests.waiting import wait_until
from tests.webui_server import TWO_HANDLERS, Server, free_port, serving, wait_until_listening

PASSWORD = "correct horse battery"
NAME = "studio.example.org"


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        ("http://127.0.0.1:7863", "127.0.0.1:7863"),
        ("http://[::1]:7863", "[::1]:7863"),
        ("HTTP://LocalHost:7863", "localhost:7863"),
        ("http://studio.example.org", "studio.example.org:80"),
        ("https://name.gradio.live", "name.gradio.live"),
    ],
)
def test_an_origin_matches_its_host_in_any_spelling(origin, host):
    assert is_same_host(origin, host)


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.test",
        "http://127.0.0.1:7864",
        "http://127.0.0.1",
        "http://localhost:7863",
        "null",
        "",
        "http://127.0.0.1:7863.evil.test",
        "file://",
        "chrome-extension://abc",
        "http://a:b",
        "//127.0.0.1:7863",
    ],
)
def test_any_other_origin_is_refused(origin):
    assert not is_same_host(origin, "127.0.0.1:7863")


def site_status(**headers: str) -> int:
    """Return the status of a GET / with these headers; 200 if it may pass."""
    scope = {"type": "http", "method": headers.pop("method", "GET"), "path": headers.pop("path", "/")}
    sent = {"host": "a.org"} | {name.replace("_", "-"): text for name, text in headers.items()}
    refusal = refused_site(Headers(sent), scope)
    return refusal.status_code if refusal else 200


def test_a_link_on_another_site_opens_only_the_page():
    visit = {"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate", "sec_fetch_dest": "document"}
    assert site_status(**visit) == 200
    assert site_status(**visit, method="POST") == 403
    assert site_status(**visit, path="/logout") == 403
    assert site_status(**{**visit, "sec_fetch_dest": "iframe"}) == 403
    assert (
        site_status(sec_fetch_site="same-site", sec_fetch_mode="no-cors") == 403
    )  # another port of this host
    assert site_status(sec_fetch_site="same-origin", path="/config") == 200
    assert site_status(sec_fetch_site="none", path="/config") == 200  # typed by a person


@contextmanager
def behind(server: Server, mode: str) -> Iterator[Server]:
    """Put a proxy in front of a page; what is asked of the result goes through it."""
    port = free_port()
    proxy = subprocess.Popen(
        [sys.executable, "-m", "tests.local_proxy", str(port), str(server.port), mode], cwd=REPOSITORY
    )
    try:
        wait_until_listening(proxy, port)
        yield replace(server, port=port)
    finally:
        proxy.kill()
        proxy.wait()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("proxied")
    (folder / "login").write_text(f"me:{PASSWORD}")
    (folder / "login").chmod(0o600)
    flags = [f"--auth-file={folder / 'login'}", f"--allowed-host={NAME}", "--trusted-proxy=127.0.0.1"]
    with serving(folder, *flags, program=TWO_HANDLERS) as server:
        yield server


@pytest.fixture(scope="module")
def undeclared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A page without --trusted-proxy."""
    folder = tmp_path_factory.mktemp("undeclared")
    (folder / "login").write_text(f"me:{PASSWORD}")
    (folder / "login").chmod(0o600)
    flags = [f"--auth-file={folder / 'login'}", f"--allowed-host={NAME}"]
    with serving(folder, *flags, program=TWO_HANDLERS) as server:
        yield server


@pytest.fixture(scope="module", params=["pass", "rewrite"])
def proxied(page: Server, request: pytest.FixtureRequest) -> Iterator[Server]:
    with behind(page, request.param) as through:
        yield through


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_behind_a_proxy_the_page_works_under_the_public_name(proxied: Server, scheme: str):
    own = {"host": NAME, "origin": f"{scheme}://{NAME}"}
    cookie = proxied.cookie("me", PASSWORD, **own)
    (proxied.workspace / "canary").unlink(missing_ok=True)
    assert proxied.join(0, [], cookie=cookie, **own).status == 200
    assert proxied.result(cookie=cookie, **own)["data"] == ["started"]
    assert (proxied.workspace / "canary").exists()


def test_behind_a_proxy_another_site_starts_nothing(proxied: Server):
    cookie = proxied.cookie("me", PASSWORD, host=NAME)
    (proxied.workspace / "canary").unlink(missing_ok=True)
    foreign = {"cookie": cookie, "host": NAME}
    port = proxied.port
    for origin in ("https://evil.test", "null", f"https://{NAME}.evil.test", f"http://127.0.0.1:{port}"):
        assert proxied.join(0, [], origin=origin, **foreign).status == 403
        assert proxied.join(0, [], origin=origin, x_forwarded_host="evil.test", **foreign).status in (
            400,
            403,
        )
    assert proxied.join(0, [], sec_fetch_site="cross-site", **foreign).status == 403
    time.sleep(0.2)
    assert not (proxied.workspace / "canary").exists()


def test_an_unknown_host_is_refused_with_the_flag_that_allows_it(proxied: Server):
    answer = proxied.ask("GET", "/", host="other.example.org")
    assert answer.status == 400
    assert "--allowed-host=other.example.org" in answer.body


def test_a_forwarded_name_counts_only_if_it_was_allowed(page: Server):
    for forwarded in ("evil.test", "localhost:1", f"127.0.0.1:{page.port}", f"{NAME}, evil.test", "", "a@b"):
        answer = page.ask("GET", "/", x_forwarded_host=forwarded)
        assert answer.status == 400, forwarded
    # a page of another port of this machine may claim a name, but not this one
    sent = {"origin": "http://localhost:1", "x_forwarded_host": "localhost:1"}
    assert page.join(0, [], **sent).status == 400


FORGED = {
    "x_forwarded_host": NAME,
    "x_forwarded_proto": "https",
    "x_forwarded_for": "9.9.9.9",
    "x_gradio_server": "https://evil.test",
    "forwarded": "for=9.9.9.9;host=evil.test;proto=https",
    "x_real_ip": "9.9.9.9",
}


def test_forwarding_headers_of_a_visitor_change_nothing(undeclared: Server):
    cookie = undeclared.cookie("me", PASSWORD)
    plain = undeclared.ask("GET", "/config", cookie=cookie).body
    for name, text in FORGED.items():
        assert undeclared.ask("GET", "/config", cookie=cookie, **{name: text}).body == plain, name
    undeclared.sign_in("me", "wrong", **FORGED)
    wait_until(lambda: any("sign-in" in line for line in undeclared.printed))
    assert "9.9.9.9" not in "".join(undeclared.printed)
    own = {"cookie": cookie, "host": "localhost", "origin": f"https://{NAME}"}
    refused = undeclared.join(0, [], **own, x_forwarded_host=NAME)
    assert refused.status == 403
    assert "--trusted-proxy" in refused.body


def test_a_proxy_that_passes_the_host_name_on_needs_no_declaration(undeclared: Server):
    with behind(undeclared, "pass") as proxied:
        own = {"host": NAME, "origin": f"https://{NAME}"}
        cookie = proxied.cookie("me", PASSWORD, **own)
        assert proxied.join(0, [], cookie=cookie, **own).status == 200


def test_a_declared_proxys_word_counts_and_only_its_own(page: Server):
    cookie = page.cookie("me", PASSWORD)
    config = page.ask("GET", "/config", cookie=cookie, x_forwarded_host=NAME, x_forwarded_proto="https")
    assert f"https://{NAME}" in config.body
    # the proxy appended the address that it saw; what is before that, the visitor wrote
    for forwarded, logged in (
        ("9.9.9.9, 10.1.2.3", "10.1.2.3"),
        ("\x1b[2J, 10.1.2.4, 127.0.0.1", "10.1.2.4"),
        ("10.1.2.5, \x1b[2J", "127.0.0.1"),
    ):
        scope = {
            "type": "http",
            "client": ("127.0.0.1", 1),
            "headers": [(b"x-forwarded-for", forwarded.encode())],
        }
        assert client_of(scope) == logged


def client_of(scope: dict[str, object]) -> str:
    """Return the address of the visitor that the page takes a request for."""
    seen: list[str] = []

    async def app(scope, receive, send):
        seen.append(scope["client"][0])

    asyncio.run(
        ForwardedHeaders(app, trusted_proxies(WebUI(trusted_proxy=["127.0.0.0/8"])))(scope, None, None)
    )
    return seen[0]


def test_a_cross_origin_preflight_allows_nothing(page: Server):
    for host in (NAME, f"127.0.0.1:{page.port}"):
        answer = page.ask(
            "OPTIONS",
            "/gradio_api/queue/join",
            host=host,
            origin="http://evil.test",
            access_control_request_method="POST",
            access_control_request_headers="content-type, x-forwarded-host",
        )
        assert answer.status == 403
        assert not [name for name in answer.headers if name.lower().startswith("access-control")]


def test_headers_do_not_change_the_address_of_the_page(page: Server):
    cookie = page.cookie("me", PASSWORD)
    for name in ("x_gradio_server", "x_forwarded_host"):
        answer = page.ask("GET", "/config", cookie=cookie, **{name: "http://evil.test"})
        assert "evil.test" not in answer.body.replace("answer to the name evil.test", "")


@pytest.mark.parametrize("path", ["/", "/config", "/theme.css", "/absent"])
def test_every_response_has_the_fixed_headers(page: Server, path: str):
    headers = page.ask("GET", path).headers
    assert "frame-ancestors 'self'" in headers["content-security-policy"]
    assert "connect-src 'self' data: blob:;" in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-robots-tag"] == "noindex, nofollow"


TUNNEL = '''
"""Page whose public link is a name of this test; while it is created, a request uses that name."""
import http.client
import gradio.networking


def tunnel(local_port, **_):
    connection = http.client.HTTPConnection("127.0.0.1", local_port)
    connection.request("GET", "/", headers={"Host": "0a1b2c.gradio.live"})
    print("while launching:", connection.getresponse().status, flush=True)
    return "https://0a1b2c.gradio.live"


gradio.networking.setup_tunnel = tunnel
'''


def test_only_the_launched_public_link_is_accepted(tmp_path: Path):
    with serving(tmp_path, "--share", program=TUNNEL + TWO_HANDLERS) as server:
        assert "while launching: 400\n" in server.printed
        assert "The public link is https://0a1b2c.gradio.live\n" in server.printed
        own = {"host": "0a1b2c.gradio.live", "origin": "https://0a1b2c.gradio.live"}
        cookie = server.cookie(*server.password(), **own)
        assert server.join(0, [], cookie=cookie, x_forwarded_host=own["host"], **own).status == 200
        shown = server.ask("GET", "/", host=own["host"], cookie=cookie).body
        assert "gradio.js" not in shown.split("<body")[0]
        assert "amazonaws.com" not in shown
        for host in ("f00.gradio.live", "gradio.live", "a.0a1b2c.gradio.live"):
            assert server.join(0, [], cookie=cookie, host=host, origin=f"https://{host}").status == 400
