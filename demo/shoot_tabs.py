"""Take the screenshots in docs/page.md with a real browser, on a workspace with the demo.

    python -m demo.shoot_tabs --workspace workspace --output docs/tabs

Needs Chromium and playwright (the extra dev). The page must not be running on this port.
"""

import argparse
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

REPOSITORY = Path(__file__).resolve().parent.parent
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"]
FLAGS += ["--disable-background-networking", "--disable-component-update"]

WIDTH, HEIGHT, MAX_HEIGHT = 1440, 900, 2700  # CSS pixels
SETTLE_MS = 4000  # for views to be filled


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--workspace", type=Path, default=Path("workspace"))
    parser.add_argument("--output", type=Path, default=REPOSITORY / "docs/tabs")
    parser.add_argument("--port", type=int, default=7900)
    parser.add_argument("--language", choices=("en", "am"), default="en")
    parser.add_argument("--width", type=int, default=WIDTH, help="of the window; 390 for a phone")
    parser.add_argument("--project", default="demo")
    parser.add_argument("--dark", action="store_true")
    args = parser.parse_args(argv)
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        parser.error("no chromium on the PATH; install Debian's package chromium")
    pictures = shown_pictures()
    url = f"http://127.0.0.1:{args.port}"
    with serving(args.workspace, args.port), sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        context = browser.new_context(viewport={"width": args.width, "height": HEIGHT})
        context.add_cookies([{"name": "language", "value": args.language, "url": url}])
        page = context.new_page()
        if args.dark:
            page.add_init_script("localStorage.theme = 'dark'")
        page.goto(f"{url}/?project={args.project}")
        page.get_by_role("tab").first.wait_for()
        page.wait_for_timeout(SETTLE_MS)
        args.output.mkdir(parents=True, exist_ok=True)
        for number, tab in enumerate(page.locator('#tabs > .tab-wrapper [role="tab"]:visible').all(), 1):
            tab.click()
            page.wait_for_timeout(SETTLE_MS)
            name = (tab.get_attribute("id") or "").removeprefix("tab-").removesuffix("-button")
            picture = f"{number}_{name}.png"
            if picture in pictures:
                shoot(page, args.width, args.output / picture)
            for place, sub_tab in enumerate(page.locator('.sub-tabs [role="tab"]:visible').all()[1:], 2):
                picture = f"{number}_{name}_{place}.png"
                if picture in pictures:
                    sub_tab.click()
                    page.wait_for_timeout(SETTLE_MS)
                    shoot(page, args.width, args.output / picture)
        browser.close()
    return 0


def shown_pictures() -> set[str]:
    """Return the names of the pictures of tabs in docs/page.md."""
    return set(re.findall(r"\]\(tabs/(\w+\.png)\)", (REPOSITORY / "docs/page.md").read_text("utf-8")))


def shoot(page: Page, width: int, picture: Path) -> None:
    """Write the picture of the open tab."""
    height = page.evaluate("document.documentElement.scrollHeight")
    page.set_viewport_size({"width": width, "height": min(height, MAX_HEIGHT)})
    page.wait_for_timeout(1000)
    page.screenshot(path=picture)
    page.set_viewport_size({"width": width, "height": HEIGHT})


@contextmanager
def serving(workspace: Path, port: int, flags: Sequence[str] = ()) -> Iterator[subprocess.Popen[bytes]]:
    """Serve the page over a workspace on http://127.0.0.1:PORT while the block runs.

    Raises:
        RuntimeError: the server exits before it answers; its output is on the terminal.
    """
    argv = [
        sys.executable,
        str(REPOSITORY / "webui_amharic.py"),
        f"--workspace={workspace}",
        f"--port={port}",
    ]
    with subprocess.Popen([*argv, *flags]) as server:
        try:
            while not _answers(port):
                if server.poll() is not None:
                    raise RuntimeError(
                        f"the page exited with status {server.returncode} before it answered on port {port}"
                    )
                time.sleep(0.5)
            yield server
        finally:
            server.terminate()


def _answers(port: int) -> bool:
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{port}").close()
    except OSError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
