"""What a reload keeps: the address (project, tab and what is shown of it), and typed values."""

import json
import re

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.page_layout import DESKTOP
from tests.waiting import wait_until
from tests.walking import find_tab, open_tab, wait_for
from tests.webui_server import Server

pytestmark = pytest.mark.long


def expect_open(page: Page, name: str) -> None:
    expect(find_tab(page, name)).to_have_attribute("aria-selected", "true")


def test_reload_back_and_links_lead_to_the_tab_in_the_address(server: Server, browser: Browser):
    page = browser.new_page(viewport=DESKTOP)
    page.goto(f"{server.url}#training")
    expect_open(page, "6 ")
    expect(page).to_have_url(re.compile(r"\?project=[^#]+#training$"))

    open_tab(page, "2 ")
    expect(page).to_have_url(re.compile(r"\?project=[^#]+#data$"))
    page.locator("#data-tab-review-button").click()
    expect(page).to_have_url(re.compile(r"\?project=[^#]+#data/data-tab-review$"))
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
    find_tab(page, "2 ").press("ArrowRight")
    expect_open(page, "3 ")


def test_typed_values_of_tabs_4_and_5_stay_after_a_reload(server: Server, browser: Browser):
    page = browser.new_page(viewport=DESKTOP)
    page.goto(server.url)
    typed = {
        "4 ": ("preprocess", "Preprocess-val_ratio", "0.25"),
        "5 ": ("pairs", "BuildPairs-pairs_per_target", "7"),
    }
    for tab, (stage, field, text) in typed.items():
        open_tab(page, tab)
        wait_for(page, f"{stage}-command", "python")  # the form is filled
        box = page.locator(f"#{field} input")
        box.fill(text)
        box.press("Tab")
        wait_for(page, f"{stage}-command", text.replace(".", r"\."))
        draft = server.workspace / "demo/drafts" / f"{stage}.json"
        wait_until(draft.is_file, explain=server.log.read_text)
        assert json.loads(draft.read_text())["values"] == {field.partition("-")[2]: float(text)}
    page.reload()
    for tab, (stage, field, text) in typed.items():
        open_tab(page, tab)
        expect(page.locator(f"#{field} input")).to_have_value(text)
        wait_for(page, f"{stage}-command", text.replace(".", r"\."))

    # a draft that the program would refuse is dropped
    draft.write_text('{"values": {"pairs_per_target": 0}}')
    page.reload()
    open_tab(page, "5 ")
    expect(page.locator("#BuildPairs-pairs_per_target input")).not_to_have_value("0")
    wait_for(page, "pairs-command", "build_gpt_prompt_pairs")
