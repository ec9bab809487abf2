"""Opening and weight of the page, compared with a page of Gradio that has one text field.

    python -m benchmarks.page --repeats 3

Each page is a new process with a free port, opened by a headless Chromium without a cache. The idle traffic
is that of an open tab in which nothing runs.
"""

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import ClassVar

from playwright.sync_api import Browser, sync_playwright
from pydantic import Field

from benchmarks.frame import REPOSITORY, Benchmark, interleaved, process_memory, publish, table
from benchmarks.start_time import cpu_s
from indextts.commands.terminal import parse, run
from indextts.errors import UserError
from tests.walking import FLAGS
from tests.webui_server import answers, free_port

SETTLE_S = 5.0  # what the page loads after it is drawn belongs to its opening

ONE_FIELD = """
import sys
import gradio as gr
with gr.Blocks(analytics_enabled=False) as demo:
    gr.Textbox()
demo.launch(server_port=int(sys.argv[1]), quiet=True)
"""


class OpenPage(Benchmark):
    """Measure the start, the opening and the traffic of the page."""

    program: ClassVar[str] = "benchmarks.page"
    repeats: int = Field(3, ge=1, description="Starts of each page.")
    idle_s: float = Field(30, gt=0, description="Seconds of idle traffic.")


@dataclass(frozen=True)
class Opening:
    """Measurement of a page.

    Args:
        start_s, start_cpu_s: until the port answers.
        open_s: until Chromium has fired the load event and drawn a text field or a tab.
        open_bytes, num_requests: that Chromium received for it.
        idle_bytes_per_s: that Chromium received afterwards.
        memory_bytes: resident memory of the server at the end.
    """

    start_s: float
    start_cpu_s: float
    open_s: float
    open_bytes: int
    num_requests: int
    idle_bytes_per_s: float
    memory_bytes: int


def main(argv: Sequence[str] | None = None) -> int:
    command = parse(OpenPage, argv)
    chromium = shutil.which("chromium")
    if chromium is None:
        raise UserError("chromium is absent; on Debian and Ubuntu: apt install chromium")
    with sync_playwright() as playwright, tempfile.TemporaryDirectory(prefix="page_") as folder:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)

        def ours(number: int) -> Opening:
            port = free_port()
            program = REPOSITORY / "webui_amharic.py"
            argv = [str(program), f"--port={port}", f"--workspace={folder}/{number}"]
            return opening(browser, argv, port, "[role=tab]", command.idle_s)

        def one_field(_number: int) -> Opening:
            port = free_port()
            return opening(browser, ["-c", ONE_FIELD, str(port)], port, "textarea", command.idle_s)

        found = interleaved({"eight tabs": ours, "one field": one_field}, command.repeats)
        browser.close()
    publish(command, "Opening and weight of the page", report(found))
    return 0


def opening(browser: Browser, argv: Sequence[str], port: int, drawn: str, idle_s: float) -> Opening:
    """Start a page, open it and leave it idle.

    Args:
        drawn: selector of an element that is visible once the page is drawn.

    Raises:
        RuntimeError: the server exits before it answers; its output is on the terminal.
    """
    started = time.monotonic()
    with subprocess.Popen([sys.executable, *argv], stdout=subprocess.DEVNULL) as server:
        try:
            while not answers(port):
                if server.poll() is not None:
                    raise RuntimeError(f"the page exited with status {server.returncode}")
                time.sleep(0.05)
            start_s, start_cpu_s = time.monotonic() - started, cpu_s(server.pid)
            page = browser.new_page()
            received: list[int] = []
            network = page.context.new_cdp_session(page)
            network.send("Network.enable")
            network.on("Network.dataReceived", lambda event: received.append(event["encodedDataLength"]))
            requests: list[str] = []
            page.on("request", lambda request: requests.append(request.url))
            began = time.monotonic()
            page.goto(f"http://127.0.0.1:{port}")
            page.locator(drawn).first.wait_for()
            open_s = time.monotonic() - began
            page.wait_for_load_state("networkidle") if drawn == "textarea" else page.wait_for_timeout(5_000)
            page.wait_for_timeout(1_000 * SETTLE_S)
            open_bytes, num_requests = sum(received), len(requests)
            page.wait_for_timeout(1_000 * idle_s)
            idle = (sum(received) - open_bytes) / idle_s
            memory = process_memory(server.pid, "VmRSS")
            page.close()
        finally:
            server.kill()
    return Opening(start_s, start_cpu_s, open_s, open_bytes, num_requests, idle, memory)


def report(found: dict[str, list[Opening]]) -> list[str]:
    """Return the medians of each page and the ratio of the pages as a table."""
    rows = []
    for name, unit, scale in (
        ("start_s", "start, wall clock (s)", 1.0),
        ("start_cpu_s", "start, processor time (s)", 1.0),
        ("open_s", "opening, wall clock (s)", 1.0),
        ("open_bytes", "opening, received (MB)", 1e-6),
        ("num_requests", "opening, requests", 1.0),
        ("idle_bytes_per_s", "idle traffic (KB/s)", 1e-3),
        ("memory_bytes", "memory of the server (MB)", 1e-6),
    ):
        ours, other = (
            scale * median(getattr(each, name) for each in found[page])
            for page in ("eight tabs", "one field")
        )
        rows.append([unit, f"{ours:.2f}", f"{other:.2f}", f"{ours / other:.1f}" if other else "-"])
    return table(["median", "eight tabs", "one field", "ratio"], rows)


if __name__ == "__main__":
    run(main)
