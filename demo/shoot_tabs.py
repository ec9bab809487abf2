"""Take a picture of each tab of the page, for the docs: a real browser on a workspace that has seen the demo.

    python demo/shoot_tabs.py --workspace workspace --output docs/tabs

Needs Chromium and playwright (requirements-dev.txt). The page must not be running on this port.
"""

import argparse
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

REPOSITORY = Path(__file__).resolve().parent.parent
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"]
FLAGS += ["--disable-background-networking", "--disable-component-update"]
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
    flags = [f"--workspace={args.workspace}", f"--port={args.port}"]
    with subprocess.Popen([sys.executable, REPOSITORY / "webui_amharic.py", *flags]) as server:
        try:
            wait_for(url, server)
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
                context = browser.new_context(viewport={"width": args.width, "height": HEIGHT})
                context.add_cookies([{"name": "language", "value": args.language, "url": url}])
                page = context.new_page()
                page.goto(url)
                page.get_by_role("tab").first.wait_for()
                args.output.mkdir(parents=True, exist_ok=True)
                for number in range(page.get_by_role("tab").count()):
                    shoot(page, number, args.output)
                browser.close()
        finally:
            server.terminate()
    return 0


def wait_for(url: str, server: subprocess.Popen[bytes]) -> None:
    """Return when the page answers."""
    while server.poll() is None:
        try:
            urllib.request.urlopen(url).close()
        except OSError:
            time.sleep(0.5)
        else:
            return
    sys.exit("the page did not start")


def shoot(page: Page, number: int, output: Path) -> None:
    """Open a tab and write its picture, named after its number and its id."""
    tab = page.get_by_role("tab").nth(number)
    tab.click()
    page.wait_for_timeout(SETTLE_MS)
    id = re.sub(r"^tab-|-button$", "", tab.get_attribute("id") or str(number))
    height = page.evaluate("document.documentElement.scrollHeight")
    page.set_viewport_size({"width": page.viewport_size["width"], "height": min(height, MOST_HEIGHT)})  # type: ignore[index]
    page.wait_for_timeout(1000)
    page.screenshot(path=output / f"{number + 1}_{id}.png")
    page.set_viewport_size({"width": page.viewport_size["width"], "height": HEIGHT})  # type: ignore[index]


if __name__ == "__main__":
    sys.exit(main())
