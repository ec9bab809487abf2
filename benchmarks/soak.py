"""Memory of the page's server, and delay of the open pages, over a long training.

    python -m benchmarks.soak --hours 2 --times 20 --pages 3

A job writes the output of a training of some hours at `--times` its speed: metrics by the trainer's own
writer, and the log. Pages in a headless Chromium show it: the first on tab 6, the rest on tab 7. The
benchmark measures the memory of the server process without shared pages, and its processor time, from the
time when all pages are open; and for each page the longest time between two changes of the newest step that
it shows.
"""

import math
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import psutil
from playwright.sync_api import Page, sync_playwright
from pydantic import Field

from benchmarks.frame import Benchmark, publish, table
from benchmarks.page_browser import FLAGS, serving
from benchmarks.soak_training import Replay
from indextts.commands.app import WebUI
from indextts.commands.terminal import parse, run
from indextts.projects.jobs.starting import start_job
from indextts.projects.jobs.stopping import kill_job
from indextts.projects.project import Project
from indextts.system.amounts import counted
from indextts.webui.app import build_app

POLL_S = 0.25
MEMORY_INTERVAL_S = 10
NEWEST_STEP = {
    "training": """() => document.querySelector('#train-log .log-view')
        ?.innerText.match(/step=(\\d+)/g)?.at(-1)""",
    # "1,200 of 5,000", and "-" before the first line
    "monitor": """() => document.querySelector('#monitor-summary dd')
        ?.innerText.match(/^[\\d,]+/)?.[0]""",
}


class Soak(Benchmark):
    """Run the page over a long training."""

    program: ClassVar[str] = "benchmarks.soak"
    hours: float = Field(2.0, gt=0, description="Hours of training.")
    times: float = Field(20.0, gt=0, description="Speed of the replay, 1 for real time.")
    pages: int = Field(3, ge=1, description="Open pages.")
    port: int = Field(7901, description="Port of the page.")
    chromium: str = Field("/usr/bin/chromium", description="Browser program.")


@dataclass
class WatchedPage:
    """The newest step that a page showed, and the times between changes."""

    page: Page
    tab: str
    shown: str = ""
    changed: float = 0.0
    gaps: list[float] = field(default_factory=list)

    def poll(self, now: float) -> None:
        newest = self.page.evaluate(NEWEST_STEP[self.tab])
        if newest and newest != self.shown:
            if self.shown:
                self.gaps.append(now - self.changed)
            self.shown, self.changed = newest, now


def main(argv: Sequence[str] | None = None) -> int:
    command = parse(Soak, argv)
    with tempfile.TemporaryDirectory() as folder:
        lines = soak(Path(folder), command)
    publish(command, "The page over a long training", lines)
    return 0


def soak(folder: Path, command: Soak) -> list[str]:
    """Run the server, the job and the pages; return the report."""
    build_app(WebUI(workspace=folder))  # creates the demo project
    project = Project(folder / "demo")
    replay = Replay(run_dir=project.run_dir, hours=command.hours, times=command.times)
    job = start_job(project, "train", [replay])
    try:
        with serving(folder, command.port) as server, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=command.chromium, args=FLAGS)
            context = browser.new_context()
            tabs = ["training", *["monitor"] * (command.pages - 1)]
            pages = [WatchedPage(context.new_page(), tab) for tab in tabs]
            for watched in pages:
                watched.page.goto(f"http://127.0.0.1:{command.port}")
                watched.page.locator(f"#tab-{watched.tab}-button").click()
            process = psutil.Process(server.pid)
            before = sum(process.cpu_times()[:2])
            memory = watch(pages, process, command.hours * 3600 / command.times)
            cpu_s = sum(process.cpu_times()[:2]) - before
            browser.close()
    finally:
        kill_job(job)
    return report(command, pages, memory, cpu_s)


def watch(pages: Sequence[WatchedPage], server: psutil.Process, seconds: float) -> list[float]:
    """Poll the pages until the training ends; return the server's memory (MB) every ten seconds."""
    memory: list[float] = []
    began = time.monotonic()
    while (now := time.monotonic()) < began + seconds:
        for watched in pages:
            watched.poll(now)
        if now > began + MEMORY_INTERVAL_S * (len(memory) + 1):
            memory.append(server.memory_full_info().uss / 1e6)
        time.sleep(POLL_S)
    return memory


def report(command: Soak, pages: Sequence[WatchedPage], memory: Sequence[float], cpu_s: float) -> list[str]:
    settled = memory[len(memory) // 10 :]  # without the first tenth, in which caches fill
    rows = [[each.tab, str(len(each.gaps)), f"{max(each.gaps, default=math.inf):.1f}"] for each in pages]
    return [
        f"{command.hours:g} hours of training at {command.times:g} times its speed, "
        f"{counted(command.pages, 'page')} open.",
        "",
        f"Unshared memory of the server, every {MEMORY_INTERVAL_S} s after the first tenth: minimum "
        f"{min(settled):.0f} MB, maximum {max(settled):.0f} MB, first {settled[0]:.0f} MB, last "
        f"{settled[-1]:.0f} MB. Its processor time: {cpu_s:.0f} s.",
        "",
        *table(["page", "changes seen", "longest time between two (s)"], rows),
    ]


if __name__ == "__main__":
    run(main)
