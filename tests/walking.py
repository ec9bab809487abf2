"""A real browser, for tests that act as a user."""

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Locator, Page, Request, expect, sync_playwright

from tests.waiting import PATIENCE_MS, wait_until

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"]
FLAGS += ["--disable-background-networking", "--disable-component-update"]
FOLLOW_CALLS = Path(__file__).with_suffix(".js")


@contextmanager
def launched(chromium: str, *flags: str) -> Iterator[Browser]:
    """Start a browser in which every wait is patient: a page, a click, an expectation."""
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium, args=[*FLAGS, *flags], timeout=PATIENCE_MS
        )
        for name in ("new_context", "new_page"):
            setattr(browser, name, _patient(getattr(browser, name)))
        yield browser
        browser.close()


def _patient(make: Callable[..., Any]) -> Callable[..., Any]:
    def made(**options: Any) -> Any:
        page_or_context = make(**options)
        page_or_context.set_default_timeout(PATIENCE_MS)
        page_or_context.add_init_script(path=FOLLOW_CALLS)
        return page_or_context

    return made


class Settling:
    """Tells when a page has stopped asking the server, so that its views are filled."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.running: set[Request] = set()
        self.changed = time.monotonic()
        page.on("request", lambda request: self._follow(request, is_running=True))
        for event in ("requestfinished", "requestfailed"):
            page.on(event, lambda request: self._follow(request, is_running=False))  # type: ignore[call-overload]

    def _follow(self, request: Request, *, is_running: bool) -> None:
        if not re.search(r"heartbeat|queue/data", request.url):  # may be open as long as the page is
            (self.running.add if is_running else self.running.discard)(request)
            self.changed = time.monotonic()

    def wait(self, quiet_s: float = 0.5) -> None:
        self.changed = time.monotonic()
        wait_until(self._is_quiet_for(quiet_s), explain=self._unfinished)

    def _unfinished(self) -> list[str]:
        return [request.url for request in self.running] + self.page.evaluate("unansweredCalls()")

    def _is_quiet_for(self, quiet_s: float) -> Callable[[], bool]:
        def is_quiet() -> bool:
            self.page.wait_for_timeout(50)  # Playwright reports requests only while it is called
            if self._unfinished():
                self.changed = time.monotonic()
            return time.monotonic() - self.changed >= quiet_s

        return is_quiet


def open_tab(page: Page, name: str) -> None:
    find_tab(page, name).click()


def wait_for_project(page: Page) -> None:
    """Wait until the page has chosen its project; clicks wait by themselves, files and typed text do not."""
    expect(page.locator("body[data-project]")).to_be_attached()


def find_tab(page: Page, name: str) -> Locator:
    """Return the button of a tab; its accessible name also has the mark of the tab's state."""
    return page.get_by_role("tab", name=re.compile(f"^{re.escape(name)}"))


def plan_row(page: Page, kind: str, name: str) -> Locator:
    """Return the row of the restore plan with this name, if it is of this kind."""
    title = page.locator("b").filter(has_text=re.compile(f"^{re.escape(name)}$"))
    return page.locator(f"#train-plan li.{kind}").filter(has=title)


def value(page: Page, element: str) -> str:
    """Return the text of a field or a log as it is now; the log of a status is shown a moment after it."""
    if element.endswith("-log"):
        return page.locator(f"#{element} .log-view").inner_text()
    return page.locator(f"#{element} textarea, #{element} input").first.input_value()


def wait_for(page: Page, element: str, pattern: str) -> None:
    """Wait until a field or a log matches the pattern."""
    wanted = re.compile(pattern, re.DOTALL)
    if element.endswith("-log"):
        expect(page.locator(f"#{element} .log-view")).to_contain_text(wanted)
        return
    expect(page.locator(f"#{element} textarea, #{element} input").first).to_have_value(wanted)
