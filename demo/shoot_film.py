"""Film the demo from its first click to a spoken sentence, for the README.

    python -m demo.shoot_film --workspace FOLDER --output docs/film.webp

The film is an animated WebP: the first visit, to an empty folder; the demo while it runs in FOLDER, or its
end if it ran before; each tab; a spoken sentence. A screenshot is shown long enough to read, and the time of
the training is shortened. Needs Chromium, playwright and Pillow.
"""

import argparse
import io
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image, ImageDraw, ImageFont
from playwright.sync_api import Page, sync_playwright

from demo.shoot_tabs import FLAGS, REPOSITORY, SETTLE_MS, serving

WIDTH, HEIGHT = 1120, 640  # CSS pixels
SHOWN_WIDTH, CAPTION_HEIGHT = 880, 36
TEXT = "ሰላም ለዓለም።"
EVERY_S = 6  # while the demo runs
NUM_RUNNING = 24  # frames of the running demo
LIMIT_S = 3600
SPOKEN = "document.querySelector('#listen-players [data-stream]')?.dataset"  # page_files/stream.js
MAX_BYTES = 3_000_000
TABS = {
    "data": "2  The recordings, checked",
    "tokenizer": "3  Pieces for the letters of the language",
    "preprocess": "4  What the model hears",
    "pairs": "5  Prompt and target of one speaker",
    "training": "6  Start or resume a training run",
    "monitor": "7  Health, losses, checkpoints",
}


class Film:
    """Frames with a caption below and their time in ms."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.frames: list[Image.Image] = []
        self.times_ms: list[int] = []

    def take(self, caption: str, time_ms: int) -> None:
        shot = Image.open(io.BytesIO(self.page.screenshot())).convert("RGB")
        height = round(SHOWN_WIDTH * shot.height / shot.width)
        frame = Image.new("RGB", (SHOWN_WIDTH, height + CAPTION_HEIGHT), "#1f2937")
        frame.paste(shot.resize((SHOWN_WIDTH, height), Image.Resampling.LANCZOS))
        place = 16, height + CAPTION_HEIGHT / 2
        ImageDraw.Draw(frame).text(place, caption, "white", ImageFont.load_default(20), "lm")
        self.frames.append(frame)
        self.times_ms.append(time_ms)

    def save(self, path: Path) -> None:
        """Write the film with the highest quality that fits."""
        for quality in (80, 65, 50, 35):
            self.frames[0].save(
                path,
                save_all=True,
                append_images=self.frames[1:],
                duration=self.times_ms,
                loop=0,
                quality=quality,
                method=6,
            )
            if path.stat().st_size <= MAX_BYTES:
                return
        raise RuntimeError(f"{path} has {path.stat().st_size:,} bytes, over {MAX_BYTES:,}")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--workspace", type=Path, required=True, help="folder of the demo")
    parser.add_argument("--output", type=Path, default=REPOSITORY / "docs/film.webp")
    parser.add_argument("--port", type=int, default=7901)
    args = parser.parse_args(argv)
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        parser.error("no chromium on the PATH; install Debian's package chromium")
    with serving(args.workspace, args.port), sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        page.set_default_timeout(300_000)
        film = Film(page)
        with TemporaryDirectory() as empty, serving(Path(empty), args.port + 1):
            page.goto(f"http://127.0.0.1:{args.port + 1}")
            page.locator("#demo-start").wait_for()
            page.wait_for_timeout(SETTLE_MS)
            film.take("1  The first visit: one click runs the demo", 4000)
        page.goto(f"http://127.0.0.1:{args.port}/?project=demo")
        run_demo(page, film)
        show_tabs(page, film)
        speak(page, film)
        browser.close()
    film.save(args.output)
    print(f"{args.output}: {len(film.frames)} frames, {sum(film.times_ms) / 1000:.0f} s")
    return 0


def run_demo(page: Page, film: Film) -> None:
    page.locator("#way li").first.wait_for()
    page.wait_for_timeout(SETTLE_MS)
    start = page.locator("#demo-start")
    if start.is_visible() and start.is_enabled():
        start.click()
    began = time.monotonic()
    first = len(film.frames)
    while page.locator("#next-step a.primary-link").count() == 0:
        page.wait_for_timeout(EVERY_S * 1000)
        seconds = time.monotonic() - began
        if seconds > LIMIT_S:
            raise RuntimeError(f"the demo did not end within {LIMIT_S} s")
        film.take("1  Six stages, with a training run", 600)
    every = -(-(len(film.frames) - first) // NUM_RUNNING) or 1
    film.frames[first:] = film.frames[first::every]
    film.times_ms[first:] = film.times_ms[first::every]
    film.take("1  Done: listen to it", 3000)


def show_tabs(page: Page, film: Film) -> None:
    for name, caption in TABS.items():
        page.locator(f"#tab-{name}-button").click()
        page.wait_for_timeout(2 * SETTLE_MS)
        film.take(caption, 4000)


def speak(page: Page, film: Film) -> None:
    page.locator("#tab-listen-button").click()
    page.wait_for_timeout(SETTLE_MS)
    page.locator("#listen-text textarea").fill(TEXT)
    page.wait_for_timeout(SETTLE_MS)
    film.take("8  Type a sentence", 4000)
    before = page.evaluate(f"{SPOKEN}?.stream")
    page.locator("#listen-start").click()
    page.wait_for_function(f"before => {SPOKEN}?.live === 'false' && {SPOKEN}.stream !== before", arg=before)
    waveform = page.locator("#listen-players sound-player svg").first
    waveform.wait_for()
    page.locator("#listen-stop").wait_for(state="hidden")
    page.wait_for_timeout(SETTLE_MS)
    waveform.scroll_into_view_if_needed()
    film.take("8  ... and play it", 5000)


if __name__ == "__main__":
    sys.exit(main())
