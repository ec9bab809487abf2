"""The page over a long training: does its memory stay flat, does an open page miss anything?

    python -m benchmarks.soak --hours 2 --times 20 --pages 3 --output benchmarks/results/soak.md

A job writes what a training of some hours writes, its metrics by the trainer's own writer and its log, so
many times faster; real pages in a headless Chromium watch it: the first tab 6, the others tab 7. Measured are
the memory of the server's process (less what it shares), from when all pages are open, and on each page the
longest time between two changes of the newest step that it shows.
"""

import argparse
import math
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar

import psutil
from playwright.sync_api import Page, sync_playwright
from pydantic import Field

from benchmarks.page_browser import FLAGS, serving
from benchmarks.workload import git_commit
from indextts.commands.app import WebUI
from indextts.commands.base import Command
from indextts.projects.jobs.starting import start_job
from indextts.projects.jobs.stopping import kill_job
from indextts.projects.project import Project
from indextts.webui.app import build_app

LOOK_S = 0.25
NEWEST_STEP = {
    "training": """() => document.querySelector('#train-log .log-view')
        ?.innerText.match(/step=(\\d+)/g)?.at(-1)""",
    "monitor": """() => document.querySelector('#monitor-summary')?.innerText.match(/step [\\d,]+/)?.[0]""",
}


class Replay(Command):
    """The job: what a training writes, faster."""

    program: ClassVar[str] = "benchmarks/soak_training.py"

    run_dir: Path = Field(Path())
    hours: float = 0.0  # what is the default is left out of a command line
    times: float = 0.0


@dataclass
class Watched:
    """What one page showed, and when it last changed."""

    page: Page
    tab: str
    shown: str = ""
    changed: float = 0.0
    gaps: list[float] = field(default_factory=list)

    def look(self, now: float) -> None:
        newest = self.page.evaluate(NEWEST_STEP[self.tab])
        if newest and newest != self.shown:
            if self.shown:
                self.gaps.append(now - self.changed)
            self.shown, self.changed = newest, now


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.soak", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--hours", type=float, default=2.0, help="of training")
    parser.add_argument("--times", type=float, default=20.0, help="how much faster they are written")
    parser.add_argument("--pages", type=int, default=3)
    parser.add_argument("--port", type=int, default=7901)
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    parser.add_argument("--output", type=Path, help="write the report there, too")
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        report = soak(Path(folder), args)
    print(report)
    if args.output:
        args.output.write_text(report + "\n", encoding="utf-8")
    return 0


def soak(folder: Path, args: argparse.Namespace) -> str:
    """Run the server, the job and the pages; return the report."""
    build_app(WebUI(workspace=folder))  # makes the demo project
    project = Project(folder / "demo")
    job = start_job(project, "train", [Replay(run_dir=project.run_dir, hours=args.hours, times=args.times)])
    try:
        with serving(folder, args.port) as server, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=args.chromium, args=FLAGS)
            context = browser.new_context()
            tabs = ["training", *["monitor"] * (args.pages - 1)]
            pages = [Watched(context.new_page(), tab) for tab in tabs]
            for watched in pages:
                watched.page.goto(f"http://127.0.0.1:{args.port}")
                watched.page.locator(f"#tab-{watched.tab}-button").click()
            memory = watch(pages, psutil.Process(server.pid), args.hours * 3600 / args.times)
            browser.close()
    finally:
        kill_job(job)
    return report_of(args, pages, memory)


def watch(pages: Sequence[Watched], server: psutil.Process, seconds: float) -> list[float]:
    """Look at the pages until the training is over; return the server's memory (MB) every ten seconds."""
    memory: list[float] = []
    began = time.monotonic()
    while (now := time.monotonic()) < began + seconds:
        for watched in pages:
            watched.look(now)
        if now > began + 10 * (len(memory) + 1):
            memory.append(server.memory_full_info().uss / 1e6)
        time.sleep(LOOK_S)
    return memory


def report_of(args: argparse.Namespace, pages: Sequence[Watched], memory: Sequence[float]) -> str:
    settled = memory[len(memory) // 10 :]  # without the first tenth, in which everything is made once
    lines = [
        "# The page over a long training",
        "",
        f"{datetime.now(UTC):%Y-%m-%d}, {psutil.cpu_count()} cores, {git_commit()}: "
        f"{args.hours:g} hours of training written {args.times:g} times faster, {args.pages} pages open.",
        "",
        f"Memory of the server's own, every 10 s from the first tenth on: least {min(settled):.0f} MB, most "
        f"{max(settled):.0f} MB, first {settled[0]:.0f} MB, last {settled[-1]:.0f} MB.",
        "",
        "| page | changes seen | longest time between two (s) |",
        "|---|---|---|",
        *(f"| {one.tab} | {len(one.gaps)} | {max(one.gaps, default=math.inf):.1f} |" for one in pages),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
