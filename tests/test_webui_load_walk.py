"""An open page: what its start sends, what a tab shows at once, and its cost while it is idle."""

import json
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.page_layout import DESKTOP, PHONE, open_tabs
from tests.walking import Settling, wait_for_project
from tests.watched_workspace import make_watched_workspace
from tests.webui_server import serving

pytestmark = pytest.mark.long

MAX_REQUESTS = 85  # 79 as measured; 129 with a file of styles for each component and a request for each form
IDLE_S, MAX_SHARE = 10, 0.3  # of a core, for a loaded machine; a page that draws itself for good takes 0.6
# the mark behind the name of each tab; how much the signs of more tabs are seen, left and right
MARKS = """[...document.querySelectorAll('#tabs > .tab-wrapper [role="tab"]')].map(
  tab => getComputedStyle(tab, "::after").content[1] ?? "")"""
SIGNS = """["::before", "::after"].map(
  sign => Number(getComputedStyle(document.querySelector("#tabs > .tab-wrapper"), sign).opacity))"""
# the project of the page's clicks and the project of the forms' values, at each change of the first
WATCH = """addEventListener("DOMContentLoaded", () => {
  window.clickable = [];
  new MutationObserver(() => {
    const { project } = document.body.dataset;
    const filled = document.querySelector("#filled-for :is(input, textarea)").value;
    if (project) window.clickable.push([project, filled]);
  }).observe(document.body, { attributes: true, attributeFilter: ["data-project"] });
})"""
# what is drawn over the sticky bars at any place to which the page can be scrolled
OVER_HEADER = """() => {
  const found = new Set();
  for (let top = 0; top <= document.documentElement.scrollHeight - innerHeight; top += 40) {
    scrollTo(0, top);
    for (const y of [4, 24, 44, 52, 70, 86]) {
      for (let x = 8; x < innerWidth; x += 24) {
        const element = document.elementFromPoint(x, y);
        if (element?.closest(".tabitem")) found.add(element.outerHTML.slice(0, 100));
      }
    }
  }
  scrollTo(0, 0);
  return [...found];
}"""


@pytest.fixture(scope="module")
def page(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    folder = tmp_path_factory.mktemp("load")
    (folder / "workspace").mkdir()
    make_watched_workspace(folder / "workspace")
    with serving(folder) as server:
        page = browser.new_page(viewport={**DESKTOP, "height": 500})
        page.requests = []  # type: ignore[attr-defined]
        page.on("request", lambda request: page.requests.append(request.url))  # type: ignore[attr-defined]
        page.add_init_script(WATCH)
        page.goto(f"{server.url}/?project=well")
        wait_for_project(page)
        Settling(page).wait()
        yield page
        page.close()


def test_a_first_visit_sends_few_requests(page: Page):
    assert len(page.requests) <= MAX_REQUESTS  # type: ignore[attr-defined]


def test_no_tab_draws_over_the_header_or_reports_an_error_at_its_opening(page: Page):
    for name in open_tabs(page):
        assert page.evaluate(OVER_HEADER) == [], name
        expect(page.get_by_test_id("toast-body")).to_have_count(0)
    expect(page.locator("#try-pieces .empty")).to_have_count(1)  # this project has no base tokenizer


def test_a_tab_shows_the_state_of_its_stage_and_a_phone_that_there_are_more_tabs(page: Page):
    first, next_stage, *later, _monitor, _listen = page.evaluate(MARKS)
    assert (next_stage, later[-1]) == ("→", "■")  # data come next; a training was stopped
    assert "→" not in (first, *later)
    page.set_viewport_size(PHONE)
    line = page.locator("#tabs > .tab-wrapper > .tab-container")
    for place, signs in (("0", [0, 1]), ("each.scrollWidth", [1, 0])):
        line.evaluate(f"each => each.scrollTo({{left: {place}}})")
        page.wait_for_function(f"JSON.stringify({SIGNS}) === '{json.dumps(signs, separators=(',', ':'))}'")
    page.set_viewport_size({**DESKTOP, "height": 500})


def test_an_idle_page_takes_little_of_the_processor(page: Page, browser: Browser):
    def processor_s() -> float:
        found = browser.new_browser_cdp_session().send("SystemInfo.getProcessInfo")["processInfo"]
        return float(sum(each["cpuTime"] for each in found if each["type"] == "renderer"))

    before = processor_s()
    page.wait_for_timeout(1_000 * IDLE_S)
    assert processor_s() - before < MAX_SHARE * IDLE_S


def test_clicks_are_taken_while_the_forms_have_the_values_of_the_project(page: Page):
    page.locator("#project input").click()
    page.get_by_role("option", name="unhealthy").click()
    expect(page.locator("body[data-project=unhealthy]")).to_be_attached()
    assert page.evaluate("window.clickable") == [["well", "well"], ["unhealthy", "unhealthy"]]
