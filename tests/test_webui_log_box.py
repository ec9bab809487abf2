"""The log box in a browser: it follows, stays where the reader is, and runs nothing of a log."""

import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect, sync_playwright

from tests.conftest import REPOSITORY

pytestmark = pytest.mark.slow

SCROLLS = "#log .log-box"
APP = """
import sys
from pathlib import Path
import gradio as gr
from indextts.webui.log_view import FOLLOW_LOGS, LOG_CSS, show_log
with gr.Blocks(analytics_enabled=False) as demo:
    box = gr.HTML(elem_id="log", elem_classes="log-box")
    timer = gr.Timer(0.3)
    timer.tick(lambda: show_log(Path(sys.argv[1])).html, None, [box]).then(None, None, None, js=FOLLOW_LOGS)
demo.launch(server_name="127.0.0.1", server_port=int(sys.argv[2]), css=LOG_CSS, quiet=True, ssr_mode=False)
"""


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def write(log: Path, numbers: range) -> None:
    with log.open("a", encoding="utf-8") as file:
        file.writelines(f"[Train] step {number:05}\n" for number in numbers)


def is_at_end(page: Page) -> bool:
    script = "box => box.scrollHeight - box.scrollTop - box.clientHeight < 5"
    return bool(page.locator(SCROLLS).evaluate(script))


def top_line(page: Page) -> tuple[str, float]:
    """Return the text of the topmost whole line and its distance from the top of the box in pixels."""
    script = """box => {
      const top = line => line.getBoundingClientRect().top - box.getBoundingClientRect().top;
      const line = [...box.querySelectorAll('[data-at]')].find(line => top(line) >= 0);
      return [line.textContent, top(line)];
    }"""
    text, distance = page.locator(SCROLLS).evaluate(script)
    return text, round(distance)


def wait_until(is_true) -> None:
    deadline = time.monotonic() + 60
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_the_log_follows_and_stays_where_somebody_reads(tmp_path: Path, chromium: str):
    log, port = tmp_path / "output.log", free_port()
    log.write_text("<img src=x onerror='window.acted=1'><script>window.acted=1</script>\n")
    write(log, range(100))
    with (
        subprocess.Popen([sys.executable, "-c", APP, str(log), str(port)], cwd=REPOSITORY) as app,
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"]) as browser,
    ):
        try:
            wait_until(lambda: app.poll() is None and is_open(port))
            page = browser.new_page()
            page.goto(f"http://127.0.0.1:{port}")
            box = page.locator(SCROLLS)
            expect(box).to_contain_text("step 00099", timeout=60_000)
            expect(box).to_contain_text("<script>window.acted=1</script>")
            assert page.evaluate("window.acted") is None
            wait_until(lambda: is_at_end(page))
            write(log, range(100, 150))
            expect(box).to_contain_text("step 00149", timeout=60_000)
            wait_until(lambda: is_at_end(page))

            box.evaluate("box => { box.scrollTop = box.scrollHeight - box.clientHeight - 400 }")
            time.sleep(0.5)
            read = top_line(page)
            for last in (180, 260, 300):  # from 200 lines on, old ones leave the box above
                write(log, range(last - 30, last))
                expect(box).to_contain_text(f"step {last - 1:05}", timeout=60_000)
                time.sleep(0.5)
                line, distance = top_line(page)
                assert (line, distance) == (read[0], pytest.approx(read[1], abs=2))
            box.evaluate("box => { box.scrollTop = box.scrollHeight }")
            write(log, range(300, 400))
            expect(box).to_contain_text("step 00399", timeout=60_000)
            wait_until(lambda: is_at_end(page))
            assert page.evaluate("window.acted") is None
            page.screenshot(path=tmp_path / "log.png")
        finally:
            app.terminate()


def is_open(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0
