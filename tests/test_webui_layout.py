"""The layout of the page and its language in a real browser, in projects in which nothing runs.

The walks through the demo measure it while a job runs and after it ended.
"""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.page_layout import DESKTOP, open_tabs, problems_of_tabs
from tests.walking import Server
from tests.watched_workspace import make_watched_workspace

pytestmark = pytest.mark.long


def require_good_layout(server: Server, browser: Browser) -> None:
    page = browser.new_page(viewport=DESKTOP)
    errors: list[str] = []
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(server.url)
    assert problems_of_tabs(page) == {}
    assert errors == []
    page.close()


def test_every_tab_fits_and_can_be_read_before_anything_was_done(server: Server, browser: Browser):
    require_good_layout(server, browser)


def test_every_tab_fits_and_can_be_read_after_a_run_with_every_problem(browser: Browser, tmp_path: Path):
    make_watched_workspace(tmp_path / "workspace")
    server = Server(tmp_path / "workspace")
    try:
        require_good_layout(server, browser)
    finally:
        server.kill()


def test_every_start_button_is_in_the_language_of_the_page(server: Server, browser: Browser):
    context = browser.new_context(viewport=DESKTOP)
    context.add_cookies([{"name": "language", "value": "am", "url": server.url}])
    page = context.new_page()
    page.goto(server.url)
    for _ in open_tabs(page):
        for button in page.locator("button.primary:visible").all():
            expect(button).to_have_text(re.compile("[\u1200-\u137f]"))
    context.close()
