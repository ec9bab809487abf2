"""The page without a mouse: Tab reaches every control in all tabs, with a visible focus."""

from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.walking import Server

pytestmark = pytest.mark.long

TABS = (
    "project",
    "data",
    "data/data-tab-check",
    "data/data-tab-review",
    "tokenizer",
    "preprocess",
    "pairs",
    "training",
)
TABS += (
    "monitor",
    "listen",
    "listen/listen-compare",
    "listen/listen-score",
    "listen/listen-export",
    "listen/listen-publish",
)
MOST_PRESSES = 250

# returns the names of what a hand could use in the open tab and above
CONTROLS = """() => [...document.querySelectorAll("button, input, textarea, select, summary, a[href]")]
  .filter(one => {
    const box = one.getBoundingClientRect(), style = getComputedStyle(one);
    const isSeen = box.width > 1 && box.height > 1 && style.visibility !== "hidden";
    const isOther = one.type === "radio" && !one.checked;  // one of a group is reached, arrows do the rest
    const isCopy = one.closest("[aria-hidden=true]");  // with which Gradio measures the tabs
    return isSeen && !(one.disabled || one.readOnly || isOther || isCopy || one.type === "file");
  })
  .map(%(name)s)"""
NAME = """(one => one.closest("[id]:not([id^=svelte])")?.id + ": " +
  (one.ariaLabel || one.innerText || one.placeholder || one.type))"""
# returns the name of what has the focus, and whether that is seen: by a ring or a shadow
FOCUSED = """() => {
  const one = document.activeElement, style = getComputedStyle(one);
  const hasRing = style.outlineStyle !== "none" && style.outlineWidth !== "0px";
  const isSeen = hasRing || style.boxShadow !== "none";
  return [one === document.body ? "" : %(name)s(one), isSeen];
}"""


def controls(page: Page) -> set[str]:
    return set(page.evaluate(CONTROLS % {"name": NAME}))


def reached(page: Page) -> dict[str, bool]:
    """Press Tab until the page is through; return the names that had the focus, and whether it was seen."""
    page.evaluate("document.activeElement.blur()")
    found: dict[str, bool] = {}
    first = ""
    for _ in range(MOST_PRESSES):
        page.keyboard.press("Tab")
        name, is_seen = page.evaluate(FOCUSED % {"name": NAME})
        if name and name == first:  # once around
            break
        first = first or name
        if name:
            found[name] = found.get(name, True) and is_seen
    return found


def settled(page: Page) -> set[str]:
    """Return the controls of the open tab once they no longer change."""
    earlier: set[str] = set()
    names: set[str] = set()
    while not names or names != earlier:
        page.wait_for_timeout(1250)
        earlier, names = names, controls(page)
    return names


def test_every_control_is_reachable_by_tab(server: Server, browser: Browser) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(server.url)
    expect(page.locator("#hardware")).to_contain_text("Processors")
    missed: dict[str, Any] = {}
    unseen: dict[str, Any] = {}
    for tab in TABS:
        stage, _, sub_tab = tab.partition("/")
        for name in (f"tab-{stage}", sub_tab) if sub_tab else (f"tab-{stage}",):
            page.locator(f"#{name}-button").focus()
            page.keyboard.press("Enter")
        names = settled(page)
        places = reached(page)
        names &= controls(page)  # what was shown meanwhile may have made a button useless
        missed[tab] = sorted(names - set(places))
        unseen[tab] = sorted(name for name in names & set(places) if not places[name])
    page.close()
    assert not any(missed.values()), missed
    assert not any(unseen.values()), unseen
