"""Tab 7 in a browser: a run with every problem, its curves, its checkpoints."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Dialog, Locator, Page, expect

from indextts.runs.checkpoints import list_checkpoints
from indextts.runs.health.checks import CHECKS
from tests.page_layout import DESKTOP
from tests.walking import open_tab, wait_for
from tests.watched_workspace import make_watched_workspace
from tests.webui_server import Server


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    workspace = tmp_path_factory.mktemp("monitor") / "workspace"
    make_watched_workspace(workspace)
    server = Server(workspace)
    yield server
    server.kill()


@pytest.fixture
def page(served: Server, browser: Browser) -> Page:
    """The page at tab 7, with the run that has every problem."""
    page = browser.new_page(viewport=DESKTOP)
    page.goto(f"{served.url}/?project=unhealthy#monitor")
    expect(page.locator("#plot-mel-loss svg path.training")).to_have_count(1)
    return page


@pytest.fixture
def run_dir(served: Server) -> Path:
    return served.workspace / "unhealthy/training_output"


def row(page: Page, name: str) -> Locator:
    return page.locator(f'#checkpoint-table tr[data-name="{name}"]')


def action(page: Page, name: str, what: str) -> Locator:
    return row(page, name).locator(f'[data-action="{what}"]')


def drag(page: Page, begin: float, end: float) -> None:
    """Drag across a chart, from and to a share of its width."""
    plot = page.locator("#plot-mel-loss .plot")
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    assert box
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + begin * box["width"], middle)
    page.mouse.down()
    page.mouse.move(box["x"] + end * box["width"], middle, steps=5)
    page.mouse.up()


def span(page: Page) -> list[float]:
    points = page.locator("#plot-mel-loss .plot").get_attribute("data-points")
    first, last = json.loads(points or "{}")["span"]
    return [first, last]


def choose(page: Page, element: str, option: str) -> None:
    page.locator(f"#{element} input").click()
    page.get_by_role("option", name=option, exact=True).click()


def toast(page: Page, text: str) -> None:
    expect(page.get_by_test_id("toast-body").filter(has_text=text).first).to_be_visible()


def test_a_user_reads_the_health_compares_runs_and_keeps_a_checkpoint(page: Page, run_dir: Path):
    cards = page.locator("#monitor-health .health")
    expect(cards.first).to_contain_text("Problem: The disk has no space for the next checkpoint")
    expect(page.locator("#monitor-health")).to_contain_text("<b id=planted>another</b> since step 1,000")
    expect(page.locator("#planted")).to_have_count(0)
    summary = page.locator("#monitor-summary")
    expect(summary).to_contain_text("8,000 of 20,000")
    expect(summary).to_contain_text("epoch 2, saved 8,000")
    expect(summary.locator('a[href="#monitor/monitor-health"]')).to_be_visible()
    expect(page.locator("#plot-mel-loss path.resume")).to_have_count(1)

    expect(page.locator("#plot-mel-loss svg path.training")).to_have_count(1)
    keys = page.locator("#plot-mel-loss figcaption .key").all_text_contents()
    assert keys == ["training", "validation"]
    choose(page, "monitor-compare", "well")
    expect(page.locator("#plot-mel-loss figcaption")).to_contain_text("validation, well")
    page.keyboard.press("Escape")
    expect(page.locator("#plot-mel-loss path.raw")).to_have_count(1)
    for is_full in (True, False):
        page.locator("#plot-mel-loss [data-full]").click()
        page.wait_for_function(f"!!document.fullscreenElement === {str(is_full).lower()}")
    page.locator("#monitor-smoothing input[type=number]").fill("0")
    page.locator("#monitor-smoothing input[type=number]").press("Tab")
    expect(page.locator("#plot-mel-loss path.raw")).to_have_count(0)
    table = page.locator("#checkpoint-table")
    expect(table.locator("tbody tr").first).to_have_attribute("data-name", "model_step8000.pth")
    action(page, "model_step5000.pth", "pin").click()
    expect(action(page, "model_step5000.pth", "pin")).to_have_text("Unpin")
    assert (run_dir / "model_step5000.pinned").exists()
    action(page, "model_step7000.pth", "listen").click()
    wait_for(page, "listen-checkpoint", r"^Step 7,000")
    expect(page.locator("#tab-listen-button")).to_have_attribute("aria-selected", "true")
    expect(page.locator("#listen-speak-button")).to_have_attribute("aria-selected", "true")


@pytest.mark.long
def test_a_user_enlarges_a_chart_by_mouse_and_keyboard(page: Page):
    page.locator("#monitor-log").get_by_role("checkbox").check()
    whole = span(page)
    drag(page, 0.25, 0.5)
    show_all = page.locator("#plot-mel-loss [data-show-all]")
    expect(show_all).to_be_visible()
    first, last = span(page)
    assert whole[0] < first < last < whole[1]
    page.locator("#plot-mel-loss .plot").hover(position={"x": 50, "y": 50})
    expect(page.locator("#plot-mel-loss output")).to_contain_text("training")  # the values at the pointer
    show_all.click()
    expect(show_all).to_have_count(0)
    assert span(page) == whole
    plot = page.locator("#plot-mel-loss .plot")
    plot.focus()
    for _ in range(20):
        plot.press("Shift+ArrowRight")
    plot.press("Enter")
    expect(show_all).to_be_visible()
    assert span(page)[1] < whole[1] / 2
    plot.dblclick()
    expect(show_all).to_have_count(0)
    expect(page.locator("#plot-lr")).to_be_hidden()
    page.locator("#monitor-more-button").click()
    expect(page.locator("#plot-lr svg path.training").first).to_be_visible()


@pytest.mark.long
def test_a_user_deletes_checkpoints_and_changes_the_project(page: Page, run_dir: Path):
    table, summary = page.locator("#checkpoint-table"), page.locator("#monitor-summary")
    cards = page.locator("#monitor-health .health")
    action(page, "model_step7000.pth", "pin").click()
    expect(action(page, "model_step7000.pth", "pin")).to_have_text("Unpin")
    # it looks disabled, and a click shows the reason
    action(page, "model_step7000.pth", "delete").click(force=True)
    toast(page, "is pinned; unpin it first")
    action(page, "model_step7000.pth", "pin").click()
    expect(action(page, "model_step7000.pth", "pin")).to_have_text("Pin")

    questions: list[str] = []

    def answer(dialog: Dialog) -> None:
        questions.append(dialog.message)
        dialog.accept() if len(questions) > 1 else dialog.dismiss()

    page.on("dialog", answer)
    action(page, "model_step7000.pth", "delete").click()
    assert re.search(r"model_step7000\.pth.*7000", questions[0])
    assert len(list_checkpoints(run_dir)) == 5
    action(page, "model_step7000.pth", "delete").click()
    expect(row(page, "model_step7000.pth")).to_have_count(0)
    assert len(list((run_dir / "trash").glob("*_model_step7000/model_step7000.*"))) == 2
    page.locator("#checkpoint-empty").click()
    expect(page.locator("#checkpoint-empty")).to_be_hidden()
    assert not (run_dir / "trash").exists()

    action(page, "model_step6000.pth", "export").click()
    wait_for(page, "export-checkpoint", r"^Step 6,000")

    open_tab(page, "7 Monitor")
    choose(page, "project", "well")
    expect(summary).to_contain_text(f"{len(CHECKS)} checks")
    expect(cards).to_have_count(0)
    expect(page.locator("#monitor-notes")).to_contain_text("part 2 of the run")
    expect(page.locator("#monitor-compare")).not_to_contain_text("well")  # not with itself
    choose(page, "monitor-compare", "part 1")
    expect(page.locator("#plot-mel-loss figcaption")).to_contain_text("training, part 1")
    expect(table).to_contain_text("No checkpoint yet.")
    page.keyboard.press("Escape")
    choose(page, "project", "demo")
    expect(page.locator("#monitor-empty a")).to_have_attribute("href", "#data")
    expect(page.locator("#monitor-body")).to_be_hidden()
    choose(page, "project", "unhealthy")
    expect(page.locator("#plot-mel-loss .plot svg")).to_be_visible()
    page.set_viewport_size({"width": 390, "height": 844})
    page.wait_for_function("document.documentElement.scrollWidth <= 390")
