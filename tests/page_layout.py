"""Faults in the layout of the open tab, measured in the browser.

- The primary button ends on the first screen, before anything is scrolled.
- A side panel does not wrap sideways.
- Nothing is wider than the window, and in a large window the page is at most three screens long.
- No tab hides behind a menu.
- axe-core finds nothing; it also judges whether the names of buttons contain their texts.
- Visible texts have the contrast that WCAG 2.2 (AA, 1.4.3) asks for: 4.5:1, or 3:1 for large texts
  and waveforms. The track of a slider has the colour of the theme.
"""

import re
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

from playwright.sync_api import Page, expect

from tests.walking import Settling

DESKTOP, PHONE = {"width": 1440, "height": 900}, {"width": 390, "height": 844}
MAX_SCREENS = 3
STAGE_NUMBER = re.compile(r"^\d ")
TRIES, PAUSE_MS = 8, 500  # a view may still change, for example because the window did

RULES = {"label-content-name-mismatch": {"enabled": True}, "color-contrast": {"enabled": False}}  # measured
MEASURE = Path(__file__).with_suffix(".js").read_text(encoding="utf-8")


def axe_problems(page: Page) -> list[str]:
    """Return the rule and the start of each element with a fault by axe-core; toasts are Gradio's."""
    page.evaluate((files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8"))
    run = "rules => axe.run({exclude: ['.toast-wrap']}, {resultTypes: ['violations'], rules})"
    found = page.evaluate(run, RULES)["violations"]
    return [f"{rule['id']}: {node['html'][:100]}" for rule in found for node in rule["nodes"]]


def set_theme(page: Page, *, is_dark: bool) -> None:
    """Switch the theme at once: a colour in transition has any contrast."""
    page.add_style_tag(content="* { transition: none !important; animation: none !important }")
    page.evaluate("isDark => document.body.classList.toggle('dark', isDark)", is_dark)


def problems_of_tabs(page: Page, *names: str) -> dict[str, list[str]]:
    """Return the problems of tabs and their sub-tabs in a large window and on a phone, light and dark.

    Args:
        names: as for `open_tabs`.
    """
    found: dict[str, list[str]] = {}
    for name in open_tabs(page, *names):
        found |= problems_of_open_tab(page, name)
    return found


def open_tabs(page: Page, *names: str) -> Iterator[str]:
    """Open tabs and their sub-tabs one after another; yield the name of each once it is filled.

    Args:
        names: beginnings of the tabs' names, such as "6 "; all tabs without any.
    """
    stages, settling = page.get_by_role("tab").filter(has_text=STAGE_NUMBER), Settling(page)
    expect(stages).to_have_count(8)
    for stage in stages.all():
        if names and not stage.inner_text().startswith(names):
            continue
        # not click(), which waits for a frame: resized on a busy machine, Chromium may draw none
        stage.dispatch_event("click")
        expect(stage).to_have_attribute("aria-selected", "true")
        settling.wait()
        yield stage.inner_text()
        for sub_tab in page.locator('.sub-tabs [role="tab"]:visible').all()[1:]:
            sub_tab.dispatch_event("click")
            settling.wait()
            yield f"{stage.inner_text()}: {sub_tab.inner_text()}"


def problems_of_open_tab(page: Page, name: str) -> dict[str, list[str]]:
    """Return the problems that remain after some tries, by the name of the tab, size and theme."""
    found = {}
    for size in (DESKTOP, PHONE):
        page.set_viewport_size(size)
        for is_dark in (False, True):
            set_theme(page, is_dark=is_dark)
            for _ in range(TRIES):
                problems = page.evaluate(MEASURE, MAX_SCREENS) or ([] if is_dark else axe_problems(page))
                if not problems:
                    break
                page.wait_for_timeout(PAUSE_MS)
            else:
                found[f"{name} {size['width']} {'dark' if is_dark else 'light'}"] = problems
    page.set_viewport_size(DESKTOP)
    return found
