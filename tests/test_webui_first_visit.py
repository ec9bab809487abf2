"""The first visit as a user sees it: one click runs the demo, and the page leads to its sound."""

import re

import pytest
from playwright.sync_api import Browser, expect

from tests.page_layout import problems_of_tabs
from tests.walking import Server, wait_for

pytestmark = pytest.mark.long

OF_2_5 = "demo_2.5"
ALL_DONE = 'document.querySelectorAll("#way .way li.done").length === 6'


def test_one_click_runs_the_demo_to_its_sound_and_a_stop_in_between_resumes(server: Server, browser: Browser):
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(server.url)
    start = page.locator("#demo-start")
    expect(start).to_be_visible()
    expect(start).to_be_enabled()
    box = start.bounding_box()
    assert box is not None
    assert box["y"] + box["height"] < 900
    expect(page.locator("#project-start")).to_be_visible()  # the other offer, beside it
    expect(page.locator("#next-step a")).to_have_count(0)

    start.click()
    wait_for(page, "demo-status", r"^running for")
    expect(page.locator("#now .chip")).to_have_attribute("href", "?project=demo#project")
    expect(page.locator("#way li.running")).to_have_count(1)
    expect(page.locator("#way li.done").first).to_be_visible()
    page.locator("#demo-stop").click()
    wait_for(page, "demo-status", r"^stopped after")
    expect(page.locator("#way li.stopped, #way li.failed")).to_have_count(1)
    page.reload()

    start.click()  # the same button resumes
    wait_for(page, "demo-status", r"^running for")
    page.wait_for_function(ALL_DONE, timeout=900_000)
    expect(page.locator("#demo-panel")).to_be_hidden()
    expect(page.locator("#runs svg.spark")).to_have_count(1)
    listen = page.locator("#next-step a.primary-link")
    expect(listen).to_have_attribute("href", "#listen")
    listen.click()
    expect(page).to_have_url(re.compile("#listen$"))
    expect(page.locator("#tab-listen-button")).to_have_attribute("aria-selected", "true")
    assert problems_of_tabs(page) == {}
    assert not problems
    page.close()


def test_the_demo_of_the_other_base_starts_and_stops_beside_that_of_2_0(server: Server, browser: Browser):
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(server.url)
    of_2_0, of_2_5 = (page.locator(f"#demo-base input[value='{base}']") for base in ("2.0", "2.5"))
    expect(of_2_0).to_be_checked()
    of_2_5.check()
    expect(page.locator("#project input")).to_have_value(OF_2_5)
    expect(page).to_have_url(re.compile(f"project={OF_2_5}"))
    expect(page.locator("#demo-command textarea")).to_have_value(re.compile("--base=2.5"))
    expect(page.locator("#visit.first")).to_have_count(1)
    expect(page.locator("#project-start")).to_be_visible()  # the other offer, beside it
    page.locator("#demo-start").click()
    wait_for(page, "demo-status", r"^running for")
    expect(page.locator("#now .chip")).to_have_attribute("href", f"?project={OF_2_5}#project")
    page.locator("#demo-stop").click()
    wait_for(page, "demo-status", r"^stopped after")
    page.reload()
    expect(of_2_5).to_be_checked()
    of_2_0.check()
    expect(page.locator("#demo-command textarea")).not_to_have_value(re.compile("--base"))
    expect(page.locator("#demo-status textarea")).to_have_value("")
    assert not problems
    page.close()
