"""The address of the page: it names the project, the tab and what is shown of it."""

import re

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.page_layout import DESKTOP
from tests.walking import Server, find_tab, open_tab

pytestmark = pytest.mark.slow


def expect_open(page: Page, name: str) -> None:
    expect(find_tab(page, name)).to_have_attribute("aria-selected", "true")


def test_reload_back_and_links_lead_to_the_tab_in_the_address(server: Server, browser: Browser):
    page = browser.new_page(viewport=DESKTOP)
    page.goto(f"{server.url}#training")
    expect_open(page, "6 ")
    expect(page).to_have_url(re.compile(r"\?project=[^#]+#training$"))

    open_tab(page, "2 ")
    expect(page).to_have_url(re.compile("#data$"))
    page.locator("#data-tab-review-button").click()
    expect(page).to_have_url(re.compile("#data/data-tab-review$"))
    open_tab(page, "7 ")
    page.reload()
    expect_open(page, "7 ")
    page.go_back()
    expect_open(page, "2 ")
    expect(page.locator("#data-tab-review-button")).to_have_attribute("aria-selected", "true")
    page.go_back()
    expect_open(page, "6 ")
    page.go_forward()
    expect_open(page, "2 ")


def test_a_click_on_a_tab_is_not_undone_by_the_link_before_it(server: Server, browser: Browser):
    page = browser.new_page(viewport=DESKTOP)
    page.goto(server.url)
    expect_open(page, "1 ")
    link = page.locator('a[href="#data"]').first
    expect(link).to_be_visible()
    link.evaluate("link => { link.click(); document.getElementById('tab-training-button').click() }")
    page.wait_for_timeout(1_000)  # a link clicks its tab again until it is open
    expect_open(page, "6 ")
    expect(page).to_have_url(re.compile("#training$"))
