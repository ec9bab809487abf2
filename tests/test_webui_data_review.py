"""Check and review of tab 2 in a real browser: planted faults are found, played, corrected and decided."""

import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import soundfile
from playwright.sync_api import Browser, Locator, Page, expect

from indextts.data.manifest import read_utterances, write_utterances
from indextts.data.review import read_reviewed
from indextts.projects.project import Project
from indextts.webui.data.review_list import playable
from tests.conftest import REPOSITORY
from tests.walking import Server, wait_for

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
    """Choose what the list shows."""
    page.locator("#review-filter input").click()
    page.get_by_role("option", name=re.compile(rf"^✓?\s*{re.escape(reason)} \(")).click()


def row(page: Page, id: str) -> Locator:
    return page.locator(f'#review-list tr[data-clip="{id}"]')


def reviewed(server: Server) -> dict[str, str]:
    return {u.id: u.text for _, u in read_reviewed(server.workspace / "demo/dataset/manifest.jsonl")}


@pytest.mark.slow
def test_a_user_checks_listens_edits_rejects_and_undoes(served: Server, browser: Browser, tmp_path: Path):
    page = browser.new_page(viewport={"width": 1280, "height": 1000})
    page.goto(f"{served.url}/#data/check-start")  # opens the sub-tab
    overview = page.locator("#check-overview")
    expect(overview.locator(".empty")).to_be_visible()
    page.locator("#check-start").click()
    wait_for(page, "check-status", r"^finished after")
    expect(overview.locator(".tile").first).to_contain_text("54")
    expect(overview.locator("svg line.limit").first).to_be_attached()
    links = overview.locator("[data-filter]")
    found = {link.get_attribute("data-filter") for link in links.all()}
    assert found >= {"clipped", "quiet"}

    overview.locator('[data-filter="clipped"]').click()  # opens the review with this filter
    expect(page.locator("#review-count")).to_have_text("1 to 1 of 1")
    row(page, "demo_0004").locator(".play").click()
    expect(page.locator("#review-facts")).to_contain_text("demo_0004")
    expect(page.locator("#review-facts")).to_contain_text("espeak")
    loaded = "document.getElementById('review-audio').duration > 1"
    page.wait_for_function(loaded)
    page.locator("#review-keep").click()
    expect(row(page, "demo_0004")).to_contain_text("by hand")
    assert "demo_0004" in reviewed(served)

    choose(page, "All clips")
    expect(page.locator("#review-count")).to_have_text("1 to 20 of 54")
    row(page, "demo_0002").click()
    wait_for(page, "review-clip", "^demo_0002$")
    page.locator("#review-text textarea").fill("ሰላም ነው፣ አስተካከልኩት")
    page.locator("#review-save").click()
    expect(row(page, "demo_0002")).to_contain_text("አስተካከልኩት (edited)")
    page.locator("#review-reject").click()
    expect(row(page, "demo_0002")).to_contain_text("by hand")
    assert "demo_0002" not in reviewed(served)
    page.locator("#review-undo").click()
    expect(row(page, "demo_0002")).not_to_contain_text("by hand")
    assert reviewed(served)["demo_0002"] == "ሰላም ነው፣ አስተካከልኩት"
    page.locator("#review-forth").click()
    expect(page.locator("#review-count")).to_have_text("21 to 40 of 54")

    page.reload()  # the address still names the review
    expect(row(page, "demo_0004")).to_contain_text("by hand")
    expect(row(page, "demo_0002")).to_contain_text("አስተካከልኩት (edited)")
    assert page.title() != "evil"
    assert "demo_0006" not in reviewed(served)  # as quiet as the check found it
    page.screenshot(path=tmp_path / "reviewed.png")
    page.close()


def test_a_recording_outside_the_project_is_not_played(tmp_path: Path):
    project = Project(tmp_path)
    inside = tmp_path / "a.wav"
    soundfile.write(inside, [0.0, 0.5], 8_000)
    outside = REPOSITORY / "demo/audio/demo_0001.opus"
    link = tmp_path / "link.opus"
    link.symlink_to(outside)

    assert playable(project, inside) == inside.resolve()
    for path in (outside, link, tmp_path / "../x.wav", tmp_path / "gone.wav"):
        assert playable(project, path) is None
