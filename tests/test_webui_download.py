"""The download on the page: a real server, a real job, a real browser, a hub on 127.0.0.1."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from indextts.commands.bases import BASES
from indextts.features.published_files import files_of
from tests.hub_server import Hub, hub_env
from tests.test_features_download import MIB, fill
from tests.walking import Server, wait_for

pytestmark = pytest.mark.long
BASE = BASES["2.5"]


@pytest.fixture
def page(browser: Browser) -> Page:
    return browser.new_page(viewport={"width": 1100, "height": 1900})


@pytest.fixture
def server(tmp_path: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    for name, value in hub_env(hub.url, tmp_path).items():
        monkeypatch.setenv(name, value)
    server = Server(tmp_path / "workspace")
    yield server
    server.kill()


def row(page: Page, place: str) -> Locator:
    """Return a file's row; the table holds another body, hidden, that only sizes its columns."""
    rows = page.locator("#published-files").get_by_role("row")
    return rows.filter(has_text=BASE.title).filter(has_text=place)


def test_the_page_downloads_the_published_files_and_resumes_after_a_stop(
    server: Server,
    page: Page,
    hub: Hub,
    tmp_path: Path,
):
    fill(hub)
    gpt = hub.repositories[BASE.repository].files["gpt.pth"]
    gpt.content, gpt.hold_after = bytes(3 * MIB + 1000), 2 * MIB + 70_000
    page.goto(server.url)
    page.locator("#published-button").click()
    expect(row(page, "gpt.pth")).to_contain_text("missing")
    wait_for(
        page, "download-command", r"download_checkpoints\.py --output-dir=\S+/checkpoints_2\.5 --base=2\.5$"
    )
    page.locator("#download-start").click()
    expect(row(page, "gpt.pth")).to_contain_text(re.compile(r"\b(6[6-9]|7[01]) %"))
    page.locator("#download-stop").click()
    wait_for(page, "download-status", r"^stopped after")
    assert not (server.workspace / "checkpoints_2.5/gpt.pth").exists()

    gpt.hold_after = 0
    page.locator("#download-start").click()
    wait_for(page, "download-status", r"^finished after")
    wait_for(page, "download-log", r"gpt\.pth: \D*2\.\d\d MB")
    for file in files_of(BASE):
        expected = "verified" if file.purpose != "sound" else "missing"
        expect(row(page, file.place).last).to_contain_text(expected)
    assert (server.workspace / "checkpoints_2.5/gpt.pth").read_bytes() == gpt.content
    page.screenshot(path=tmp_path / "page.png")
