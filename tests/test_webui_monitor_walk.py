"""Tab 7 in a browser: a run with every problem, its curves, its checkpoints."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from indextts.runs.checkpoints import list_checkpoints
from indextts.runs.health.checks import CHECKS
from tests.walking import Server, find_tab, open_tab, wait_for
from tests.watched_workspace import make_watched_workspace

pytestmark = pytest.mark.slow


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    make_watched_workspace(tmp_path / "workspace")
    server = Server(tmp_path / "workspace")
    yield server
    server.kill()


def legend(page: Page) -> list[str]:
    """Return the names of the series of a plot."""
    return page.locator("#plot-mel-loss .role-legend-label text").all_text_contents()


def choose(page: Page, element: str, option: str) -> None:
    page.locator(f"#{element} input").click()
    page.get_by_role("option", name=option, exact=True).click()


def toast(page: Page, text: str) -> None:
    expect(page.get_by_test_id("toast-body").filter(has_text=text).first).to_be_visible()


def test_a_user_reads_the_health_compares_runs_and_manages_checkpoints(
    server: Server, browser: Browser, tmp_path: Path
):
    run_dir = server.workspace / "unhealthy/training_output"
    page = browser.new_page(viewport={"width": 1280, "height": 1000})
    page.goto(server.url)
    wait_for(page, "project", "^unhealthy$")
    open_tab(page, "7 Monitor")
    cards = page.locator("#monitor-health .health")
    expect(cards).to_have_count(len(CHECKS))
    checks = {card.get_attribute("data-check") for card in cards.all()}
    assert checks == {
        *("disk", "base_rows", "new_rows", "learning_rate", "skipped", "gradients", "resume_jump"),
        *("plateau", "validation_rising", "unknown", "data_wait"),
    }
    expect(cards.first).to_contain_text("Problem: The disk has no space for the next checkpoint")
    expect(page.locator("#monitor-health")).to_contain_text("<b id=planted>another</b> since step 1,000")
    expect(page.locator("#planted")).to_have_count(0)
    expect(page.locator("#monitor-summary")).to_contain_text("step 8,000 of 20,000, epoch 1, 9,000 tokens/s")
    expect(page.locator("#monitor-summary")).to_contain_text("The trainer is not running")
    expect(page.locator("#monitor-machine")).to_contain_text("processors")
    expect(page.locator("#monitor-notes")).to_contain_text("Resumed at step 1,000.")

    expect(page.locator("#plot-mel-loss svg.marks")).to_be_visible()
    expect(page.locator("#plot-mel-loss .role-legend-label text")).to_have_count(3)
    page.locator("#monitor-smoothing input[type=number]").fill("0.6")
    page.locator("#monitor-smoothing input[type=number]").press("Tab")
    expect(page.locator("#plot-mel-loss")).to_contain_text("as logged")
    assert legend(page) == ["as logged", "training", "validation", "resumed"]
    choose(page, "monitor-compare", "well")
    expect(page.locator("#plot-mel-loss")).to_contain_text("validation, well")
    page.keyboard.press("Escape")
    page.locator("#monitor-smoothing input[type=number]").fill("0")
    page.locator("#monitor-smoothing input[type=number]").press("Tab")
    expect(page.locator("#plot-mel-loss")).not_to_contain_text("as logged")
    assert legend(page) == ["training", "validation", "training, well", "validation, well", "resumed"]
    page.locator("#monitor-log").get_by_role("checkbox").check()
    expect(page.locator("#plot-mel-loss")).to_contain_text("decimal logarithm")
    page.screenshot(path=tmp_path / "monitor.png", full_page=True)

    table = page.locator("#checkpoint-table")
    expect(table).to_contain_text("model_step8000.pth")
    choose(page, "checkpoint-chosen", "model_step5000.pth")
    page.locator("#checkpoint-pin").click()
    expect(page.locator("#checkpoint-pin")).to_have_text("Unpin")
    assert (run_dir / "model_step5000.pinned").exists()
    expect(table).to_contain_text("pinned")
    page.locator("#checkpoint-delete").click()
    toast(page, "is pinned; unpin it first")
    page.locator("#checkpoint-pin").click()
    expect(page.locator("#checkpoint-pin")).to_have_text("Pin")

    page.locator("#checkpoint-delete").click()
    question = page.locator("#checkpoint-question")
    expect(question).to_contain_text(re.compile(r"Move model_step5000\.pth \(.*, step 5000\) to the trash\?"))
    page.locator("#checkpoint-no").click()
    expect(question).to_be_hidden()
    assert len(list_checkpoints(run_dir)) == 5
    page.locator("#checkpoint-delete").click()
    page.locator("#checkpoint-yes").click()
    expect(table).not_to_contain_text("model_step5000.pth")
    assert len(list((run_dir / "trash").glob("*_model_step5000/model_step5000.*"))) == 2
    page.locator("#checkpoint-empty").click()
    expect(page.locator("#checkpoint-empty")).to_be_hidden()
    assert not (run_dir / "trash").exists()

    choose(page, "checkpoint-chosen", "model_step7000.pth")
    page.locator("#checkpoint-listen").click()
    wait_for(page, "listen-checkpoint", r"^model_step7000\.pth: step 7000")
    expect(find_tab(page, "8 Listen and export")).to_have_attribute("aria-selected", "true")
    open_tab(page, "7 Monitor")
    page.locator("#checkpoint-export").click()
    wait_for(page, "export-checkpoint", r"^model_step7000\.pth$")

    open_tab(page, "7 Monitor")
    choose(page, "project", "well")
    health = page.locator("#monitor-health")
    expect(health).to_contain_text(f"{len(CHECKS)} checks")
    expect(page.locator("#monitor-notes")).to_contain_text("part 2 of the run")
    expect(page.locator("#monitor-compare")).not_to_contain_text("well")  # not with itself
    choose(page, "monitor-compare", "part 1")
    expect(page.locator("#plot-mel-loss")).to_contain_text("training, part 1")
    expect(page.locator("#checkpoint-none")).to_contain_text("No checkpoint yet.")
    page.keyboard.press("Escape")
    expect(page.locator("#plot-mel-loss .role-legend-label text")).to_have_count(5)
    page.screenshot(path=tmp_path / "well.png", full_page=True)
    choose(page, "project", "demo")
    expect(health).to_contain_text("No training run yet")
    expect(page.locator("#plot-mel-loss")).to_be_hidden()
    page.set_viewport_size({"width": 390, "height": 844})
    width = page.evaluate("document.documentElement.scrollWidth")
    assert width <= 390
    page.screenshot(path=tmp_path / "phone.png", full_page=True)
    page.close()
