"""The middleware in front of Gradio, over an app that only notes what reaches it."""

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from indextts.commands.app import WebUI
from indextts.webui.serving.connections import SIGNED_IN
from indextts.webui.serving.guard import (
    DELAY_S,
    FORGIVE_S,
    FREE_FAILURES,
    MAX_FAILURES,
    MAX_LOGIN_BYTES,
    MAX_REQUEST_BYTES,
    FailedSignIns,
    Guard,
    is_same_host,
)
from indextts.webui.serving.security import accepted_hosts, trusted_proxies

NAME = "studio.example.org"
SESSION = "access-token-id=token"
JOIN = "/gradio_api/queue/join"


def asked(
    path: str = "/",
    method: str = "GET",
    *,
    client: str = "10.0.0.7",
    proxies: tuple[str, ...] = (),
    status: int = 200,
    **headers: str,
) -> tuple[int, dict[str, Any], dict[str, str]]:
    """Return the status of an answer, the scope as Gradio sees it (empty if refused), and the headers.

    Args:
        client: the address of the peer.
        proxies: --trusted-proxy.
        status: what the app behind answers.
    """
    seen: dict[str, Any] = {}
    sent: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.update(scope)
        cookie = [(b"set-cookie", b"a=b; SameSite=none; Secure")]
        await send({"type": "http.response.start", "status": status, "headers": cookie})
        await send({"type": "http.response.body", "body": b""})

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        raise AssertionError("a body was read")

    command = WebUI(allowed_host=[NAME], trusted_proxy=list(proxies))
    gradio_app: Any = SimpleNamespace(auth={}, cookie_id="id", tokens={"token": "me"})
    guard = Guard(app, gradio_app, accepted_hosts(command), trusted_proxies(command))
    named = {"host": "localhost"} | {name.replace("_", "-"): text for name, text in headers.items()}
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": b"",
        "headers": [(name.encode(), text.encode("latin-1")) for name, text in named.items()],
        "client": (client, 1),
        "scheme": "http",
        "state": {},
    }
    asyncio.run(guard(scope, receive, send))
    return sent[0]["status"], seen, {name.decode(): text.decode() for name, text in sent[0]["headers"]}


PUBLIC = [
    "/",
    "/login",
    "/logout",
    "/assets/index-a_b.js",
    "/page_files/style.css",
    "/gradio_api/login_check",
]
OF_THE_PAGE = ["/config", JOIN, "/gradio_api/run/predict", "/gradio_api/upload", "/gradio_api/heartbeat/a-1"]
OF_THE_PAGE += ["/gradio_api/file=/workspace/demo/a ሰላም.wav", "/tensorboard/demo/", "/docs/first-voice.md"]
UNUSED = ["http://evil.test/x", "//evil.test/x", "relative"]
UNUSED = [f"/gradio_api/file={place}" for place in UNUSED] + ["/gradio_api/proxy=http://a"]
UNUSED += [
    f"/gradio_api/{name}" for name in ("call/x", "api/predict", "process_recording", "openapi.json", "runs")
]
UNUSED += ["/monitoring/summary", "/docs", "/docs/../setup.py", f"/assets/{'a' * 300}", "/assets/ሰላም"]


@pytest.mark.parametrize("path", [*PUBLIC, *OF_THE_PAGE, *UNUSED])
def test_without_a_session_only_the_sign_in_and_with_one_only_what_the_page_uses(path: str):
    assert asked(path)[0] == (200 if path in PUBLIC else 401)
    status, seen, _ = asked(path, cookie=SESSION)
    assert status == (404 if path in UNUSED else 200)
    if status == 200:
        assert seen["state"][SIGNED_IN]


def test_gradios_question_at_the_start_is_answered_without_drawing_the_page():
    status, seen, _ = asked("/", "HEAD")
    assert status == 200
    assert not seen


FORGED_SESSIONS = ["", "a" * 8000, "access-token-x=token"]
FORGED_SESSIONS += [f"access-token-id={token}" for token in ("", "other", "me")]


@pytest.mark.parametrize("cookie", FORGED_SESSIONS)
def test_a_forged_session_is_none(cookie: str):
    assert asked("/config", cookie=cookie)[0] == 401


def test_a_request_that_is_too_large_is_refused_before_it_is_read():
    def status(path: str, length: int | None, **headers: str) -> int:
        size = {"transfer_encoding": "chunked"} if length is None else {"content_length": str(length)}
        return asked(path, "POST", **size, **headers)[0]

    assert status("/login", MAX_LOGIN_BYTES) == 200
    assert status(JOIN, MAX_REQUEST_BYTES, cookie=SESSION) == 200
    for path in ("/login", "/login/", "/theme.css", "/assets/x", "/"):
        assert status(path, MAX_LOGIN_BYTES + 1) == status(path, None) == 413
    assert status("/theme.css", 1) == 413
    assert status(JOIN, MAX_REQUEST_BYTES + 1, cookie=SESSION) == 413
    assert status(JOIN, None, cookie=SESSION) == 413
    assert status("/gradio_api/upload", 2**40, cookie=SESSION) == 200  # routes.py decides


# Names and sites


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("localhost", 200),
        ("LOCALHOST:1", 200),
        ("[::1]:7863", 200),
        ("127.0.0.1", 200),
        (f"{NAME}:7863", 200),
        ("evil.test", 400),
        ("a.gradio.live", 400),
        ("127.0.0.1.evil.test", 400),
        ("a@127.0.0.1", 400),
        ("", 400),
    ],
)
def test_only_own_names_are_answered(host: str, expected: int):
    assert asked(host=host)[0] == expected


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
def test_an_origin_matches_its_host_in_any_spelling(origin: str, host: str):
    assert is_same_host(origin, host)


OTHER_ORIGINS = ["http://evil.test", "http://127.0.0.1:7864", "http://127.0.0.1", "http://localhost:7863"]
OTHER_ORIGINS += ["null", "", "http://127.0.0.1:7863.evil.test", "file://", "chrome-extension://abc"]
OTHER_ORIGINS += ["http://a:b", "//127.0.0.1:7863"]


@pytest.mark.parametrize("origin", OTHER_ORIGINS)
def test_another_site_starts_nothing(origin: str):
    for method in ("POST", "OPTIONS"):
        status, seen, headers = asked(
            JOIN, method, host="127.0.0.1:7863", origin=origin, cookie=SESSION, x_forwarded_host="evil.test"
        )
        assert (status, seen) == (403, {})
        assert not [name for name in headers if name.startswith("access-control")]


def test_a_link_on_another_site_opens_only_the_page():
    def status(path: str = "/", method: str = "GET", **headers: str) -> int:
        visit = {"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate", "sec_fetch_dest": "document"}
        return asked(path, method, cookie=SESSION, **{**visit, **headers})[0]

    assert status() == 200
    assert status(method="POST") == status("/logout") == status(sec_fetch_dest="iframe") == 403
    assert status(sec_fetch_site="same-site", sec_fetch_mode="no-cors") == 403  # another port of this host
    assert status("/config", sec_fetch_site="same-origin") == 200
    assert status("/config", sec_fetch_site="none") == 200  # typed by a person


# Proxies

FORGED = {
    "x_forwarded_host": NAME,
    "x_forwarded_proto": "https",
    "x_forwarded_for": "9.9.9.9",
    "x_gradio_server": "https://evil.test",
    "forwarded": "for=9.9.9.9;host=evil.test;proto=https",
    "x_real_ip": "9.9.9.9",
}


@pytest.mark.parametrize("proxies", [(), ("10.0.0.8",), ("192.168.0.0/16",)])
def test_forwarding_headers_of_a_visitor_change_nothing(proxies: tuple[str, ...]):
    plain = asked("/config", cookie=SESSION, proxies=proxies)
    assert asked("/config", cookie=SESSION, proxies=proxies, **FORGED) == plain
    foreign = {"host": "localhost", "origin": f"https://{NAME}", "x_forwarded_host": NAME}
    assert asked(JOIN, "POST", cookie=SESSION, proxies=proxies, **foreign)[0] == 403


def test_the_word_of_a_declared_proxy_counts():
    own = {"proxies": ("10.0.0.0/8",), "host": "localhost", "origin": f"https://{NAME}"}
    for forwarded, visitor in (("1.2.3.4", "1.2.3.4"), ("9.9.9.9, 1.2.3.4, 10.0.0.9", "1.2.3.4")):
        said = FORGED | {"x_forwarded_for": forwarded}
        status, seen, _ = asked(JOIN, "POST", cookie=SESSION, **own, **said)  # type: ignore[arg-type]
        assert status == 200
        assert (seen["client"][0], seen["scheme"]) == (visitor, "https")
        assert {name for name, _ in seen["headers"]} == {
            b"host", b"origin", b"cookie", b"x-forwarded-host", b"x-forwarded-proto", b"x-forwarded-for"
        }  # fmt: skip


@pytest.mark.parametrize(
    "name", ["evil.test", "localhost:1", "127.0.0.1:7863", f"{NAME}, evil.test", "", "a@b"]
)
def test_a_forwarded_name_counts_only_if_it_was_allowed(name: str):
    """A page on another port of this machine could claim a loopback name."""
    assert asked(proxies=("10.0.0.7",), x_forwarded_host=name, origin=f"http://{name}")[0] == 400


# Answers


@pytest.mark.parametrize(
    ("path", "policy"),
    [
        ("/", "default-src 'self'; script-src 'self' 'unsafe-inline'"),
        ("/absent", "default-src 'self'"),
        ("/gradio_api/file=/w/a.html", "sandbox;"),
        ("/tensorboard/demo/", "default-src 'self'; script-src 'self' 'unsafe-eval'"),
    ],
)
def test_every_answer_has_the_security_headers(path: str, policy: str):
    for host in ("localhost", "evil.test"):
        headers = asked(path, cookie=SESSION, host=host)[2]
        assert headers["content-security-policy"].startswith(policy)
        assert "frame-ancestors 'self'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-robots-tag"] == "noindex, nofollow"


def test_the_cookie_of_a_sign_in_is_for_this_site_only(caplog: pytest.LogCaptureFixture):
    assert asked("/login", "POST")[2]["set-cookie"] == "a=b; SameSite=lax; Secure"
    assert not caplog.messages
    asked("/login", "POST", status=400, proxies=("10.0.0.7",), x_forwarded_for="1.2.3.4")
    assert "1.2.3.4" in caplog.text


# Wrong passwords


def test_the_first_failures_are_answered_at_once_and_then_each_later_until_they_are_forgiven():
    failed = FailedSignIns()
    waits = [failed.note("a", 0.0) for _ in range(FREE_FAILURES + 10)]
    assert waits[:FREE_FAILURES] == [0.0] * FREE_FAILURES
    growing = waits[FREE_FAILURES - 1 : MAX_FAILURES]
    assert growing == sorted(set(growing))
    assert set(waits[MAX_FAILURES:]) == {DELAY_S * 2 ** (MAX_FAILURES - FREE_FAILURES)}
    assert failed.note("a", FORGIVE_S * MAX_FAILURES) == 0.0


def test_the_terminal_hears_of_many_failures_in_few_lines(caplog: pytest.LogCaptureFixture):
    failed = FailedSignIns()
    with caplog.at_level(logging.WARNING):
        for n in range(500):
            failed.note("10.0.0.7", 11 * n / 499)
    assert len(caplog.messages) == 2
    assert "10.0.0.7" in caplog.messages[0]
    assert int(caplog.messages[1].split()[0]) > 400
