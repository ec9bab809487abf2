"""Watching a job: many pages, a server crash, a scrolling reader, a phone, two languages."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from indextts.projects.jobs.records import newest_job
from indextts.projects.jobs.starting import start_job
from indextts.projects.jobs.stopping import kill_job
from indextts.projects.project import Project
from tests.running_jobs import command_for
from tests.walking import open_tab, value, wait_for
from tests.webui_server import Server

NUM_PAGES = 3
COUNTS = """
import itertools, signal, sys, time
def end(number, frame):
    print("saved")
    sys.exit(143)
signal.signal(signal.SIGTERM, end)
for number in itertools.count(1):
    print(f"line {number}" + " with <b>markup</b>" * (number % 10 == 0))
    time.sleep(0.2)
"""

# a new line may come between the scrolling and the event that tells the page of it
SCROLL_UP = """() => {
  const box = document.querySelector('#train-log .log-view');
  if (!box.dataset.held) box.scrollTop = 0;
  return box.dataset.held;
}"""

LINES = "document.querySelector('#train-log .log-view').innerText.trim().split('\\n')"

pytestmark = pytest.mark.long


@pytest.fixture
def counting(server: Server, tmp_path: Path) -> Iterator[Server]:
    """Give a server on whose demo project a job counts, line by line."""
    program = tmp_path / "count.py"
    program.write_text(COUNTS)
    project = Project(server.workspace / "demo")
    job = start_job(project, "train", [command_for(str(program))])
    yield server
    kill_job(job)


def last_line(page: Page) -> int:
    """Return the number in the last line of the log that the page shows."""
    found = re.findall(r"line (\d+)", value(page, "train-log"))
    return int(found[-1]) if found else 0


def wait_for_more(page: Page, than: int) -> None:
    page.wait_for_function(
        """than => {
          const lines = document.querySelector('#train-log .log-view')?.innerText.match(/line (\\d+)/g) ?? [];
          return lines.length && Number(lines.at(-1).slice(5)) > than;
        }""",
        arg=than,
    )


def open_page(context: BrowserContext, server: Server) -> Page:
    page = context.new_page()
    page.goto(server.url)
    open_tab(page, "6 Training")
    wait_for(page, "train-status", r"^running for")
    return page


def test_many_pages_watch_a_job_through_a_server_crash(counting: Server, browser: Browser):
    context = browser.new_context()
    context.grant_permissions(["notifications"])
    pages = [open_page(context, counting) for _ in range(NUM_PAGES)]
    seen = [last_line(page) for page in pages]
    for page, than in zip(pages, seen, strict=True):
        wait_for_more(page, than)

    counting.kill()
    counting.start()
    for page in pages:  # by itself: nobody reloads it
        wait_for_more(page, last_line(page) + 5)

    pages[-1].locator("#train-stop").click()
    for page in pages:
        wait_for(page, "train-status", r"^stopped after")
        expect(page).to_have_title(re.compile("demo: train stopped after"))
    assert newest_job(Project(counting.workspace / "demo"), "train").state == "stopped"
    context.close()


def test_the_log_keeps_its_position_for_a_reader_and_filters_lines(counting: Server, browser: Browser):
    context = browser.new_context()
    page = open_page(context, counting)
    wait_for_more(page, 60)  # more than the box shows at once
    box = page.locator("#train-log .log-view")
    assert box.locator("b").count() == 0
    page.wait_for_function(SCROLL_UP)
    held = last_line(page)
    expect(page.locator("#train-log.held")).to_have_count(1)  # there are newer lines
    assert last_line(page) == held
    assert box.evaluate("box => box.scrollTop") == 0
    box.evaluate("box => { box.scrollTop = box.scrollHeight }")
    wait_for_more(page, held)
    expect(page.locator("#train-log.held")).to_have_count(0)

    page.locator("#train-log-fold-button").click()
    page.locator("#train-log-filter textarea, #train-log-filter input").first.fill("MARKUP")
    page.wait_for_function(f"{LINES}.every(line => line.includes('markup'))")
    page.locator("#train-log-filter textarea, #train-log-filter input").first.fill("")
    page.wait_for_function(f"!{LINES}.every(line => line.includes('markup'))")

    with page.expect_download() as download:
        page.locator("#train-log-note a").click()
    assert "line 1\n" in download.value.path().read_text()
    context.close()


def test_a_phone_shows_log_and_stop_and_the_page_is_in_amharic(counting: Server, browser: Browser):
    context = browser.new_context(viewport={"width": 390, "height": 844})
    page = open_page(context, counting)
    assert page.evaluate("document.scrollingElement.scrollWidth") <= 390
    for element in ("#train-stop", "#train-log"):
        box = page.locator(element).bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390
    page.locator("#language").get_by_text("አማርኛ").click()
    expect(page.get_by_role("tab", name="1 ፕሮጀክት")).to_be_visible()
    assert page.evaluate("document.documentElement.lang") == "am"
    with page.expect_response(re.compile(r"noto-sans-ethiopic.*\.woff2")):
        page.reload()
    expect(page.get_by_role("tab", name="1 ፕሮጀክት")).to_be_visible()
    page.locator("#language").get_by_text("English").click()
    expect(page.get_by_role("tab", name="1 Project")).to_be_visible()
    context.close()
