"""The columns of uploaded tables in a browser: shown, changed, chosen with the keyboard, and imported."""

import json
import zipfile
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.import_sources import manifest_lines, write_tone
from tests.test_data_importing_columns import ENGLISH, PATHS, TEXTS
from tests.walking import wait_for, wait_for_project
from tests.webui_server import Server

pytestmark = pytest.mark.long

HOSTILE = "<img src=x onerror=document.title=1>"


def write_upload(folder: Path, name: str, header: str, *columns: list[str], pitch_hz: int) -> Path:
    """Write a zip archive with a table and its recordings."""
    with zipfile.ZipFile(folder / name, "w") as archive:
        for number, path in enumerate(PATHS):
            clip = write_tone(folder / name.removesuffix(".zip") / path, pitch_hz + 10 * number, 1.5)
            archive.write(clip, f"set/{Path(name).stem}_{clip.name}")
        rows = [header, *("|".join(row) for row in zip(*columns, strict=True))]
        archive.writestr("set/metadata.csv", "\n".join(rows))
    return folder / name


def dropdown(page: Page, source: str, column: str) -> Locator:
    heading = page.locator("#import-columns h3").filter(has_text=source)
    return heading.locator("xpath=following-sibling::details[1]").get_by_label(f"Use of {column}", exact=True)


def uses(page: Page, source: str, *columns: str) -> list[str]:
    return [dropdown(page, source, column).input_value() for column in columns]


def test_a_user_decides_the_columns_of_uploaded_tables(server: Server, browser: Browser, tmp_path: Path):
    project = server.workspace / "voice"
    project.mkdir()
    settings = json.loads((server.workspace / "demo/project.json").read_text())
    settings |= {"name": "voice", "title": "", "manifest": None, "base": str(tmp_path)}
    (project / "project.json").write_text(json.dumps(settings))
    page = browser.new_page(viewport={"width": 1280, "height": 1500})
    page.goto(f"{server.url}/?project=voice#data")
    wait_for_project(page)
    wait_for(page, "data-command", "Nothing to import")
    choose = page.locator("#upload input[type=file]")

    columns = [[f"one_{Path(path).name}" for path in PATHS], TEXTS, ENGLISH, ["5"] * 8]
    header = f"file_name|text_am|text_en|{HOSTILE}"
    choose.set_input_files(write_upload(tmp_path, "one.zip", header, *columns, pitch_hz=200))
    expect(dropdown(page, "one.zip", "text_am")).to_have_value("text")
    assert uses(page, "one.zip", "file_name", "text_en", HOSTILE) == ["audio", "", ""]
    expect(page.locator("#import-columns")).to_contain_text(HOSTILE)
    expect(page.locator("#import-columns img")).to_have_count(0)
    expect(page.locator("#data-start")).to_be_enabled()
    page.locator("#import-columns summary").click()  # folded, because nothing is open
    dropdown(page, "one.zip", "text_en").select_option("Text")
    wait_for(page, "data-command", r"one\.zip.*--columns=audio=file_name,text=text_en")
    assert uses(page, "one.zip", "text_am", "text_en") == ["", "text"]  # a use belongs to one column

    columns = [[f"two_{Path(path).name}" for path in PATHS], TEXTS, TEXTS[::-1]]
    choose.set_input_files(
        write_upload(tmp_path, "two.zip", "file_name|first|second", *columns, pitch_hz=400)
    )
    expect(page.locator("#data-outlook .bad")).to_contain_text("two.zip")
    expect(page.locator("#data-start")).to_be_disabled()
    assert uses(page, "one.zip", "text_am", "text_en") == ["", "text"]
    assert uses(page, "two.zip", "file_name", "first", "second") == ["audio", "?", "?"]
    page.locator("#data-outlook .bad a").click()
    expect(dropdown(page, "two.zip", "first")).to_be_focused()
    page.keyboard.press("Tab")
    expect(dropdown(page, "two.zip", "second")).to_be_focused()
    page.keyboard.type("Te")
    wait_for(page, "data-command", r"two\.zip.*--columns=audio=file_name,text=second")
    assert uses(page, "two.zip", "first", "second") == ["", "text"]
    expect(dropdown(page, "two.zip", "second")).to_be_focused()

    page.locator("#import-answers-button").click()
    page.locator("#ImportDataset-speaker input, #ImportDataset-speaker textarea").fill("almaz")
    wait_for(page, "data-command", "--speaker=almaz")
    expect(page.locator("#data-start")).to_be_enabled()
    page.locator("#data-start").click()
    wait_for(page, "data-status", "clips imported; the check rejects")
    texts = {line["id"]: line["text"] for line in manifest_lines(project / "dataset")}
    assert texts == {
        **{f"one_{number}": text for number, text in enumerate(ENGLISH)},
        **{f"two_{number}": text for number, text in enumerate(TEXTS[::-1])},
    }
    expect(page.locator("#import-columns h3")).to_have_count(0)  # the sources are no longer new
    assert page.title() != "1"
    page.close()
