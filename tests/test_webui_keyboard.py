"""The page without a mouse: Tab reaches every control in all tabs, with a visible focus."""

from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from tests.walking import Server, wait_for

pytestmark = pytest.mark.slow

TABS = ("project", "data", "tokenizer", "preprocess", "pairs", "training", "monitor", "listen")
MOST_PRESSES = 250

# marks what a hand could use in the open tab and above; returns the name of each mark
MARK = """() => {
  const names = {};
  document.querySelectorAll("button, input, textarea, select, summary, a[href]").forEach((one, number) => {
    one.removeAttribute("data-place");
    const box = one.getBoundingClientRect(), style = getComputedStyle(one);
    const isSeen = box.width > 1 && box.height > 1 && style.visibility !== "hidden";
    const isOther = one.type === "radio" && !one.checked;  // one of a group is reached, arrows do the rest
    if (one.disabled || one.readOnly || !isSeen || isOther || one.type === "file") return;
    one.dataset.place = String(number);
    names[number] = one.closest("[id]:not([id^=svelte])")?.id + ": " +
      (one.ariaLabel || one.innerText || one.placeholder || one.type);
  });
  return names;
}"""
# returns the mark of what has the focus, and whether that is seen: by a ring or a shadow
FOCUSED = """() => {
  const one = document.activeElement, style = getComputedStyle(one);
  const hasRing = style.outlineStyle !== "none" && style.outlineWidth !== "0px";
  const isSeen = hasRing || style.boxShadow !== "none";
  return [one.dataset?.place ?? "", isSeen];
}"""


def reached(page: Page) -> dict[str, bool]:
    """Press Tab until the page is through; return the marks that had the focus, and whether it was seen."""
    page.evaluate("document.activeElement.blur()")
    found: dict[str, bool] = {}
    first = None
    for _ in range(MOST_PRESSES):
        page.keyboard.press("Tab")
        place, is_seen = page.evaluate(FOCUSED)
        if place and place == first:  # once around
            break
        first = first or place
        found[place] = is_seen
    return found


def test_every_control_is_reachable_by_tab(server: Server, browser: Browser) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(server.url)
    wait_for(page, "hardware", "processors")
    missed: dict[str, Any] = {}
    unseen: dict[str, Any] = {}
    for tab in TABS:
        page.locator(f"#tab-{tab}-button").focus()
        page.keyboard.press("Enter")
        earlier: dict[str, str] = {}
        names: dict[str, str] = {}
        while not names or names != earlier:  # until the tab no longer changes
            page.wait_for_timeout(1250)
            earlier, names = names, page.evaluate(MARK)
        places = reached(page)
        still = page.evaluate(MARK)  # what was shown meanwhile may have made a button useless
        names = {place: name for place, name in names.items() if place in still}
        missed[tab] = [name for place, name in names.items() if place not in places]
        unseen[tab] = [names[place] for place, is_seen in places.items() if place in names and not is_seen]
    page.close()
    assert not any(missed.values()), missed
    assert not any(unseen.values()), unseen
