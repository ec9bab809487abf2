"""Opening, tabs and idle load of the page while a run is trained, beside those of an earlier commit.

    python -m benchmarks.page --before e8fa6704 --repeats 3

Each page is a new process with a free port, opened by a headless Chromium without a cache. Processor time is
that of Chromium's renderer; unlike the wall clock, it depends little on what else the machine does.
"""

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import ClassVar

from playwright.sync_api import Browser, Page, sync_playwright
from pydantic import Field

from benchmarks.frame import REPOSITORY, Benchmark, interleaved, process_memory, publish, table
from benchmarks.start_time import cpu_s
from indextts.commands.terminal import parse, run
from indextts.errors import UserError
from indextts.projects.jobs.starting import start_job
from indextts.projects.jobs.stopping import kill_job
from indextts.projects.project import Project
from tests.running_jobs import command_for
from tests.walking import FLAGS
from tests.watched_workspace import make_watched_workspace
from tests.webui_server import answers, free_port

TABS = ("data", "tokenizer", "preprocess", "pairs", "training", "monitor", "listen")
SETTLE_S = 5.0  # what the page loads after it is drawn belongs to its opening
MB = 1e6

# a run that logs a line a second, as its newest line
TRAIN = """
import json, sys, time
path = sys.argv[1].removeprefix("--words=")
line = next(line for line in map(json.loads, reversed(open(path).readlines())) if line["kind"] == "train")
with open(path, "a", buffering=1) as file:
    while True:
        line |= {"step": line["step"] + 10, "time": time.time()}
        print(json.dumps(line), file=file)
        time.sleep(1)
"""

# seconds from the click on a tab until its panel shows text, and the page draws again
OPEN_TAB = """async tab => {
  const began = performance.now(), panel = () => document.getElementById(`tab-${tab}`);
  document.getElementById(`tab-${tab}-button`).click();
  while (!(panel()?.innerText.trim().length > 30) && performance.now() - began < 60_000) {
    await new Promise(requestAnimationFrame);
  }
  await new Promise(requestAnimationFrame);
  return (performance.now() - began) / 1000;
}"""


class OpenPage(Benchmark):
    """Measure the start, the opening, the tabs and the idle load of the page."""

    program: ClassVar[str] = "benchmarks.page"
    before: str | None = Field(None, description="Commit to compare with.")
    repeats: int = Field(3, ge=1, description="Starts of each page.")
    idle_s: float = Field(
        300, gt=0, description="Seconds of idle load, with all tabs opened and a run going."
    )


GOALS = {  # of rows of the report
    "first paint (s)": "0.8",
    "usable (s)": "2.5",
    "requests of the opening": "60",
    "a tab, mean (s)": "0.4",
    "a tab, the slowest (s)": "0.4",
    "idle, browser (% of a core)": "3",
    "growth of the heap (MB/h, extrapolated)": "0",
}


def main(argv: Sequence[str] | None = None) -> int:
    command = parse(OpenPage, argv)
    chromium = shutil.which("chromium")
    if chromium is None:
        raise UserError("chromium is absent; on Debian and Ubuntu: apt install chromium")
    with sync_playwright() as playwright, tempfile.TemporaryDirectory(prefix="page_") as name:
        folder, repositories = Path(name), {"now": REPOSITORY}
        if command.before is not None:
            repositories = {command.before: checked_out(command.before, folder / "before"), **repositories}
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)

        cases = {
            title: partial(opening, browser, repository, folder / f"workspace_{title}", command.idle_s)
            for title, repository in repositories.items()
        }
        found = interleaved(cases, command.repeats)
        browser.close()
    rows = [
        [title, *(f"{median(each[title] for each in measured):.2f}" for measured in found.values()), goal]
        for title, goal in ((title, GOALS.get(title, "")) for title in found["now"][0])
    ]
    publish(command, "Opening, tabs and idle load of the page", table(["median", *found, "goal"], rows))
    return 0


def checked_out(commit: str, folder: Path) -> Path:
    """Write the files of a commit into a new folder; return it."""
    folder.mkdir()
    archive = subprocess.run(["git", "archive", commit], cwd=REPOSITORY, stdout=subprocess.PIPE, check=True)
    subprocess.run(["tar", "-x"], cwd=folder, input=archive.stdout, check=True)
    return folder


@contextmanager
def served(repository: Path, folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], int, float]]:
    """Serve a repository's page beside a run; give the process, its port and the seconds of its start."""
    folder.mkdir(parents=True)
    make_watched_workspace(folder)
    project = Project(folder / "well")
    (folder / "train.py").write_text(TRAIN)
    words = (str(project.run_dir / "metrics.jsonl"),)
    job = start_job(project, "train", [command_for(str(folder / "train.py"), words)])
    port, began = free_port(), time.monotonic()
    argv = [sys.executable, "webui_amharic.py", f"--port={port}", f"--workspace={folder}"]
    with subprocess.Popen(argv, cwd=repository, stdout=subprocess.DEVNULL) as server:
        try:
            while not answers(port):
                if server.poll() is not None:
                    raise RuntimeError(f"the page exited with status {server.returncode}")
                time.sleep(0.05)
            yield server, port, time.monotonic() - began
        finally:
            server.kill()
            kill_job(job)


def opening(browser: Browser, repository: Path, folder: Path, idle_s: float, number: int) -> dict[str, float]:
    """Start a page, open it and its tabs, leave it idle, and return the rows of the report."""
    with served(repository, folder / str(number)) as (server, port, start_s):
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        session = page.context.new_cdp_session(page)
        for domain in ("Network", "Performance"):
            session.send(f"{domain}.enable")
        received: list[int] = []
        session.on("Network.dataReceived", lambda event: received.append(event["encodedDataLength"]))
        requests: list[str] = []
        page.on("request", lambda request: requests.append(request.url))

        def heap() -> float:
            session.send("HeapProfiler.collectGarbage")
            metrics = session.send("Performance.getMetrics")["metrics"]
            return float(next(each["value"] for each in metrics if each["name"] == "JSHeapUsedSize")) / MB

        def renderer() -> float:
            processes = browser.new_browser_cdp_session().send("SystemInfo.getProcessInfo")["processInfo"]
            return float(sum(each["cpuTime"] for each in processes if each["type"] == "renderer"))

        began, cpu = time.monotonic(), renderer()
        page.goto(f"http://127.0.0.1:{port}/?project=well", wait_until="commit")
        page.locator("body[data-project]").wait_for(timeout=120_000)
        usable_s, usable_cpu_s = time.monotonic() - began, renderer() - cpu
        page.wait_for_timeout(1_000 * SETTLE_S)
        paint = "performance.getEntriesByName('first-contentful-paint')[0].startTime / 1000"
        first_paint_s, num_requests, received_mb = page.evaluate(paint), len(requests), sum(received) / MB
        tabs_s = [open_tab(page, tab) for tab in TABS]
        page.evaluate(OPEN_TAB, "monitor")
        page.wait_for_timeout(1_000 * SETTLE_S)
        heap_mb, before = heap(), len(requests)
        began, cpu, server_cpu = time.monotonic(), renderer(), cpu_s(server.pid)
        page.wait_for_timeout(1_000 * idle_s)
        waited_s = time.monotonic() - began
        result = {
            "start of the server (s)": start_s,
            "first paint (s)": first_paint_s,
            "usable (s)": usable_s,
            "usable, processor time (s)": usable_cpu_s,
            "requests of the opening": num_requests,
            "received at the opening (MB)": received_mb,
            "a tab, mean (s)": sum(tabs_s) / len(tabs_s),
            "a tab, the slowest (s)": max(tabs_s),
            "idle, browser (% of a core)": 100 * (renderer() - cpu) / waited_s,
            "idle, server (% of a core)": 100 * (cpu_s(server.pid) - server_cpu) / waited_s,
            "idle, requests a minute": 60 * (len(requests) - before) / waited_s,
            "heap after all tabs (MB)": heap_mb,
            "growth of the heap (MB/h, extrapolated)": 3600 * (heap() - heap_mb) / waited_s,
            "memory of the server (MB)": process_memory(server.pid, "VmRSS") / MB,
        }
        page.close()
        return result


def open_tab(page: Page, tab: str) -> float:
    """Open a tab, wait until it has settled, and return the seconds until its content was shown."""
    seconds = float(page.evaluate(OPEN_TAB, tab))
    page.wait_for_timeout(1_000 * SETTLE_S)
    return seconds


if __name__ == "__main__":
    run(main)
