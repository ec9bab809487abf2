"""The page in a real browser as on a rented machine: https and a public name outside, loopback inside.

A user signs in, opens every tab and starts TensorBoard inside the page, and another site tries to start
training with the cookies of that browser. No request may go to another host: all connections to these go to
a proxy of the test, which counts them, also those that the page does not see, such as an early connection to
a host in a <link>.
"""

import json
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect

from indextts.projects.project import Project
from tests.conftest import REPOSITORY
from tests.test_webui_tensorboard import write_events
from tests.waiting import wait_until
from tests.walking import launched, open_tab
from tests.webui_server import Server, find_handler, free_port, sent_data, serving, wait_until_listening
from tests.written_run import WrittenRun

pytestmark = pytest.mark.long

PASSWORD = "correct horse battery"
NAMES = "MAP studio.test 127.0.0.1, MAP evil.test 127.0.0.1"
TABS = ["1 ", "2 ", "3 ", "4 ", "5 ", "6 ", "8 ", "7 "]
# Asked by Chromium for itself, whatever page is open.
OF_CHROMIUM = {
    "accounts.google.com",
    "clients2.google.com",
    "content-autofill.googleapis.com",
    "update.googleapis.com",
    "www.google.com",
}

# What a page of another site can try with the cookies of a visitor: the texts of all its answers.
ATTACK = """async ([target, body]) => {
  const json = {'Content-Type': 'application/json'};
  const claims = {...json, 'X-Forwarded-Host': location.host};
  const tries = [
    [`${target}/gradio_api/queue/join`, {method: 'POST', credentials: 'include', headers: json, body}],
    [`${target}/gradio_api/queue/join`, {method: 'POST', credentials: 'include', headers: claims, body}],
    [`${target}/gradio_api/queue/join`, {method: 'POST', credentials: 'include', mode: 'no-cors', body}],
    [`${target}/config`, {credentials: 'include'}],
    [`${target}/tensorboard/demo/data/runs`, {credentials: 'include', mode: 'no-cors'}],
  ];
  const texts = [];
  for (const [address, options] of tries) {
    try { texts.push(await (await fetch(address, options)).text()); } catch (error) { texts.push('blocked'); }
  }
  const form = document.createElement('form');
  form.action = `${target}/gradio_api/queue/join`; form.method = 'POST'; form.enctype = 'text/plain';
  form.target = 'frame';
  const frame = document.createElement('iframe');
  frame.name = 'frame';
  document.body.append(frame, form);
  const loaded = new Promise(resolve => { frame.onload = resolve; setTimeout(resolve, 5000); });
  form.submit();
  await loaded;
  return texts;
}"""


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
        run.start()
        run.train_to(100)
        run.write(run_dir)
        yield server


@pytest.fixture(scope="module")
def outside(page: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The address of the page behind a proxy that speaks https, and the proxy's log."""
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
    yield f"https://studio.test:{port}", folder / "log"
    proxy.kill()
    proxy.wait()


@pytest.fixture(scope="module")
def evil() -> Iterator[str]:
    """The address of another site."""

    class Blank(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Blank)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://evil.test:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


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


def start_of_training(page: Server) -> dict[str, object]:
    """Return the request that the button Start training sends."""
    config = json.loads(page.ask("GET", "/config", cookie=page.cookie("me", PASSWORD)).body)
    handler = find_handler(config, "train-start")
    values = {c["id"]: c["props"].get("value") for c in config["components"]}
    data = sent_data(config, handler, values)
    return {"fn_index": handler["id"], "data": data, "session_hash": "evil"}


def test_the_page_works_and_is_protected_on_a_rented_machine(
    page: Server, outside: tuple[str, Path], evil: str, chromium: str, counter: tuple[int, list[str]]
):
    address, log = outside
    port, foreign = counter
    flags = [f"--host-resolver-rules={NAMES}", f"--proxy-server=http://127.0.0.1:{port}"]
    asked: list[str] = []
    with launched(chromium, *flags, "--proxy-bypass-list=*.test") as browser:
        context = browser.new_context(ignore_https_errors=True)
        context.on("request", lambda request: asked.append(request.url))
        tab = context.new_page()
        console: list[str] = []
        tab.on("console", lambda message: console.append(f"{message.type}: {message.text}"))

        tab.goto(address)
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

        other = context.new_page()
        other.goto(evil)
        since = log.stat().st_size
        answers = other.evaluate(ATTACK, [address, json.dumps(start_of_training(page))])
        assert set(answers) <= {"blocked", ""}  # "" is what a script sees of an answer it may not read
        refused = len(answers) + 1  # and the form's
        wait_until(lambda: log.read_text()[since:].count(" 403 ") >= refused, explain=log.read_text)
        assert log.read_text()[since:].count(" 403 ") == refused
        assert not list((page.workspace / "demo/jobs").glob("*_train"))

        other.goto(address)  # a link, on the other hand, leads to the page
        expect(other.get_by_role("tab", name="1 Project")).to_be_visible()
        other.close()

        tab.locator("#tensorboard-stop").click()
        expect(tab.locator("#tensorboard-page")).to_contain_text("Start TensorBoard to see")
        assert foreign == []
        with pytest.raises(Exception, match="ERR_"):  # the counter counts
            tab.goto("http://fonts.example.org/")
        wait_until(lambda: foreign)
    hosts = {urlsplit(url).netloc for url in asked if url.startswith("http")}
    assert hosts == {urlsplit(address).netloc, urlsplit(evil).netloc, "fonts.example.org"}
    assert not [line for line in console if "Content Security Policy" in line]
    assert "Traceback" not in "".join(page.printed)
