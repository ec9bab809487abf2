"""A data set from a browser: a project created from an upload, imported, encoded and paired."""

import json
import re
import zipfile
from pathlib import Path

from playwright.sync_api import Browser, expect

from indextts.data.manifest import read_pairs
from indextts.projects.project import Project
from indextts.system.messages import template
from tests.conftest import REPOSITORY
from tests.import_sources import manifest_lines
from tests.page_layout import DESKTOP
from tests.small_disk import largest_file
from tests.walking import open_tab, value, wait_for, wait_for_project
from tests.webui_server import Server

NUM_CLIPS = 8


def write_upload(folder: Path) -> Path:
    """Write a zip archive with some of the demo's recordings as LJSpeech lays them out, one row broken."""
    lines = (REPOSITORY / "demo/manifest.jsonl").read_text(encoding="utf-8").splitlines()
    clips = [json.loads(line) for line in lines[160 : 160 + 4 * NUM_CLIPS : 4]]  # of one voice
    rows = [f"{Path(clip['audio']).stem}|{clip['text']}" for clip in clips]
    with zipfile.ZipFile(folder / "ንግግር.zip", "w") as file:
        for clip in clips:
            file.write(REPOSITORY / "demo" / clip["audio"], f"set/wavs/{Path(clip['audio']).name}")
        file.writestr("set/metadata.csv", "\n".join([*rows, "absent|ሰላም"]))
    return folder / "ንግግር.zip"


def test_a_user_with_only_a_browser_comes_from_an_upload_to_pairs(server: Server, browser: Browser, tmp_path):
    page = browser.new_page(viewport=DESKTOP)
    page.goto(server.url)
    wait_for_project(page)
    page.locator("#new-title input, #new-title textarea").fill("የእኔ ድምፅ")  # at a first visit, it is open
    page.locator("#new-more-button").click()
    page.locator("#new-folder input, #new-folder textarea").fill("voice")
    page.locator("#new-other-base input, #new-other-base textarea").fill("demo/checkpoints")
    page.locator("#project-start").click()
    wait_for(page, "project", "^የእኔ ድምፅ$")
    expect(page).to_have_url(re.compile(r"project=voice#data$"))  # leads through
    wait_for(page, "data-command", "Nothing to import")

    (tmp_path / "broken.zip").write_bytes(b"PK\x03\x04 cut off")
    choose = page.locator("#upload input[type=file]")
    choose.set_input_files(tmp_path / "broken.zip")
    expect(page.locator("#upload-message .bad")).to_contain_text("broken.zip")
    expect(page.locator("#data-start")).to_be_disabled()
    archive = write_upload(tmp_path)
    with largest_file(archive.stat().st_size // 2, server.process.pid):
        choose.set_input_files(archive)
        said = template("data.upload_not_written").partition("{problem}")
        expect(page.get_by_test_id("toast-body")).to_contain_text(said[0])
    choose.set_input_files(archive)
    expect(page.locator("#uploads")).to_contain_text("ንግግር.zip")
    assert not list((server.workspace / ".received").rglob("*.zip"))  # moved into the project, no copy stays
    wait_for(page, "data-command", "import_dataset.py .*uploads/ንግግር.zip")
    page.locator("#data-start").click()
    wait_for(page, "data-status", r"^failed after")
    wait_for(page, "data-log", r"8 recordings .*--speaker NAME")
    page.locator("#import-answers-button").click()
    page.locator("#ImportDataset-speaker input, #ImportDataset-speaker textarea").fill("አልማዝ")
    wait_for(page, "data-command", "--speaker=")
    assert value(page, "data-command").count("check_amharic_data.py") == 1
    page.locator("#data-start").click()
    wait_for(page, "data-status", rf"^{NUM_CLIPS} clips imported")
    wait_for(page, "data-log", ": 1 missing_audio")
    expect(page.locator("#data-numbers .tile dd").first).to_have_text(str(NUM_CLIPS))
    project = Project(server.workspace / "voice")
    assert {line["speaker"] for line in manifest_lines(project.dataset)} == {"አልማዝ"}

    open_tab(page, "4 Preprocess")
    page.locator("#Preprocess-val_ratio input").fill("0.25")
    page.locator("#Preprocess-val_ratio input").press("Tab")
    wait_for(page, "preprocess-command", r"--val-ratio=0\.25")
    page.locator("#preprocess-start").click()
    wait_for(page, "preprocess-status", r"^finished after")
    open_tab(page, "5 Pairs")
    page.locator("#pairs-start").click()
    wait_for(page, "pairs-status", r"^finished after")
    pairs = read_pairs(project.pairs("train"))
    wait_for(page, "pairs-numbers", rf"; {len(pairs)} pairs for 6 targets")
    expect(page.locator("#plot-target_s svg")).to_be_visible()
    page.close()
