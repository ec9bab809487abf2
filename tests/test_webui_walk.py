"""The page as a user sees it: a real server, real jobs, a real browser, the demo from start to resume."""

import re

import pytest
from playwright.sync_api import Browser, Page, expect

from indextts.runs.directory import read_metrics
from tests.page_layout import problems_of_tabs
from tests.walking import (
    Server,
    ask,
    open_tab,
    plan_row,
    start_request,
    value,
    wait_for,
    wait_for_project,
)

pytestmark = pytest.mark.long


def run_stage(page: Page, tab: str, stage: str) -> None:
    open_tab(page, tab)
    page.locator(f"#{stage}-start").click()
    wait_for(page, f"{stage}-status", r"^finished after")


def steps(server: Server, part: int) -> list[int]:
    lines = read_metrics(server.workspace / "demo/training_output/metrics.jsonl")
    return [line["step"] for line in lines if line["kind"] == "train" and line["part"] == part]


def start_training(page: Page) -> None:
    open_tab(page, "6 Training")
    page.locator("#train-start").click()
    wait_for(page, "train-status", r"^running for")


@pytest.mark.failure(28)
def test_a_new_user_goes_from_the_first_tab_to_training_stops_and_resumes(server: Server, browser: Browser):
    page = browser.new_page()
    page.goto(server.url)
    wait_for_project(page)
    expect(page.get_by_role("button", name="Try the demo")).to_be_enabled()
    expect(page.get_by_test_id("toast-body")).to_have_count(0)
    expect(page.locator("#visit")).to_be_visible()
    for tab, stage in (
        ("2 Data", "data"),
        ("3 Tokenizer", "tokenizer"),
        ("4 Preprocess", "preprocess"),
        ("5 Pairs", "pairs"),
    ):
        run_stage(page, tab, stage)
    wait_for(page, "pairs-numbers", r"^472 pairs for 236 targets \(9 min\), 4 speakers")
    expect(page.locator("#plot-hours svg")).to_be_visible()
    page.get_by_role("radio", name="For validation").click()
    wait_for(page, "pairs-numbers", r"^40 pairs for 20 targets \(\d+ s\), 4 speakers")
    open_tab(page, "2 Data")
    expect(page.locator("#data-numbers")).to_contain_text("256")
    wait_for(page, "data-log", "No problems")
    open_tab(page, "3 Tokenizer")
    page.locator("#try-sentence textarea, #try-sentence input").first.fill("5 ነው <img src=x id=planted>")
    pieces = page.locator("#try-pieces")
    expect(pieces).to_contain_text("Spoken form: አምስት ነው")
    expect(pieces.locator(".appended").filter(has_text="▁ነው").first).to_be_visible()
    expect(pieces.locator(".unknown").first).to_be_visible()  # by the base, which knows no Amharic
    expect(page.locator("#planted")).to_have_count(0)

    open_tab(page, "6 Training")
    page.locator("#Train-epochs input").fill("20")  # enough steps that it still runs when the test stops it
    expect(page.locator("#train-outlook")).to_contain_text("2,360")
    start_training(page)
    wait_for(page, "train-log", r"step=20 ")
    expect(page.locator("#train-bar")).to_contain_text(re.compile(r"step \d+ of 2,360"))
    expect(page.locator("#train-onward a")).to_have_attribute("href", "#monitor")
    open_tab(page, "7 Monitor")
    expect(page.locator("#plot-mel-loss svg path.training").first).to_be_visible()
    assert problems_of_tabs(page, "1 ", "6 ", "7 ") == {}

    page.reload()
    open_tab(page, "6 Training")
    wait_for(page, "train-status", r"^running for")
    # the page's own process dies while its reader is elsewhere (a page left open comes back by itself:
    # test_webui_watching); the training does not notice, and the page shows it again
    page.goto("about:blank")
    server.kill()
    server.start()
    page.goto(server.url)
    open_tab(page, "6 Training")
    wait_for(page, "train-status", r"^running for")
    page.locator("#train-stop").click()
    wait_for(page, "train-status", r"^stopped after")
    wait_for(page, "train-log", r"Stopped at step \d+")
    stopped_at = int(re.findall(r"Stopped at step (\d+)", value(page, "train-log"))[-1])

    # the checkbox is ticked since there is a checkpoint, and the plan is there without a click
    expect(page.locator("#train-resume input")).to_be_checked()
    expect(plan_row(page, "continues", "Step")).to_contain_text(f"{stopped_at + 1:,} to 2,360")
    expect(page.locator("#train-start")).to_have_text(f"Resume at step {stopped_at:,}")
    wait_for(page, "train-command", "--resume=auto")
    assert problems_of_tabs(page, "6 ") == {}
    start_training(page)
    wait_for(page, "train-log", rf"Epoch: \d+, Step: {stopped_at}, Batch")
    wait_for(page, "train-log", r"\[Train\]")
    assert steps(server, part=1) == list(range(10, steps(server, part=1)[-1] + 1, 10))
    page.locator("#train-stop").click()
    wait_for(page, "train-status", r"^stopped after")

    # a tokenizer that lost a piece: the plan says so, the run starts over and learns
    open_tab(page, "3 Tokenizer")
    page.locator("#ExtendTokenizer-target_size input").fill("699")
    page.locator("#ExtendTokenizer-target_size input").press("Tab")
    wait_for(page, "tokenizer-command", "--target-size=699")
    run_stage(page, "3 Tokenizer", "tokenizer")
    wait_for(page, "tokenizer-log", r"\b699\b")  # no longer what the run before left
    wait_for(page, "tokenizer-status", r"^finished after")
    open_tab(page, "6 Training")
    # what restarts is amber, says what is lost and asks for a second click
    expect(plan_row(page, "restarts", "Step")).to_be_visible()
    expect(page.locator("#train-outlook .warn")).to_contain_text("700 → 699")
    expect(page.locator("#train-start")).to_have_class(re.compile(r"\bamber\b"))
    page.locator("#train-start").click()
    expect(page.locator("#train-start")).to_have_text("Click again to confirm")
    start_training(page)
    wait_for(page, "train-log", r"Training will RESTART from step 0")
    wait_for(page, "train-log", r"step=20 ")
    page.locator("#train-stop").click()
    wait_for(page, "train-status", r"^stopped after")
    assert steps(server, part=2)[:2] == [10, 20]

    open_tab(page, "8 Listen and export")
    page.locator("#listen-export-button").click()
    page.locator("#export-start").click()
    wait_for(page, "export-status", r"^finished after")
    expect(page.locator("#export-files")).to_contain_text("gpt.pth")
    page.close()


def test_training_cannot_be_started_from_another_site_or_outside_the_workspace(server: Server):
    request = start_request(server)
    assert ask(server, "/gradio_api/queue/join", request, Origin="http://evil.test")[0] == 403
    outside = {"Train-output_dir": "/etc/run", "train-resume-path": "/etc/passwd"}
    for element, path in outside.items():
        request = start_request(server, **{"train-resume": True, element: path})
        assert ask(server, "/gradio_api/queue/join", request)[0] == 200
        events = ask(server, "/gradio_api/queue/data?session_hash=raw")[1]
        assert '"success": false' in events.replace('"success":false', '"success": false')
        assert path in events
        assert "outside" in events or "inside" in events
    assert not (server.workspace / "demo/jobs").exists()


def test_a_start_that_the_trainer_would_refuse_is_refused_with_its_message(server: Server, browser: Browser):
    page = browser.new_page()
    page.goto(server.url)
    open_tab(page, "6 Training")
    page.locator("#train-resume input").check()
    missing = server.workspace / "demo/absent.pth"
    page.locator("#train-resume-path textarea, #train-resume-path input").first.fill(str(missing))
    wait_for(page, "train-command", "--resume=")
    expect(page.locator("#train-outlook .bad").last).to_contain_text("Resume checkpoint not found")
    expect(page.locator("#train-plan li.refused").last).to_contain_text("Resume checkpoint not found")
    expect(page.locator("#train-start")).to_be_disabled()
    assert value(page, "train-status") == ""
    page.close()
