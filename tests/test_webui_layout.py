"""The layout, the language and the keyboard in a real browser, in projects in which nothing runs.

The walks through the demo measure the layout while a job runs and after it ended.
"""

import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.page_layout import DESKTOP, open_tabs, problems_of_open_tab, problems_of_tabs
from tests.watched_workspace import make_watched_workspace
from tests.webui_server import Server

pytestmark = pytest.mark.long

MOST_PRESSES = 250
ETHIOPIC = re.compile("[\u1200-\u137f]")


def controls(page: Page) -> set[str]:
    return set(page.evaluate("controlNames()"))


def reached(page: Page) -> dict[str, bool]:
    """Press Tab until the page is through; return the names that had the focus, and whether it was seen."""
    page.locator("#brand a").focus()  # two buttons of a group may have one name, so start from others
    found: dict[str, bool] = {}
    first = ""
    for _ in range(MOST_PRESSES):
        page.keyboard.press("Tab")
        name, is_seen = page.evaluate("focusedControl()")
        if name and name == first:  # once around
            break
        first = first or name
        if name:
            found[name] = found.get(name, True) and is_seen
    return found


def test_every_tab_is_readable_in_amharic_and_usable_by_keyboard(server: Server, browser: Browser):
    context = browser.new_context(viewport=DESKTOP)
    context.add_cookies([{"name": "language", "value": "am", "url": server.url}])
    page = context.new_page()
    page.goto(server.url)
    page.add_script_tag(path=Path(__file__).with_name("keyboard.js"))
    problems: dict[str, Any] = {}
    for name in open_tabs(page):
        problems |= problems_of_open_tab(page, name)
        for button in page.locator("button.primary:visible").all():
            expect(button).to_have_text(ETHIOPIC)
        names, places = controls(page), reached(page)
        names &= controls(page)  # what was shown meanwhile may have made a button useless
        problems |= {f"{name}: not reached": missed for missed in [sorted(names - set(places))] if missed}
        unseen = sorted(each for each in names & set(places) if not places[each])
        problems |= {f"{name}: focus not seen": unseen} if unseen else {}
    assert problems == {}
    context.close()


def test_every_tab_fits_and_can_be_read_after_a_run_with_every_problem(browser: Browser, tmp_path: Path):
    make_watched_workspace(tmp_path / "workspace")
    server = Server(tmp_path / "workspace")
    page = browser.new_page(viewport=DESKTOP)
    errors: list[str] = []
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    try:
        page.goto(server.url)
        assert problems_of_tabs(page) == {}
    finally:
        server.kill()
    assert errors == []
    page.close()
