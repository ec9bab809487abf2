"""Take a screenshot of each tab of the page for the docs, in a real browser on a workspace with the demo.

    python -m demo.shoot_tabs --workspace workspace --output docs/tabs

Needs Chromium and playwright (requirements-dev.txt). The page must not be running on this port.
"""

import argparse
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from benchmarks.frame import REPOSITORY
from benchmarks.page_browser import FLAGS, serving

WIDTH, HEIGHT, MOST_HEIGHT = 1280, 900, 2600  # CSS pixels
SETTLE_MS = 8000  # for plots to be drawn


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--workspace", type=Path, default=Path("workspace"))
    parser.add_argument("--output", type=Path, default=REPOSITORY / "docs/tabs")
    parser.add_argument("--port", type=int, default=7900)
    parser.add_argument("--language", choices=("en", "am"), default="en")
    parser.add_argument("--width", type=int, default=WIDTH, help="of the window; 390 for a phone")
    args = parser.parse_args(argv)
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        parser.error("no chromium on the PATH; install Debian's package chromium")
    url = f"http://127.0.0.1:{args.port}"
    with serving(args.workspace, args.port), sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        context = browser.new_context(viewport={"width": args.width, "height": HEIGHT})
        context.add_cookies([{"name": "language", "value": args.language, "url": url}])
        page = context.new_page()
        page.goto(url)
        page.get_by_role("tab").first.wait_for()
        args.output.mkdir(parents=True, exist_ok=True)
        for number in range(page.get_by_role("tab").count()):
            shoot(page, number, args.width, args.output)
        browser.close()
    return 0


def shoot(page: Page, number: int, width: int, output: Path) -> None:
    """Open a tab and write its picture, named after its number and its id."""
    tab = page.get_by_role("tab").nth(number)
    tab.click()
    page.wait_for_timeout(SETTLE_MS)
    id = re.sub(r"^tab-|-button$", "", tab.get_attribute("id") or str(number))
    height = page.evaluate("document.documentElement.scrollHeight")
    page.set_viewport_size({"width": width, "height": min(height, MOST_HEIGHT)})
    page.wait_for_timeout(1000)
    page.screenshot(path=output / f"{number + 1}_{id}.png")
    page.set_viewport_size({"width": width, "height": HEIGHT})


if __name__ == "__main__":
    sys.exit(main())
