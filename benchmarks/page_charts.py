"""Main-thread tasks, nodes and bytes of the charts of tab 7 with a long run.

    python -m benchmarks.page_charts --points 100000 --pages 3

The run has `--points` logged lines and grows by one a second. Pages of a headless Chromium show tab 7. After
its charts are drawn, a PerformanceObserver collects the tasks that block a page's main thread for 50 ms or
longer ("longtask"). The benchmark uses the first page: it moves the pointer across a chart, zooms and shows
all steps again, changes smoothing and scale, opens the other charts, and then waits. Tasks while the page
starts are Gradio's own and are reported apart.
"""

import json
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar

from playwright.sync_api import Page, sync_playwright
from pydantic import Field

from benchmarks.frame import Benchmark, publish, table
from benchmarks.page_browser import FLAGS, serving
from indextts.commands.app import WebUI
from indextts.commands.terminal import parse, run
from indextts.projects.project import Project
from indextts.system.amounts import counted, shown_size
from indextts.webui.app import build_app

LOG_INTERVAL = 10  # steps between two [Train] lines
VAL_INTERVAL = 5_000
WAIT_S = 60.0
START_S = 30.0  # after the charts are drawn, in which the pages load their other parts
LIMIT_MS = 100

OBSERVE = """
  window.longTasks = [];
  new PerformanceObserver(list => {
    for (const task of list.getEntries()) window.longTasks.push(task.duration);
  }).observe({ type: "longtask", buffered: true });
"""
TAKE_TASKS = "() => window.longTasks.splice(0)"
IS_DRAWN = "() => document.querySelector('#plot-mel-loss svg path.training')"
IS_ZOOMED = "() => document.querySelector('#plot-mel-loss [data-show-all]')"
CHART_SIZES = """() => [...document.querySelectorAll('.charts .chart')].map(e =>
  [e.closest('[id^="plot-"]').id, e.querySelectorAll('*').length, e.outerHTML.length])"""


class PageCharts(Benchmark):
    """Measure the charts of tab 7 in a browser."""

    program: ClassVar[str] = "benchmarks.page_charts"
    points: int = Field(100_000, ge=100, description="Logged lines of the run.")
    pages: int = Field(3, ge=1, description="Open pages.")
    port: int = Field(7902, description="Port of the page.")
    chromium: str = Field("/usr/bin/chromium", description="Browser program.")


def main(argv: Sequence[str] | None = None) -> int:
    command = parse(PageCharts, argv)
    with tempfile.TemporaryDirectory() as folder:
        lines = measure(Path(folder), command)
    publish(command, "The charts of a long run in a browser", lines)
    return 0


def measure(folder: Path, command: PageCharts) -> list[str]:
    """Write the run, open the pages and use the first; return the report."""
    build_app(WebUI(workspace=folder))  # creates the demo project
    metrics = Project(folder / "demo").run_dir / "metrics.jsonl"
    write_run(metrics, command.points)
    ended = threading.Event()
    growing = threading.Thread(target=grow, args=(metrics, command.points, ended))
    growing.start()
    try:
        with serving(folder, command.port), sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=command.chromium, args=FLAGS)
            context = browser.new_context(viewport={"width": 1440, "height": 900})
            context.add_init_script(OBSERVE)
            pages = [context.new_page() for _ in range(command.pages)]
            for page in pages:
                page.goto(f"http://127.0.0.1:{command.port}/?project=demo#monitor")
                page.wait_for_function(IS_DRAWN, timeout=120_000)
            pages[0].wait_for_timeout(1000 * START_S)
            tasks = [["opening the pages", *_longest(pages)]]
            for name, use in USES.items():
                use(pages[0])
                tasks.append([name, *_longest(pages)])
            sizes = pages[0].evaluate(CHART_SIZES)
            browser.close()
    finally:
        ended.set()
        growing.join()
    return report(command, tasks, sizes)


def write_run(metrics: Path, points: int) -> None:
    """Write a run whose loss falls, with a validation at every VAL_INTERVAL steps."""
    metrics.parent.mkdir(parents=True, exist_ok=True)
    with metrics.open("w", encoding="utf-8") as file:
        start = {"kind": "start", "part": 1, "step": 0, "epoch": 0, "total_steps": 2 * LOG_INTERVAL * points}
        file.write(json.dumps({**start, "time": time.time() - points}) + "\n")
        for number in range(1, points + 1):
            file.writelines(_lines(number, time.time() - points + number))


def grow(metrics: Path, points: int, ended: threading.Event) -> None:
    """Append a line every second."""
    while not ended.wait(1.0):
        points += 1
        with metrics.open("a", encoding="utf-8") as file:
            file.writelines(_lines(points, time.time()))


def report(command: PageCharts, tasks: list[list[str]], sizes: Sequence[tuple[str, int, int]]) -> list[str]:
    rows = [[name, str(nodes), shown_size(num_bytes)] for name, nodes, num_bytes in sizes]
    return [
        f"A run with {counted(command.points, 'logged line')}, {counted(command.pages, 'page')} open. "
        f"The aim: no main-thread task over {LIMIT_MS} ms once the charts are drawn.",
        "",
        *table(["in the first page", "tasks of 50 ms or longer, all pages", "longest (ms)"], tasks),
        "",
        *table(["chart", "nodes", "HTML"], rows),
    ]


def _lines(number: int, now: float) -> list[str]:
    step = LOG_INTERVAL * number
    noise = (number * 7919 % 1000 - 500) / 2000  # a fixed pattern in place of a generator
    loss = 1.5 + 4.0 / (1 + step / 20_000) + noise
    place = {"part": 1, "step": step, "epoch": step // 50_000, "time": now}
    losses = {"text_loss": 1.2 * loss, "mel_loss": loss, "mel_top1": 1 / loss, "new_text_loss": 1.3 * loss}
    rates = {"lr": 5e-5, "grad_norm": 1 + noise, "tokens_per_second": 9_000.0 + 500 * noise}
    waits = {"data_wait": 0.002, "num_skipped": 0}
    found = [json.dumps({"kind": "train", **place, **losses, **rates, **waits}) + "\n"]
    if step % VAL_INTERVAL == 0:
        found.append(json.dumps({"kind": "val", **place, **losses}) + "\n")
    return found


def _longest(pages: Sequence[Page]) -> list[str]:
    """Return number and maximum of the long tasks since the last call."""
    found = [task for page in pages for task in page.evaluate(TAKE_TASKS)]
    return [str(len(found)), f"{max(found):.0f}" if found else "below 50"]


def _move_pointer(page: Page) -> None:
    box = _plot(page)
    for place in range(200):
        page.mouse.move(box["x"] + box["width"] * place / 200, box["y"] + box["height"] / 2)


def _zoom(page: Page) -> None:
    box = _plot(page)
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + 0.5 * box["width"], middle)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.6 * box["width"], middle, steps=20)
    page.mouse.up()
    page.wait_for_function(IS_ZOOMED, timeout=60_000)
    page.mouse.dblclick(box["x"] + 0.5 * box["width"], middle)
    page.wait_for_function(f"() => !({IS_ZOOMED})()", timeout=60_000)


def _plot(page: Page) -> dict[str, float]:
    box = page.locator("#plot-mel-loss .plot").bounding_box()
    assert box is not None
    return {"x": box["x"], "y": box["y"], "width": box["width"], "height": box["height"]}


def _change_display(page: Page) -> None:
    page.locator("#monitor-smoothing input[type=number]").fill("0.95")
    page.locator("#monitor-smoothing input[type=number]").press("Tab")
    page.locator("#monitor-log").get_by_role("checkbox").check()
    page.wait_for_timeout(5_000)


def _open_others(page: Page) -> None:
    page.locator("#monitor-more-button").click()
    page.wait_for_timeout(2_000)


def _wait(page: Page) -> None:
    page.wait_for_timeout(1000 * WAIT_S)


USES: dict[str, Callable[[Page], None]] = {
    "200 moves of the pointer over a chart": _move_pointer,
    "zooming by dragging, and back": _zoom,
    "other smoothing, logarithmic scale": _change_display,
    "opening the other charts": _open_others,
    f"watching the run grow for {WAIT_S:.0f} s": _wait,
}


if __name__ == "__main__":
    run(main)
