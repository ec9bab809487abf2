"""Check and review of tab 2 in a real browser: planted faults are found, played, corrected and decided."""

import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import gradio as gr
import pytest
import soundfile
from playwright.sync_api import Browser, Locator, Page, expect

from indextts.data.manifest import Utterance, read_utterances, write_utterances
from indextts.data.review import read_reviewed
from indextts.projects.project import Project
from indextts.webui.data.review import _player
from indextts.webui.data.review_rows import Row
from tests.conftest import REPOSITORY
from tests.walking import Server, open_tab, value, wait_for

EVIL = "ሰላም <img src=x onerror=\"document.title='evil'\"> ለሁሉም ሰው"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A page over a project with 54 clips, of which one is clipped and one is nearly silent."""
    server = Server(tmp_path_factory.mktemp("review") / "workspace")
    folder = server.workspace / "demo/dataset"
    (folder / "audio").mkdir(parents=True)
    utterances = []
    for utterance in read_utterances(REPOSITORY / "demo/manifest.jsonl")[:54]:
        target = folder / "audio" / utterance.audio.name
        shutil.copyfile(utterance.audio, target)
        utterances.append(replace(utterance, audio=target))
    for number, gain in ((3, 20.0), (5, 0.003)):
        samples, rate_hz = soundfile.read(utterances[number].audio)
        spoilt = utterances[number].audio.with_suffix(".wav")
        soundfile.write(spoilt, (gain * samples).clip(-1, 1), rate_hz)
        utterances[number] = replace(utterances[number], audio=spoilt)
    utterances[7] = replace(utterances[7], text=EVIL)
    write_utterances(folder / "manifest.jsonl", utterances)
    yield server
    server.kill()


def choose(page: Page, reason: str) -> None:
    """Choose what the table shows."""
    page.locator("#review-filter input").click()
    page.get_by_role("option", name=re.compile(rf"^✓?\s*{re.escape(reason)} \(")).click()


def cell(page: Page, id: str) -> Locator:
    """Return the first cell of a clip's row; the table holds another body, hidden, that sizes its columns."""
    return page.locator("#review-table").get_by_role("row", name=id).get_by_text(id, exact=True)


def reviewed(server: Server) -> dict[str, str]:
    return {u.id: u.text for _, u in read_reviewed(server.workspace / "demo/dataset/manifest.jsonl")}


@pytest.mark.slow
def test_a_user_checks_listens_edits_rejects_and_undoes(served: Server, browser: Browser, tmp_path: Path):
    page = browser.new_page(viewport={"width": 1280, "height": 1000})
    page.goto(served.url)
    open_tab(page, "2 Data")
    wait_for(page, "check-report", "not checked yet")
    page.locator("#check-start").click()
    wait_for(page, "check-status", r"^finished after")
    wait_for(page, "check-report", r"clipped: 1, .*quiet: 1, ")
    picture = page.locator("#check-histograms img")
    expect(picture).to_have_js_property("naturalWidth", 1080)
    wait_for(page, "review-count", "^1 to 50 of 54$")

    cell(page, "demo_0002").click()
    wait_for(page, "review-clip", "^demo_0002$")
    page.locator("#review-text textarea").fill("ሰላም ነው፣ አስተካከልኩት")
    page.locator("#review-save").click()
    expect(page.locator("#review-table")).to_contain_text("አስተካከልኩት (edited)")
    page.locator("#review-reject").click()
    wait_for(page, "review-verdict", "^rejected by hand$")
    assert "demo_0002" not in reviewed(served)
    page.locator("#review-undo").click()
    wait_for(page, "review-verdict", "^kept$")
    assert reviewed(served)["demo_0002"] == "ሰላም ነው፣ አስተካከልኩት"

    choose(page, "clipped")
    wait_for(page, "review-count", "^1 to 1 of 1$")
    cell(page, "demo_0004").click()
    wait_for(page, "review-clip", "^demo_0004$")
    wait_for(page, "review-verdict", "^rejected$")
    assert "clipped" in value(page, "review-flags")
    expect(page.locator("#review-player")).to_contain_text("espeak")
    page.locator("#review-keep").click()
    wait_for(page, "review-verdict", "^kept by hand$")

    page.reload()
    open_tab(page, "2 Data")
    table = page.locator("#review-table")
    expect(table.get_by_role("row", name="demo_0004")).to_contain_text("kept by hand")
    expect(table).to_contain_text("አስተካከልኩት (edited)")
    assert page.title() != "evil"
    assert "demo_0004" in reviewed(served)
    assert "demo_0006" not in reviewed(served)  # as quiet as the check found it
    table.scroll_into_view_if_needed()
    page.screenshot(path=tmp_path / "reviewed.png")
    page.close()


def test_a_recording_outside_the_project_is_not_played(tmp_path: Path):
    project = Project(tmp_path)
    inside = tmp_path / "a.wav"
    soundfile.write(inside, [0.0, 0.5], 8_000)
    outside = REPOSITORY / "demo/audio/demo_0001.opus"
    link = tmp_path / "link.opus"
    link.symlink_to(outside)

    def played(audio: Path) -> gr.Audio:
        return _player(project, Row(Utterance("a", audio, "text", "s", 2.0), "text", (), None))

    assert played(inside).value is not None
    for path in (outside, link, tmp_path / "../x.wav"):
        assert played(path).value is None
        assert "outside the project" in played(path).label
    assert "not readable" in played(tmp_path / "gone.wav").label
