"""A data set from a browser: a project created from an upload, the choice of speakers, the import."""

import json
import re
import resource
import zipfile
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from indextts.system.messages import template
from tests.conftest import REPOSITORY
from tests.import_sources import manifest_lines
from tests.walking import Server, value, wait_for, wait_for_project

pytestmark = pytest.mark.long

NUM_CLIPS = 8


def write_upload(folder: Path) -> Path:
    """Write a zip archive with some of the demo's recordings as LJSpeech lays them out, one row broken."""
    lines = (REPOSITORY / "demo/manifest.jsonl").read_text(encoding="utf-8").splitlines()
    clips = [json.loads(line) for line in lines[:NUM_CLIPS]]
    rows = [f"{Path(clip['audio']).stem}|{clip['text']}" for clip in clips]
    folder.mkdir()
    with zipfile.ZipFile(folder / "ንግግር.zip", "w") as file:
        for clip in clips:
            file.write(REPOSITORY / "demo" / clip["audio"], f"set/wavs/{Path(clip['audio']).name}")
        file.writestr("set/metadata.csv", "\n".join([*rows, "absent|ሰላም"]))
    return folder / "ንግግር.zip"


def test_a_user_with_only_a_browser_creates_a_project_from_an_upload(
    server: Server, browser: Browser, tmp_path: Path
):
    weights = server.workspace / "demo/checkpoints/gpt.pth"
    weights.unlink(missing_ok=True)  # a link to the file in the repository
    weights.write_bytes(b"of no use here")
    page = browser.new_page(viewport={"width": 1280, "height": 1500})
    page.goto(server.url)
    wait_for_project(page)
    page.locator("#new-title input, #new-title textarea").fill("የእኔ ድምፅ")  # at a first visit, it is open
    page.get_by_text("Built-in").click()
    page.locator("#new-more-button").click()
    page.locator("#new-folder input, #new-folder textarea").fill("voice")
    page.locator("#new-other-base input, #new-other-base textarea").fill("demo/checkpoints")
    page.locator("#project-start").click()
    wait_for(page, "project", "^የእኔ ድምፅ$")
    expect(page).to_have_url(re.compile(r"project=voice#data$"))  # leads through
    wait_for(page, "data-command", "nothing to import")
    archive = write_upload(tmp_path / "mine")
    choose = page.locator("#upload input[type=file]")
    for name, content in (("broken.zip", b"PK\x03\x04 cut off"), ("nine.wav", b"RIFFxxxxW")):
        (tmp_path / name).write_bytes(content)
        choose.set_input_files(tmp_path / name)
        expect(page.locator("#upload-message .bad")).to_contain_text(name)
    expect(page.locator("#received")).not_to_contain_text("Received")  # a refused file does not stay
    assert not (server.workspace / "voice/uploads").exists()
    expect(page.locator("#data-start")).to_be_disabled()
    soft, hard = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (archive.stat().st_size // 2, hard))
    choose.set_input_files(archive)  # as on a full disk
    said = template("data.upload_not_written").partition("{problem}")
    expect(page.get_by_test_id("toast-body")).to_contain_text(said[0])
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (soft, hard))
    choose.set_input_files(archive)
    expect(page.locator("#uploads")).to_contain_text("ንግግር.zip")
    assert not list((server.workspace / ".received").rglob("*.zip"))  # moved into the project, no copy stays
    wait_for(page, "data-command", "import_dataset.py .*uploads/ንግግር.zip")
    page.locator("#data-start").click()
    wait_for(page, "data-status", r"^failed with exit status 2")
    wait_for(page, "data-log", r"8 recordings .*--speaker NAME")

    page.locator("#ImportDataset-speaker input, #ImportDataset-speaker textarea").fill("አልማዝ")
    wait_for(page, "data-command", "--speaker=")
    assert value(page, "data-command").count("check_amharic_data.py") == 1
    page.locator("#data-start").click()
    wait_for(page, "data-status", r"^finished after")
    wait_for(page, "data-log", ": 1 missing_audio")
    expect(page.locator("#data-numbers .tile dd").first).to_have_text(str(NUM_CLIPS))
    lines = manifest_lines(server.workspace / "voice/dataset")
    assert {line["speaker"] for line in lines} == {"አልማዝ"}
    page.screenshot(path=tmp_path / "data.png", full_page=True)

    page.locator("#ImportDataset-speaker input, #ImportDataset-speaker textarea").fill("bekele")
    wait_for(page, "data-command", r"import_dataset.py (?!.*--speaker=bekele)")  # what was answered stays
    page.locator("#answers-for input").click()
    page.get_by_role("option", name="ንግግር.zip").click()
    wait_for(page, "data-command", "--speaker=bekele")
    page.once("dialog", lambda dialog: dialog.dismiss())
    page.locator("#upload-remove").click()
    expect(page.locator("#uploads")).to_contain_text("ንግግር.zip")
    page.once("dialog", lambda dialog: dialog.accept())
    page.locator("#upload-remove").click()
    expect(page.locator("#uploads")).not_to_contain_text("ንግግር.zip")
    assert len(manifest_lines(server.workspace / "voice/dataset")) == NUM_CLIPS

    choose.set_input_files(tmp_path / "nine.wav")
    expect(page.locator("#upload-message .bad")).to_contain_text("nine.wav")
    page.locator("#project input").click()
    page.get_by_role("option").filter(has_not_text="የእኔ ድምፅ").first.click()
    expect(page.locator("#upload-message .bad")).to_have_count(0)  # it was about the other project
    page.close()
