"""Check and review of tab 2 in a real browser: planted faults are found, played, corrected and decided."""

import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import soundfile
from playwright.sync_api import Browser, Locator, Page, expect

from indextts.data.manifest import Provenance, read_utterances, write_utterances
from indextts.data.review import read_reviewed
from indextts.projects.project import Project
from indextts.webui.data.review_list import playable
from tests.conftest import REPOSITORY
from tests.walking import wait_for
from tests.webui_server import Server

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
    doubt = Provenance(kind="heard", by=("one", "two"), disagreement=0.1, other="ሰላም ለሁሉም", is_doubtful=True)
    utterances[20] = replace(utterances[20], provenance=doubt)
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


@pytest.mark.long
def test_a_user_checks_and_reviews_by_keyboard(served: Server, browser: Browser, tmp_path: Path):
    page = browser.new_page(viewport={"width": 1280, "height": 1000})
    page.goto(f"{served.url}/#data/check-start")  # opens the sub-tab
    overview = page.locator("#check-overview")
    expect(overview.locator(".empty")).to_be_visible()
    page.locator("#check-start").click()
    wait_for(page, "check-status", r"^54 clips imported")
    expect(overview.locator(".tile").first).to_contain_text("54")
    expect(overview.locator("svg line.limit").first).to_be_attached()
    found = {link.get_attribute("data-send") for link in overview.locator("[data-send]").all()}
    assert found >= {'["clipped"]', '["quiet"]'}
    overview.locator('a[data-send*="clipped"]').click()  # opens the review with this filter
    expect(page.locator("#review-count")).to_have_text("1 to 1 of 1")
    expect(row(page, "demo_0004")).to_have_class(re.compile("chosen"))

    choose(page, "Doubtful transcript")
    doubtful = row(page, "demo_0021")
    expect(doubtful).to_contain_text("two heard: ሰላም ለሁሉም")
    doubtful.press("o")  # the other reading is right
    expect(doubtful.locator(".clip-text")).to_have_text("ሰላም ለሁሉም")
    expect(doubtful).to_contain_text("Kept by hand")
    doubtful.press("u")
    expect(doubtful).not_to_contain_text("by hand")

    choose(page, "Most doubtful first")
    expect(row(page, "demo_0004")).to_have_class(re.compile("chosen"))  # three findings
    chosen = page.locator("#review-list tr.chosen")
    chosen.focus()  # from here on, no mouse
    page.keyboard.press("r")
    expect(row(page, "demo_0004")).to_contain_text("Rejected by hand")
    expect(chosen).to_be_focused()
    expect(chosen).not_to_have_attribute("data-clip", "demo_0004")
    next_id = str(chosen.get_attribute("data-clip"))
    wanted = row(page, next_id)
    page.keyboard.press("n")
    page.keyboard.press("p")
    expect(wanted).to_be_focused()
    page.keyboard.press("Space")
    page.wait_for_function("document.getElementById('review-audio').duration > 1")
    expect(wanted).to_have_class(re.compile("playing"))
    page.keyboard.press("e")
    page.keyboard.press("Control+a")
    page.keyboard.type("ሰላም ነው፣ አስተካከልኩት k r u")  # letters in a text decide nothing
    page.keyboard.press("Enter")
    expect(wanted).to_contain_text("አስተካከልኩት k r u (edited)")
    expect(wanted).to_be_focused()
    page.keyboard.press("k")
    expect(wanted).to_contain_text("Kept by hand")
    assert reviewed(served)[next_id].endswith("k r u")

    page.keyboard.press("u")
    expect(wanted).not_to_contain_text("by hand")
    page.keyboard.press("u")
    expect(wanted).not_to_contain_text("አስተካከልኩት")
    page.keyboard.press("u")
    expect(row(page, "demo_0004")).not_to_contain_text("by hand")
    expect(chosen).to_be_focused()
    assert next_id not in reviewed(served)  # as the check found it
    page.keyboard.press("e")
    page.keyboard.type("x")
    page.keyboard.press("Escape")
    expect(row(page, "demo_0004")).not_to_contain_text("edited")
    page.locator("#review-measure input").click()
    page.get_by_role("option", name="Level (dBFS)").click()
    page.locator("#review-high textarea, #review-high input").fill("-60")
    page.keyboard.press("Enter")
    expect(page.locator("#review-count")).to_have_text("1 to 1 of 1")
    expect(row(page, "demo_0006")).to_contain_text("Level (dBFS): -7")
    row(page, "demo_0006").press("k")
    expect(row(page, "demo_0006")).to_contain_text("Kept by hand")
    expect(row(page, "demo_0006")).to_contain_text("Level (dBFS): -7")
    assert page.title() != "evil"
    page.screenshot(path=tmp_path / "reviewed.png")
    page.close()


@pytest.mark.long
def test_two_browsers_review_at_once_and_neither_loses_a_decision(served: Server, browser: Browser):
    mine, other = browser.new_page(), browser.new_page()
    for page in (mine, other):
        page.goto(f"{served.url}/#data/data-tab-review")
        expect(page.locator("#review-filter input")).not_to_have_value("")
        choose(page, "All clips")
        expect(page.locator("#review-count")).to_have_text("1 to 20 of 54")
    row(mine, "demo_0001").click()
    row(mine, "demo_0001").press("e")
    mine.keyboard.type(" እያረምኩ")  # while the other one decides on the same and on the next clip
    row(other, "demo_0001").click()
    row(other, "demo_0001").press("r")
    row(other, "demo_0002").press("r")
    expect(row(mine, "demo_0002")).to_contain_text("Rejected by hand")
    mine.keyboard.press("Enter")
    expect(row(mine, "demo_0001")).to_contain_text("እያረምኩ (edited)")
    for page in (mine, other):
        expect(row(page, "demo_0001")).to_contain_text("Rejected by hand")
    expect(row(other, "demo_0001")).to_contain_text("እያረምኩ (edited)")
    row(mine, "demo_0001").press("u")  # its own decision: the text
    expect(row(other, "demo_0001")).not_to_contain_text("edited")
    expect(row(other, "demo_0001")).to_contain_text("Rejected by hand")
    for place in range(3, 20):
        row(mine, f"demo_{place:04}").press("k")
    expect(row(mine, "demo_0019")).to_contain_text("Kept by hand")
    row(mine, "demo_0020").press("k")  # the last clip of the page: the next page opens
    expect(mine.locator("#review-count")).to_have_text("21 to 40 of 54")
    expect(row(mine, "demo_0021")).to_be_focused()
    mine.keyboard.press("PageUp")
    expect(mine.locator("#review-count")).to_have_text("1 to 20 of 54")
    expect(row(mine, "demo_0020")).to_contain_text("Kept by hand")
    for page in (mine, other):
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
