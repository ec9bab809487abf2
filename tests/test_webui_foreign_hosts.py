"""The page with a public link in a real browser: no host but its own is asked for fonts, scripts or numbers.

All connections of the browser to other hosts go to a proxy of the test, which counts them, also those that
the page does not see, such as an early connection to a host in a <link>.
"""

import socketserver
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect

from tests.conftest import REPOSITORY
from tests.test_webui_serving_middleware import TUNNEL
from tests.waiting import wait_until
from tests.walking import launched, open_tab
from tests.webui_server import Server, serving

pytestmark = pytest.mark.long

# Asked by Chromium for itself, whatever page is open.
OF_CHROMIUM = {
    "accounts.google.com",
    "clients2.google.com",
    "content-autofill.googleapis.com",
    "update.googleapis.com",
    "www.google.com",
}
SHARED = "0a1b2c.gradio.live"
PAGE = f"""
import sys
sys.path.insert(0, {str(REPOSITORY)!r})
from indextts.commands.terminal import run
from webui_amharic import main
run(main)
"""
TABS = [
    "1 Project",
    "2 Data",
    "3 Tokenizer",
    "4 Preprocess",
    "5 Pairs",
    "6 Training",
    "7 Monitor",
    "8 Listen and export",
]


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Server]:
    with serving(tmp_path, "--share", program=TUNNEL + PAGE) as server:
        yield server


@pytest.fixture
def counter() -> Iterator[tuple[int, list[str]]]:
    """A proxy that reaches nothing, and the hosts that it was asked for."""
    asked: list[str] = []

    class Count(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            words = self.rfile.readline(1000).decode(errors="replace").split()
            host = urlsplit(words[1] if "/" in words[1] else f"//{words[1]}").hostname
            if host not in OF_CHROMIUM:
                asked.append(str(host))

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Count) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_address[1], asked
        server.shutdown()
        thread.join()


def test_the_browser_asks_no_foreign_host(page: Server, counter: tuple[int, list[str]], chromium: str):
    port, foreign = counter
    flags = [f"--host-resolver-rules=MAP {SHARED} 127.0.0.1", f"--proxy-server=http://127.0.0.1:{port}"]
    address = f"http://{SHARED}:{page.port}"
    asked: list[str] = []
    said: list[str] = []
    with launched(chromium, *flags, f"--proxy-bypass-list={SHARED}") as browser:
        context = browser.new_context()
        context.on("request", lambda request: asked.append(request.url))
        tab = context.new_page()
        tab.on("console", lambda message: said.append(message.text))
        tab.goto(address)
        user, password = page.password()
        tab.locator("input").nth(0).fill(user)
        tab.locator("input").nth(1).fill(password)
        tab.get_by_role("button", name="Login").click()
        for name in TABS:
            open_tab(tab, name)
        tab.reload()
        expect(tab.get_by_role("tab", name=TABS[-1])).to_be_visible()
        assert foreign == []
        with pytest.raises(Exception, match="ERR_"):  # the counter counts
            tab.goto("http://fonts.example.org/")
        wait_until(lambda: foreign)
    assert set(foreign) == {"fonts.example.org"}
    own = [url for url in asked if url.startswith("http") and "fonts.example.org" not in url]
    assert len(own) > 50
    assert {urlsplit(url).netloc for url in own} == {f"{SHARED}:{page.port}"}
    assert not [text for text in said if "Content Security Policy" in text]
