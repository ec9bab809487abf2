"""Tab 8 in a browser: generate speech, play, compare blindly; score, export, download."""

import io
import re
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import soundfile
from playwright.sync_api import Browser, Page, expect

from indextts.projects.project import Project
from indextts.webui.listen.renders import votes
from tests.page_layout import PHONE
from tests.speaking_run import clips_of, make_speaking_project, write_adapter
from tests.walking import open_tab, value, wait_for, wait_for_project
from tests.webui_server import Server

DURATIONS = "[...document.querySelectorAll('#listen-players audio')].map(player => player.duration)"
PLAYING = "[...document.querySelectorAll('#listen-players audio')].map(player => !player.paused)"
SEEKED = "document.querySelectorAll('#listen-players audio')[1].currentTime > 0"
PLAY = """async () => {
  const player = document.querySelector('#listen-players audio');
  player.muted = true;
  await player.play();
  await new Promise(done => player.addEventListener('timeupdate', () => player.currentTime > 0 && done()));
  return player.currentTime;
}"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A page over a project that speaks."""
    workspace = tmp_path_factory.mktemp("listen") / "workspace"
    make_speaking_project(workspace)
    server = Server(workspace)
    yield server
    server.kill_with_jobs()


@pytest.fixture
def project(served: Server) -> Project:
    return Project(served.workspace / "tiny")


@pytest.fixture
def page(served: Server, browser: Browser) -> Page:
    """The page at tab 8."""
    page = browser.new_page(viewport={"width": 1280, "height": 1500}, accept_downloads=True)
    page.goto(f"{served.url}/?project=tiny#listen")
    wait_for_project(page)
    wait_for(page, "project", "^tiny$")
    return page


def test_a_user_hears_two_checkpoints_votes_and_exports(project: Project, page: Page, tmp_path: Path):
    page.locator("#listen-text textarea").fill("5 ሰዎች መጡ።\nሰላም <img src=x id=planted>")
    wait_for(page, "listen-spoken", r"^አምስት ሰዎች መጡ\.\n")
    page.locator("#listen-settings-button").click()
    wait_for(page, "listen-checkpoint", r"^Step \d \(best.*\d\.\d+: model_step\d\.pth, best\.pth")

    page.locator("#voice-upload input[type=file]").set_input_files(clips_of(project)[0].audio)
    wait_for(page, "listen-voice", r"\(uploaded\)$")
    page.locator("#Synthesize-max_codes input").fill("60")
    page.locator("#Synthesize-max_codes input").press("Tab")
    wait_for(page, "listen-command", r"--max-codes=60.*/0001/a")
    page.locator("#listen-start").click()
    wait_for(page, "listen-status", r"^finished after")
    wait_for(page, "listen-log", r"read as: አምስት ሰዎች መጡ\.")
    players = page.locator("#listen-players")
    expect(players.locator("audio")).to_have_count(2)
    expect(page.locator("#planted")).to_have_count(0)
    page.wait_for_function(f"{DURATIONS}.every(seconds => seconds > 0.1)")
    assert page.evaluate(PLAY) > 0
    players.locator("sound-player svg").last.click()  # seeks in the second sound and stops the first
    page.wait_for_function(f"({PLAYING}).join() === 'false,true' || {SEEKED}")
    with page.expect_download() as download:
        players.get_by_text("download").first.click()
    assert download.value.suggested_filename == "001.wav"
    samples, rate_hz = soundfile.read(io.BytesIO(Path(download.value.path()).read_bytes()))
    assert rate_hz == 24_000
    assert abs(len(samples) / rate_hz - page.evaluate(DURATIONS)[0]) < 0.01
    page.screenshot(path=tmp_path / "listen.png", full_page=True)
    compare_and_vote(page, project)

    page.locator("#listen-export-button").click()
    expect(page.locator("#ExportModel-positions")).to_be_visible()
    expect(page.locator("#ExportModel-page_language")).to_be_hidden()  # the page of 2.0 has no languages
    page.locator("#export-start").click()
    wait_for(page, "export-status", r"^finished after")
    with page.expect_download() as archive:
        page.locator("#export-files").get_by_text(".zip").click()
    assert "gpt.pth" in zipfile.ZipFile(archive.value.path()).namelist()


def compare_and_vote(page: Page, project: Project) -> None:
    """Let both checkpoints speak the two texts, and judge them blindly."""
    page.locator("#listen-compare-button").click()
    wait_for(page, "compare-lines", "^5 ሰዎች መጡ።\nሰላም <img")  # as typed in Speak
    page.locator("#compare-b input").click()
    expect(page.get_by_role("option")).to_have_count(1)  # not the model of A
    page.keyboard.press("Escape")
    wait_for(page, "compare-command", r"--max-codes=60.*/0002/b")
    page.locator("#compare-start").click()
    wait_for(page, "compare-status", r"^finished after")
    for side in ("first", "second"):  # each with its waveform, and no address that names its checkpoint
        expect(page.locator(f"#compare-{side} sound-player path.played")).to_have_count(1)
        expect(page.locator(f"#compare-{side} audio")).to_have_attribute("src", re.compile("^data:"))
    assert value(page, "compare-result") == ""
    expect(page.locator("#compare-tally audio")).to_have_count(0)  # who speaks is not to be seen yet
    page.locator("#compare-vote-second").click()
    wait_for(page, "compare-result", r"Step \d.*Step \d")
    expect(page.locator("#compare-vote-second")).to_be_disabled()
    expect(page.locator("#compare-tally audio")).to_have_count(2)
    page.locator("#compare-next").click()
    wait_for(page, "compare-text", "^ሰላም <img")
    assert value(page, "compare-result") == ""
    page.locator("#compare-vote-same").click()
    expect(page.locator("#compare-tally audio")).to_have_count(4)
    assert [(vote.number, vote.choice) for vote in votes(project)] == [(1, "second"), (2, "same")]
    expect(page.locator("#compare-tally table tbody tr")).to_have_count(1)
    expect(page.locator("#planted")).to_have_count(0)


@pytest.mark.long
def test_names_of_a_dialogue_have_menus_and_an_uploaded_adapter_a_strength(
    project: Project, page: Page, tmp_path: Path
):
    page.locator("#listen-text textarea").fill("abebe: ሰላም\nሰላም")
    wait_for(page, "listen-spoken", "ABEBE")  # a part of the text, until it has a voice
    page.locator("#listen-cast-0 input").click()
    page.get_by_role("option").nth(1).click()
    wait_for(page, "listen-spoken", "^ሰላም\n")
    page.locator("#listen-settings-button").click()
    expect(page.locator("#listen-strength")).to_be_hidden()
    write_adapter(project, tmp_path / "mine.safetensors")
    page.locator("#adapter-upload input[type=file]").set_input_files(tmp_path / "mine.safetensors")
    page.locator("#listen-strength input").fill("0.5")
    page.locator("#listen-strength input").press("Tab")
    wait_for(page, "listen-command", r"--adapter-strength=0\.5.*mine\.safetensors.*--voices=abebe=")
    page.locator("#listen-score-button").click()
    page.locator("#scores-checkpoints input").click()
    page.get_by_role("option").filter(has_text="mine.safetensors").click()
    page.locator("#scores-strength input").fill("0.5")
    page.locator("#scores-strength input").press("Tab")
    wait_for(page, "evaluate-command", r"--adapter-strength=0\.5.*mine\.safetensors")
    shutil.rmtree(project.listen / "adapters")


@pytest.mark.long
def test_a_text_is_heard_while_it_is_spoken(project: Project, page: Page, tmp_path: Path):
    errors: list[str] = []
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.locator("#listen-text textarea").fill("ሰላም ለዓለም ሁሉ ይሁን ብለው ተናገሩ። " * 150)  # some 75 segments
    wait_for(page, "listen-command", r"--stream")
    page.set_viewport_size(PHONE)
    page.locator("#listen-start").click()
    pieces = page.locator("#listen-players [data-stream]")
    expect(pieces).to_have_attribute("data-live", "true")
    expect(pieces).to_have_attribute("data-taken", re.compile(r"^[1-9]"))
    page.screenshot(path=tmp_path / "streaming.png", full_page=True)
    wait_for(page, "listen-status", r"^finished after")
    expect(page.locator("#listen-players audio")).to_be_in_viewport()
    page.wait_for_function(
        "() => { const of = document.querySelector('#listen-players [data-stream]').dataset;"
        " return of.live === 'false' && Number(of.taken) === of.pieces.split(' ').length; }"
    )
    assert errors == []
    page.reload()
    open_tab(page, "8 Listen and export")
    expect(page.locator("#listen-players audio")).to_have_count(1)
    assert page.locator("#listen-players [data-taken]").count() == 0  # an old render does not start by itself
