"""The folders, names and passwords of the page, and how it starts and ends."""

import signal
import socket
from pathlib import Path

import pytest

from indextts.commands.app import WebUI
from indextts.errors import UserError
from indextts.system.addresses import is_loopback
from indextts.webui.serving.launch import listen
from indextts.webui.serving.security import Roots, accepted_hosts, login, trusted_proxies
from tests.waiting import PATIENCE_S, wait_until
from tests.webui_server import TWO_HANDLERS, Server, serving

PASSWORD = "correct horse battery"


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


# Names


def test_loopback_addresses_are_recognised():
    assert all(map(is_loopback, ("127.0.0.1", "127.8.8.8", "LOCALHOST", "::1", "[::1]")))
    others = ("0.0.0.0", "::", "", "192.168.1.5", "localhost.evil.org", "studio")
    assert not any(map(is_loopback, others))


def test_the_accepted_names_are_loopback_and_the_requested_host():
    loopback = {"localhost", "127.0.0.1", "[::1]"}
    assert accepted_hosts(WebUI()).direct == loopback
    assert accepted_hosts(WebUI()).forwarded == set()
    command = WebUI(host="fe80::1", share=True, allowed_host=["Studio.Example.org", "2001:db8::1"])
    named = {"studio.example.org", "[2001:db8::1]"}
    assert accepted_hosts(command).direct == loopback | {"[fe80::1]"} | named
    assert accepted_hosts(command).forwarded == named  # a loopback name is nothing that a proxy may claim


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


def test_an_auth_file_that_others_can_read_gets_a_warning(tmp_path, caplog):
    path = tmp_path / "login"
    path.write_text(f"me:{PASSWORD}")
    path.chmod(0o644)
    assert login(WebUI(auth_file=path)) == ("me", PASSWORD)
    assert "chmod 600" in caplog.text


# Starting and ending


def test_on_this_machine_the_page_asks_for_no_password_and_ctrl_c_closes_it(tmp_path):
    with serving(tmp_path, program=TWO_HANDLERS) as server:
        assert server.printed == [f"The page is at http://127.0.0.1:{server.port}\n"]
        assert server.join(0, [], origin=f"http://127.0.0.1:{server.port}").status == 200
        assert server.result()["data"] == ["started"]
        assert end_of(server, signal.SIGINT) == "The page is closed. Running jobs continue.\n"


TUNNEL = '''
"""Page whose public link is a name of this test."""
import gradio.networking

gradio.networking.setup_tunnel = lambda *_: "http://0a1b2c.gradio.live"
'''


def test_the_page_with_a_public_link_answers_to_it_and_to_the_allowed_names_with_the_password(tmp_path):
    failing = TWO_HANDLERS.replace("def read(typed):\n", "def read(typed):\n    raise RuntimeError(typed)\n")
    flags = ["--host=0.0.0.0", "--share", "--allowed-host=Studio.example.org"]
    with serving(tmp_path, *flags, program=TUNNEL + failing) as server:
        assert "The public link is https://0a1b2c.gradio.live\n" in server.printed
        assert any("unencrypted" in line for line in server.printed)
        user, password = server.password()
        assert user == "amharic"
        for host in ("0a1b2c.gradio.live", "studio.example.org:7863", socket.gethostname()):
            own = {"host": host, "origin": f"https://{host}"}
            assert server.join(0, [], **own).status == 401
            cookie = server.cookie(user, password, **own)
            assert server.join(0, [], cookie=cookie, **own).status == 200
        for host in ("f00.gradio.live", "gradio.live", "a.0a1b2c.gradio.live"):
            assert server.join(0, [], cookie=cookie, host=host, origin=f"https://{host}").status == 400
        shown = server.ask("GET", "/", cookie=cookie).body
        assert "gradio.js" not in shown.split("<body")[0]  # a page of another host
        assert "amazonaws.com" not in shown

        # a traceback shows what a visitor wrote as escapes
        server.join(1, ["/etc/\x1b]0;owned\x07\x1b[2J\x9b2J"], cookie=cookie)
        wait_until(lambda: any(line.startswith("RuntimeError") for line in server.printed))
        assert "\\x1b]0;owned" in "".join(server.printed)
        end_of(server, signal.SIGTERM)
        assert server.printed[-1] == "The page is closed. Running jobs continue.\n"
        assert not [character for character in "\x1b\x07\x9b" if character in "".join(server.printed)]


def end_of(server: Server, number: int) -> str:
    """Send a signal; return what the page printed after its address, once it ended well."""
    server.process.send_signal(number)
    assert server.process.wait(timeout=PATIENCE_S) == 0
    return "".join(server.printed[1:])


@pytest.mark.failure(56)
def test_an_address_that_cannot_be_used_is_a_user_error_that_names_the_flag():
    with socket.create_server(("127.0.0.1", 0)) as other, pytest.raises(UserError, match="--port"):
        listen("127.0.0.1", other.getsockname()[1])
    for host in ("192.0.2.1", "no.such.host.invalid"):
        with pytest.raises(UserError, match=f"--host {host}"):
            listen(host, 0)


def test_an_answer_is_sent_at_once():
    with listen("127.0.0.1", 0) as listening, socket.create_connection(listening.getsockname()):
        connection, _ = listening.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
