"""Requests that the page refuses: other sites, unknown hosts, outside paths, clients without password.

The requests are raw and go to real servers.
"""

import contextlib
import re
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from indextts.commands.app import WebUI
from indextts.errors import UserError
from indextts.webui.serving.security import Roots, accepted_hosts, is_loopback, login, trusted_proxies
from tests.waiting import PATIENCE_S, wait_until
from tests.webui_server import TWO_HANDLERS, Server, serving, start_program

PASSWORD = "correct horse battery"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A page for this machine only, as `./run.sh` opens it."""
    with serving(tmp_path_factory.mktemp("page"), program=TWO_HANDLERS) as server:
        yield server


@pytest.fixture(scope="module")
def open_page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A page on all addresses, with --share, and no way to gradio.live."""
    folder = tmp_path_factory.mktemp("open_page")
    flags = ["--host=0.0.0.0", "--share", "--allowed-host=Studio.example.org"]
    with serving(folder, *flags, program=TWO_HANDLERS) as server:
        yield server


@pytest.fixture
def roots(tmp_path: Path) -> Roots:
    (tmp_path / "workspace").mkdir()
    (tmp_path / "recordings").mkdir()
    return Roots(tmp_path / "workspace", (tmp_path / "recordings",))


# Roots


def test_a_path_inside_a_root_is_resolved(roots, tmp_path):
    assert roots.inside(" demo/../demo/a.jsonl ", "Manifest") == tmp_path / "workspace/demo/a.jsonl"
    assert roots.inside(tmp_path / "recordings/a.wav", "Audio") == tmp_path / "recordings/a.wav"
    assert roots.inside(".", "Folder") == tmp_path / "workspace"


@pytest.mark.parametrize("typed", ["../secret", "/etc/passwd", "demo/../../secret", "../workspace2/a", "/"])
def test_a_path_outside_the_roots_is_refused_with_the_roots_named(roots, typed):
    with pytest.raises(UserError, match=r"Manifest .*/workspace or .*/recordings\)?; "):
        roots.inside(typed, "Manifest")


@pytest.mark.parametrize("typed", ["", "  ", None, "a\0b", "\ud800", "a" * 300, "b/" + "a" * 300])
def test_an_invalid_path_is_refused(roots, typed):
    with pytest.raises(UserError, match="Manifest"):
        roots.inside(typed, "Manifest")


def test_a_symlink_is_checked_by_its_target(roots, tmp_path):
    (tmp_path / "workspace/out").symlink_to("/etc")
    (tmp_path / "workspace/over").symlink_to(tmp_path / "recordings")
    (tmp_path / "workspace/circle").symlink_to(tmp_path / "workspace/circle")

    assert roots.inside("over/a.wav", "Audio") == tmp_path / "recordings/a.wav"
    for typed in ("out/passwd", "circle/a"):
        with pytest.raises(UserError):
            roots.inside(typed, "Audio")


def test_a_workspace_behind_a_symlink_is_accepted(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert Roots(tmp_path / "link").inside("a", "File") == tmp_path / "real/a"


# Names


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "LOCALHOST", "::1", "[::1]"])
def test_loopback_addresses_are_recognised(host):
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.168.1.5", "localhost.evil.org", "studio"])
def test_addresses_that_others_can_reach_are_not_loopback(host):
    assert not is_loopback(host)


def test_the_accepted_names_are_loopback_and_the_requested_host():
    loopback = {"localhost", "127.0.0.1", "[::1]"}
    assert accepted_hosts(WebUI()).direct == loopback
    assert accepted_hosts(WebUI()).forwarded == set()
    command = WebUI(host="fe80::1", share=True, allowed_host=["Studio.Example.org", "2001:db8::1"])
    named = {"studio.example.org", "[2001:db8::1]"}
    assert accepted_hosts(command).direct == loopback | {"[fe80::1]"} | named
    assert accepted_hosts(command).forwarded == named  # a loopback name is nothing that a proxy may claim


def test_a_public_link_is_accepted_only_if_launched():
    hosts = accepted_hosts(WebUI(share=True))
    hosts.add_shared("https://0a1b2c.gradio.live")
    assert "0a1b2c.gradio.live" in hosts.direct
    assert hosts.forwarded == set()
    assert sum("gradio" in name for name in hosts.direct) == 1


def test_on_a_wildcard_address_the_page_accepts_the_name_of_the_machine():
    assert socket.gethostname().lower() in accepted_hosts(WebUI(host="0.0.0.0")).direct
    assert socket.gethostname().lower() not in accepted_hosts(WebUI()).direct


@pytest.mark.parametrize("name", ["*", "*.org", "http://a.org", "a.org/x", "a.org:80", ""])
def test_an_allowed_host_that_is_not_a_bare_name_is_refused(name):
    with pytest.raises(UserError, match=r"--allowed-host .*bare name"):
        accepted_hosts(WebUI(allowed_host=[name]))


@pytest.mark.parametrize("text", ["*", "proxy.example.org", "10.0.0.0/33", "127.0.0.1:80", "", "10.0.0.1/8"])
def test_a_trusted_proxy_that_is_no_address_is_refused(text):
    with pytest.raises(UserError, match="--trusted-proxy"):
        trusted_proxies(WebUI(trusted_proxy=[text]))


# Login


def test_only_a_page_that_others_reach_asks_for_a_password():
    assert login(WebUI()) is None
    assert login(WebUI(host="::1")) is None
    made = [login(WebUI(share=True)), login(WebUI(host="0.0.0.0")), login(WebUI(host="studio.example.org"))]
    assert all(user == "amharic" and len(password) >= 32 for user, password in filter(None, made))
    assert len({credentials for credentials in made if credentials}) == 3


def test_the_auth_file_is_used_even_on_loopback_and_its_password_may_have_colons(tmp_path):
    path = tmp_path / "login"
    path.write_text("me:long:enough:password\n")
    path.chmod(0o600)
    assert login(WebUI(auth_file=path)) == ("me", "long:enough:password")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "0 lines"),
        (b"me:long-enough-password\nmore:x", "2 lines"),
        (b"me\n", "user:password"),
        (b":long-enough-password", "user:password"),
        (b"me:short", "5 characters"),
        (b"\xff:x", "UTF-8"),
    ],
)
def test_an_auth_file_without_a_login_is_a_user_error(tmp_path, content, message):
    (tmp_path / "login").write_bytes(content)
    with pytest.raises(UserError, match=message):
        login(WebUI(auth_file=tmp_path / "login"))


def test_a_missing_auth_file_is_a_user_error(tmp_path):
    with pytest.raises(UserError, match=r"--auth-file .*No such file.*user:password"):
        login(WebUI(auth_file=tmp_path / "absent"))


def test_an_auth_file_that_others_can_read_gets_a_warning(tmp_path, caplog):
    path = tmp_path / "login"
    path.write_text(f"me:{PASSWORD}")
    path.chmod(0o644)
    assert login(WebUI(auth_file=path)) == ("me", PASSWORD)
    assert "chmod 600" in caplog.text


# A page for this machine only


def test_the_page_accepts_its_own_requests(page):
    assert page.printed == [f"The page is at http://127.0.0.1:{page.port}\n"]
    assert page.ask("GET", "/").status == 200
    assert page.join(0, [], origin=f"http://127.0.0.1:{page.port}").status == 200
    assert page.result()["data"] == ["started"]
    (page.workspace / "canary").unlink()


@pytest.mark.parametrize(
    "origin", ["http://evil.test", "null", "http://127.0.0.1:1", "https://a.gradio.live"]
)
def test_another_site_cannot_run_a_handler(page, origin):
    assert page.join(0, [], origin=origin).status == 403
    assert page.ask("OPTIONS", "/gradio_api/queue/join", origin=origin).status == 403
    assert page.ask("GET", "/config", origin=origin).status == 403
    time.sleep(0.2)
    assert not (page.workspace / "canary").exists()


@pytest.mark.parametrize(
    "host", ["evil.test", "a.gradio.live", "127.0.0.1.evil.test", "a@127.0.0.1", "", None]
)
def test_an_unknown_host_name_is_refused(page, host):
    for origin in (None, f"http://{host}"):
        # without a Host the server says 400 and closes before it has read the body, which may reset the line
        with contextlib.suppress(ConnectionResetError):
            assert page.join(0, [], host=host, origin=origin).status in (400, 403)
    time.sleep(0.2)
    assert not (page.workspace / "canary").exists()


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "[::1]:7863", "127.0.0.1"])
def test_every_loopback_name_is_accepted(page, host):
    assert page.ask("GET", "/config", host=host, origin=f"http://{host}").status == 200


def test_a_path_is_checked_for_every_client(page):
    (page.workspace / "inside.txt").write_text("ሰላም", encoding="utf-8")
    assert page.join(1, ["inside.txt"]).status == 200
    assert page.result()["data"] == ["ሰላም"]

    for typed in ("/etc/passwd", "../page.py", "a\0b", "", None, 7, ["/etc/passwd"]):
        page.join(1, [typed])
        result = page.result()
        assert result["success"] is False
        assert "data" not in result


PAGES = ["/docs", "/redoc", "/openapi.json", "/gradio_api/runs", "/monitoring", "/gradio_api/openapi.json"]


@pytest.mark.parametrize("path", PAGES)
def test_api_documentation_pages_are_closed(page, path):
    assert page.ask("GET", path).status == 404


def test_only_files_of_the_workspace_are_served_and_none_runs(page):
    (page.workspace / "a.html").write_text("<script>alert(1)</script>")
    served = page.ask("GET", f"/gradio_api/file={page.workspace}/a.html")
    assert served.status == 200
    assert served.headers["content-security-policy"].startswith("sandbox;")
    for path in ("/etc/passwd", page.workspace.parent / "page.py", page.workspace / "../page.py", "page.py"):
        assert page.ask("GET", f"/gradio_api/file={path}").status in (403, 404)


# A page that others reach


def test_the_page_prints_a_password_and_reports_that_there_is_no_public_link(open_page):
    assert open_page.password()[0] == "amharic"
    assert any(line.startswith("There is no public link") for line in open_page.printed)
    assert any("unencrypted" in line for line in open_page.printed)


def test_without_the_password_only_the_login_is_served(open_page):
    assert open_page.join(0, []).status == 401
    assert open_page.ask("GET", "/config").status == 401
    assert open_page.ask("GET", f"/gradio_api/file={open_page.workspace}/a.wav").status == 401
    assert '"auth_required":true' in open_page.ask("GET", "/").body
    assert open_page.sign_in("amharic", "wrong").status == 400
    time.sleep(0.2)
    assert not (open_page.workspace / "canary").exists()


def test_with_the_password_the_page_works_but_not_for_another_site(open_page):
    cookie = open_page.cookie(*open_page.password())
    assert open_page.ask("GET", "/config", cookie=cookie).status == 200
    assert open_page.join(0, [], cookie=cookie, origin="http://evil.test").status == 403
    forged = {"origin": "http://evil.test", "x_forwarded_host": "evil.test"}
    assert open_page.join(0, [], cookie=cookie, **forged).status == 403


@pytest.mark.parametrize("host", ["studio.example.org", "studio.example.org:7863", socket.gethostname()])
def test_the_page_accepts_the_allowed_hosts(open_page, host):
    cookie = open_page.cookie(*open_page.password())
    assert open_page.ask("GET", "/config", host=host, cookie=cookie, origin=f"https://{host}").status == 200


# Starting and ending


def test_the_auth_file_is_required_and_not_printed_and_sigterm_closes_the_page(tmp_path):
    path = tmp_path / "workspace" / "login"
    path.parent.mkdir()
    path.write_text(f"me:{PASSWORD}\n")
    path.chmod(0o600)
    with serving(tmp_path, f"--auth-file={path}", program=TWO_HANDLERS) as server:
        assert server.join(0, []).status == 401
        assert server.sign_in("me", "wrong").status == 400
        cookie = server.cookie("me", PASSWORD)
        assert server.ask("GET", "/config", cookie=cookie).status == 200
        assert server.ask("GET", f"/gradio_api/file={path}", cookie=cookie).status == 403
        printed = end_of(server, signal.SIGTERM)
        assert printed.splitlines() == [
            "[Warn] a sign-in failed, from 127.0.0.1",
            "The page is closed. Running jobs continue.",
        ]


def test_a_traceback_shows_what_a_visitor_wrote_as_escapes(tmp_path):
    failing = TWO_HANDLERS.replace("def read(typed):\n", "def read(typed):\n    raise RuntimeError(typed)\n")
    with serving(tmp_path, program=failing) as server:
        server.join(1, ["/etc/\x1b]0;owned\x07\x1b[2J\x9b2J"])
        assert server.result()["success"] is False
        wait_until(lambda: any(line.startswith("RuntimeError") for line in server.printed))
        printed = "".join(server.printed)
        assert "Traceback" in printed
        assert "\\x1b]0;owned" in printed
        assert not [character for character in "\x1b\x07\x9b" if character in printed]


def test_ctrl_c_closes_the_page_with_one_line(tmp_path):
    with serving(tmp_path, program=TWO_HANDLERS) as server:
        assert end_of(server, signal.SIGINT) == "The page is closed. Running jobs continue.\n"


def end_of(server: Server, number: int) -> str:
    """Send a signal; return what the page printed after its address, once it ended well."""
    server.process.send_signal(number)
    assert server.process.wait(timeout=PATIENCE_S) == 0
    server.reader.join()
    return "".join(server.printed[1:])


@pytest.mark.failure(56)
def test_a_port_in_use_is_a_one_line_error_with_status_2(tmp_path):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        process = start_program(tmp_path, port, program=TWO_HANDLERS)
        printed, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 2
    assert re.fullmatch(rf"\[Error\] --port {port}: another program listens there already.*\n", printed)
