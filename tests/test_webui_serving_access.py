"""Tests of access by route: signed out, signed in, with a forged cookie; and of password tries."""

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from urllib.parse import quote, urlencode

import pytest

from indextts.webui.serving.access import (
    MAX_REQUEST_BYTES,
    PUBLIC,
    SIGNED_IN,
    is_selection,
    names_remote_file,
    with_samesite_lax,
)
from indextts.webui.serving.sign_in import FREE_FAILURES
from tests.waiting import PATIENCE_S, wait_until
from tests.webui_server import TWO_HANDLERS, Server, serving

PASSWORD = "correct horse battery"
PUBLIC_PAGES = {"/", "/login", "/login/", "/logout", "/theme.css", "/favicon.ico", "/manifest.json"}
PUBLIC_PAGES |= {"/robots.txt", "/assets/x", "/static/x", "/svelte/x"}
PUBLIC_PAGES |= {f"/gradio_api/{name}" for name in ("app_id", "startup-events", "theme.css", "login_check")}


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("door")
    (folder / "login").write_text(f"me:{PASSWORD}")
    (folder / "login").chmod(0o600)
    with serving(folder, f"--auth-file={folder / 'login'}", program=TWO_HANDLERS) as server:
        yield server


@pytest.fixture(scope="module")
def loopback(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("loopback"), program=TWO_HANDLERS) as server:
        yield server


ROUTES = """
import json, re
import gradio as gr
from gradio.routes import App
with gr.Blocks(analytics_enabled=False) as demo:
    gr.Textbox()
app = App.create_app(demo)
routers = [app.router, *(r.original_router for r in app.routes if hasattr(r, "original_router"))]
routes = [route for router in routers for route in router.routes if hasattr(route, "methods")]
found = {(m, re.sub(r"[{][^}]*[}]", "x", route.path)) for route in routes for m in route.methods}
print(json.dumps(sorted(found)))
"""


@pytest.fixture(scope="module")
def addresses() -> list[tuple[str, str]]:
    """Return method and path of every route that Gradio has, with x for what may vary."""
    listed = subprocess.run([sys.executable, "-c", ROUTES], capture_output=True, text=True, check=True)
    found = [(method, path) for method, path in json.loads(listed.stdout.splitlines()[-1])]
    assert len(found) > 60
    return found


def test_without_sign_in_only_login_and_front_end_of_gradio_are_open(
    page: Server, addresses: list[tuple[str, str]]
):
    for method, path in addresses:
        is_public = path.removesuffix("/") in PUBLIC_PAGES or path in PUBLIC_PAGES
        status = page.ask(method, path).status
        assert (status != 401) == is_public or path.startswith("/gradio_api/login_check"), (method, path)


def test_after_sign_in_unused_routes_of_gradio_are_closed(page: Server, addresses: list[tuple[str, str]]):
    cookie = page.cookie("me", PASSWORD)
    for method, path in addresses:
        if not (PUBLIC.fullmatch(path) or SIGNED_IN.fullmatch(path)):
            assert page.ask(method, path, cookie=cookie).status == 404, (method, path)
    for path in (
        "/gradio_api/call/x",
        "/gradio_api/api/x",
        "/gradio_api/proxy=http://a",
        "/monitoring/summary",
    ):
        assert page.ask("POST", path, [], cookie=cookie).status == 404


@pytest.mark.parametrize("path", ["/config", "/gradio_api/info", "/tensorboard/demo/", "/gradio_api/user"])
def test_a_forged_cookie_is_invalid(page: Server, path: str):
    real = page.cookie("me", PASSWORD).split(";")[0]
    assert page.ask("GET", "/config", cookie=real).status == 200
    name = real.partition("=")[0]
    other_name = "access-token-0"
    for forged in (
        f"{name}=me",
        f"{name}=",
        f"{name}=None",
        f"{other_name}={real.partition('=')[2]}",
        "a" * 8000,
    ):
        assert page.ask("GET", path, cookie=forged).status == 401, forged


def test_cookies_are_http_only_and_same_site(page: Server):
    cookies = page.sign_in("me", PASSWORD).headers.get_all("set-cookie")
    assert cookies
    for cookie in cookies:
        assert "httponly" in cookie.lower()
        assert "samesite=lax" in cookie.lower()


def test_sign_out_ends_the_session(page: Server):
    cookie = page.cookie("me", PASSWORD)
    assert page.ask("GET", "/logout", cookie=cookie).status == 302
    assert page.ask("GET", "/config", cookie=cookie).status == 401


FORGED = "9.9.9.9\x1b]0;owned\x07\x1b[2J"


def test_guessing_keeps_nobody_out_who_knows_the_password(page: Server):
    for n in range(FREE_FAILURES):
        assert page.sign_in("me", f"wrong {n}", x_forwarded_for=FORGED).status == 400
    body = urlencode({"username": "me", "password": "wrong"})
    head = f"POST /login HTTP/1.1\r\nHost: localhost\r\nX-Forwarded-For: {FORGED}\r\n"
    head += f"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {len(body)}\r\n\r\n"
    with ExitStack() as opened:
        for _ in range(10):  # these wait for their answers
            line = opened.enter_context(socket.create_connection(("127.0.0.1", page.port), PATIENCE_S))
            line.sendall((head + body).encode())
        assert page.sign_in("me", PASSWORD, x_forwarded_for=FORGED).status == 200
        assert page.sign_in("me", PASSWORD).status == 200


def test_the_terminal_is_told_of_guesses_and_shows_nothing_that_the_visitor_wrote(page: Server):
    assert page.sign_in("other", "wrong 2", x_forwarded_for=FORGED).status == 400
    wait_until(lambda: any("sign-in" in line for line in page.printed))
    printed = "".join(page.printed)
    assert "\x1b" not in printed
    assert "9.9.9.9" not in printed


@pytest.mark.parametrize("path", ["/login", "/login/"])
def test_a_huge_sign_in_is_not_read(page: Server, path: str):
    answer = page.ask("POST", path, {"username": "me", "password": "x" * 5000}, form=True)
    assert answer.status == 413


def test_no_password_is_ever_printed_or_logged(page: Server):
    assert PASSWORD not in "".join(page.printed)
    assert "wrong 1" not in "".join(page.printed)


# Requests


def test_a_remote_file_is_found_at_any_depth():
    assert names_remote_file({"path": "http://a.org/x"})
    assert names_remote_file([1, {"a": [{"path": " HTTPS://a.org"}]}])
    assert names_remote_file({"path": "file:///etc/passwd"})
    assert not names_remote_file(
        [{"path": "/tmp/gradio/a/b.wav", "url": "http://127.0.0.1/x"}, "http://a", None]
    )


NO_REQUESTS = [  # handler 1 takes one value
    b"",
    b"{",
    b"[]",
    b"7",
    b'{"data": ["\\ud800"], "fn_index": 1, "session_hash": "a"}',
    b'{"data": [{"path": "http://127.0.0.1:1/a"}], "fn_index": 1, "session_hash": "a"}',
    b"[" * 20_000,
    b'{"data": [' + b"[" * 200 + b"]" * 200 + b'], "fn_index": 1, "session_hash": "a"}',
    b"\xff",
]


@pytest.mark.parametrize("body", NO_REQUESTS)
def test_a_malformed_request_is_refused(loopback: Server, body: bytes):
    assert loopback.join(1, ["/etc/passwd"]).status == 200
    assert loopback.ask_raw("POST", "/gradio_api/queue/join", body).status == 400


def test_a_request_that_is_too_large_is_refused(loopback: Server):
    body = b'{"data": ["' + b"a" * MAX_REQUEST_BYTES + b'"]}'
    for path in ("/gradio_api/queue/join", "/gradio_api/cancel"):
        assert loopback.ask_raw("POST", path, body).status == 413


@pytest.mark.parametrize("values", ["[], " * 1_900_000 + "[]", "0, " * 2_000_000 + "0"])
def test_a_call_with_millions_of_values_is_refused_before_it_is_parsed(loopback: Server, values: str):
    body = f'{{"data": [{values}], "fn_index": 0, "session_hash": "a"}}'.encode()
    assert 5_000_000 < len(body) < MAX_REQUEST_BYTES
    assert loopback.ask_raw("POST", "/gradio_api/queue/join", body).status == 413


ADDRESSES = ["http://127.0.0.1:9/x", "https://evil.test/x", "HTTP:/evil.test", "//evil.test/x", "ftp://a/b"]


@pytest.mark.parametrize("address", [*ADDRESSES, "file:///etc/passwd", "data:,x", "relative/file", ""])
def test_only_files_are_served_as_files(loopback: Server, address: str):
    for quoted in (address, quote(address, safe="")):
        assert loopback.ask("GET", f"/gradio_api/file={quoted}").status == 404


def test_sign_in_cookies_get_same_site_lax():
    assert with_samesite_lax(b"Set-Cookie", b"a=b; SameSite=none; Secure") == b"a=b; SameSite=lax; Secure"
    assert with_samesite_lax(b"Location", b"/?samesite=none") == b"/?samesite=none"


def test_a_selection_has_an_index_and_the_values_of_its_row():
    chosen = {"index": [1, 0], "value": "a", "row_value": ["a", "b"], "col_value": ["x", "a"]}
    assert is_selection(chosen)
    changes = [{"index": "x"}, {"index": [-1]}, {"index": [True]}, {"row_value": []}, {"row_value": None}]
    changes += [{"value": {"path": "x"}}, {"row_value": [{"path": "x"}]}, {"other": [["x"]]}]
    assert not [change for change in changes if is_selection(chosen | change)]
    assert not [data for data in (None, "a", 7, 1.5, [], {}, {"index": [0]}) if is_selection(data)]
