"""The page in a real browser as on a rented machine: https and a public name outside, loopback inside.

A user signs in, opens every tab and starts TensorBoard inside the page. No request may go to another host:
all connections to these go to a proxy of the test, which counts them, also those that the page does not see,
such as an early connection to a host in a <link>.
"""

import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect

from indextts.projects.project import Project
from tests.conftest import REPOSITORY
from tests.test_webui_tensorboard import write_events
from tests.waiting import wait_until
from tests.walking import launched, open_tab
from tests.webui_server import Server, free_port, serving, wait_until_listening
from tests.written_run import WrittenRun

pytestmark = pytest.mark.long

PASSWORD = "correct horse battery"
NAMES = "MAP studio.test 127.0.0.1"
TABS = ["1 ", "2 ", "3 ", "4 ", "5 ", "6 ", "8 ", "7 "]
# Asked by Chromium for itself, whatever page is open.
OF_CHROMIUM = {
    "accounts.google.com",
    "clients2.google.com",
    "content-autofill.googleapis.com",
    "update.googleapis.com",
    "www.google.com",
}


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("walk")
    (folder / "login").write_text(f"me:{PASSWORD}")
    (folder / "login").chmod(0o600)
    flags = [f"--auth-file={folder / 'login'}", "--allowed-host=studio.test", "--trusted-proxy=127.0.0.1"]
    with serving(folder, *flags) as server:
        run_dir = Project(server.workspace / "demo").run_dir
        write_events(run_dir)
        run = WrittenRun()
        run.train_to(100)
        run.write(run_dir)
        yield server


@pytest.fixture(scope="module")
def outside(page: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the page behind a proxy that speaks https."""
    folder = tmp_path_factory.mktemp("proxy")
    files = [str(folder / "key"), str(folder / "certificate")]
    subject = ["-subj", "/CN=studio.test", "-days", "2", "-nodes", "-newkey", "rsa:2048"]
    made = ["openssl", "req", "-x509", *subject, "-keyout", files[0], "-out", files[1]]
    subprocess.run(made, check=True, capture_output=True)
    port = free_port()
    argv = [sys.executable, "-m", "tests.local_proxy", str(port), str(page.port), "rewrite", *files]
    with (folder / "log").open("wb") as log:
        proxy = subprocess.Popen(argv, cwd=REPOSITORY, stdout=log, stderr=log)
    wait_until_listening(proxy, port)
    yield f"https://studio.test:{port}"
    proxy.kill()
    proxy.wait()


@pytest.fixture
def counter() -> Iterator[tuple[int, list[str]]]:
    """A proxy that reaches nothing, and the hosts that it was asked for."""
    foreign: list[str] = []

    class Count(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            words = self.rfile.readline(1000).decode(errors="replace").split()
            host = urlsplit(words[1] if "/" in words[1] else f"//{words[1]}").hostname
            if host not in OF_CHROMIUM:
                foreign.append(str(host))

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Count) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_address[1], foreign
        server.shutdown()
        thread.join()


def test_the_page_works_and_is_protected_on_a_rented_machine(
    page: Server, outside: str, chromium: str, counter: tuple[int, list[str]]
):
    port, foreign = counter
    flags = [f"--host-resolver-rules={NAMES}", f"--proxy-server=http://127.0.0.1:{port}"]
    asked: list[str] = []
    with launched(chromium, *flags, "--proxy-bypass-list=*.test") as browser:
        context = browser.new_context(ignore_https_errors=True)
        context.on("request", lambda request: asked.append(request.url))
        tab = context.new_page()
        console: list[str] = []
        tab.on("console", lambda message: console.append(f"{message.type}: {message.text}"))

        tab.goto(outside)
        fields = tab.locator("input")
        for password in ("a wrong password", PASSWORD):
            fields.nth(0).fill("me")
            fields.nth(1).fill(password)
            tab.get_by_role("button", name="Login").click()
            if password != PASSWORD:
                expect(tab.get_by_text("Incorrect")).to_be_visible()
        expect(tab.locator("#hardware")).to_contain_text("Processors")

        for name in TABS:
            open_tab(tab, name)
        tab.locator("#tensorboard-button").click()
        expect(tab.locator("#tensorboard-page")).to_contain_text("Start TensorBoard to see")
        tab.locator("#tensorboard-start").click()
        board = tab.frame_locator("#tensorboard-frame")
        expect(board.get_by_text("mel_loss").first).to_be_visible()
        expect(board.locator("scalar-card svg, tb-scalar-card svg, scalar-card canvas").first).to_be_visible()

        tab.locator("#tensorboard-stop").click()
        expect(tab.locator("#tensorboard-page")).to_contain_text("Start TensorBoard to see")
        assert foreign == []
        with pytest.raises(Exception, match="ERR_"):  # the counter counts
            tab.goto("http://fonts.example.org/")
        wait_until(lambda: foreign)
    hosts = {urlsplit(url).netloc for url in asked if url.startswith("http")}
    assert hosts == {urlsplit(outside).netloc, "fonts.example.org"}
    assert not [line for line in console if "Content Security Policy" in line]
    assert "Traceback" not in "".join(page.printed)
