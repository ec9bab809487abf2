"""The layout of the page in a real browser, in an untouched project."""

import pytest
from playwright.sync_api import Browser

from tests.page_layout import DESKTOP, problems_of_all_tabs
from tests.walking import Server

pytestmark = pytest.mark.slow


def test_every_tab_fits_and_can_be_read_before_anything_was_done(server: Server, browser: Browser):
    page = browser.new_page(viewport=DESKTOP)
    errors: list[str] = []
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(server.url)
    assert problems_of_all_tabs(page) == {}
    assert errors == []
    page.close()
