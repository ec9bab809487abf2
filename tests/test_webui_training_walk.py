"""Tab 6 before a start: a real server, a real browser, a run with real checkpoints."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from indextts.projects.project import Project, ProjectSettings, write_project
from tests.tiny_run import TYPED, make_tiny_run
from tests.waiting import wait_until
from tests.walking import open_tab, plan_row, value, wait_for
from tests.webui_server import Server

pytestmark = pytest.mark.long

SETTINGS = {
    "epochs": 3,
    **TYPED,
    "warmup_steps": 0,
    "learning_rate": 0.01,
    "log_interval": 2,
    "val_interval": 2,
    "save_interval": 2,
}


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with the project `voice`, whose training stands at step 4 of 12."""
    folder = tmp_path_factory.mktemp("walk")
    run, project = make_tiny_run(folder / "tiny"), Project(folder / "workspace/voice")
    for path in (project.config.parent, project.tokenizer.parent, project.preprocessed):
        path.mkdir(parents=True)
    for name in ("config.yaml", "gpt.pth", "bpe.model"):
        shutil.copy2(run.folder / "base" / name, project.config.parent / name)
    shutil.copy2(run.folder / "tokenizer.model", project.tokenizer)
    shutil.copytree(run.folder / "features", project.preprocessed / "features")
    for split in ("train", "val"):
        shutil.copy2(run.folder / f"{split}_pairs.jsonl", project.pairs(split))
    write_project(project, ProjectSettings(name="voice", base=run.folder / "base", train=SETTINGS))
    paths = {
        "train_manifest": project.pairs("train"),
        "val_manifest": project.pairs("val"),
        "tokenizer": project.tokenizer,
        "config": project.config,
        "base_checkpoint": project.base_checkpoint,
        "output_dir": project.run_dir,
    }
    assert run.train(**paths, **SETTINGS, max_steps=4) == 0
    (project.run_dir / ".lock").write_text("")  # it names this process, which lives on
    return folder / "workspace"


@pytest.fixture
def server(workspace: Path) -> Iterator[Server]:
    server = Server(workspace)
    yield server
    server.kill()


def opened(server: Server, browser: Browser) -> Page:
    page = browser.new_page()
    page.goto(server.url)
    return page


def is_shown(page: Page, element: str, text: str) -> None:
    expect(page.locator(f"#{element}")).to_contain_text(text)


def set_to(page: Page, field: str, number: str) -> None:
    expect(page.locator(f"#Train-{field} input")).to_have_value(number)


def choose(page: Page, menu: str, choice: str) -> None:
    page.locator(f"#{menu} input").click()
    page.get_by_role("option", name=re.compile(choice)).first.click()


def test_before_a_start_the_page_shows_the_estimate_and_the_blocking_problems(
    server: Server, browser: Browser, workspace: Path
):
    page = opened(server, browser)
    open_tab(page, "6 Training")

    # a folder with checkpoints is resumed unless the user unticks it; a new run cannot be started there
    expect(page.locator("#train-resume input")).to_be_checked()
    expect(page.locator("#train-start")).to_have_text("Resume at step 4")
    page.locator("#train-resume input").uncheck()
    page.locator("#train-checkpoints input").focus()
    page.keyboard.press("Tab")  # passing the menu chooses nothing
    is_shown(page, "train-outlook", "tick Resume from checkpoint")
    is_shown(page, "train-outlook", "12, 4 per epoch")
    is_shown(page, "train-outlook", "measured by this run so far, on this processor")
    expect(page.locator("#train-start")).to_be_disabled()

    # a recipe fills the form and names its source; the estimate follows; all of it survives a reload
    choose(page, "train-recipe", "30 to 120 h")
    set_to(page, "learning_rate", "0.00002")
    set_to(page, "epochs", "6")
    is_shown(page, "train-source", "values of an earlier script")
    is_shown(page, "train-outlook", "6, 1 per epoch")
    marks = page.locator("#train-marks style")
    wait_until(lambda: "#Train-batch_tokens" in (marks.text_content() or ""))
    expect(page.locator("#train-reset")).to_have_text(re.compile(r"Reset \d+ changed"))
    page.reload()
    open_tab(page, "6 Training")
    set_to(page, "learning_rate", "0.00002")
    expect(page.locator("#train-recipe input")).to_have_value(re.compile("30 to 120 h"))
    second = opened(server, browser)
    open_tab(second, "6 Training")
    set_to(second, "epochs", "6")
    expect(page.locator("#train-theirs")).to_be_hidden()
    second.locator("#Train-epochs input").fill("7")
    page.locator("#train-theirs").click()
    set_to(page, "epochs", "7")
    second.close()

    # the search leaves the fields whose name or help has the words, also those in the fold
    search = page.locator("#train-search input, #train-search textarea").first
    search.press_sequentially("keep check")
    expect(page.locator("#Train-keep_checkpoints")).to_be_visible()
    expect(page.locator("#Train-learning_rate")).to_be_hidden()
    expect(page.locator("#train-group-rate")).to_be_hidden()
    expect(page.locator("#train-search-count")).to_contain_text("1 / ")
    search.fill("")
    expect(page.locator("#Train-learning_rate")).to_be_visible()
    choose(page, "train-recipe", "Automatic for this machine")
    is_shown(page, "train-source", "make a step of about")
    page.locator("#train-reset").click()
    set_to(page, "learning_rate", "0.01")
    expect(page.locator("#train-reset")).to_be_hidden()

    # a choice of the menu is the path and the tick; the plan and the rest of the run are shown at once
    choose(page, "train-checkpoints", "step 2,")
    expect(plan_row(page, "continues", "Step")).to_contain_text("3 to 12, epoch 1 of 3")
    assert page.locator("#train-resume input").is_checked()
    assert value(page, "train-resume-path") == "model_step2.pth"
    is_shown(page, "train-card-title", "step 2 of 12")
    is_shown(page, "train-outlook", "10 more, to 12")
    is_shown(page, "train-outlook", "Ready to start")
    expect(page.locator("#train-start")).to_have_text("Resume at step 2")
    expect(page.locator("#train-start")).to_be_enabled()
    wait_for(page, "train-command", r"--resume=\S+training_output/model_step2\.pth")

    # a wrong path is refused
    path = page.locator("#train-resume-path input, #train-resume-path textarea").first
    path.fill("/etc/passwd.pth")
    expect(page.locator("#train-plan li.refused")).to_have_count(1)
    is_shown(page, "train-plan", "/etc/passwd.pth")
    expect(page.locator("#train-start")).to_be_disabled()

    # an invalid value is reported at its field and in the panel, with a link to the field
    path.fill("")
    page.locator("#Train-epochs input").fill("0")
    expect(page.locator('#train-outlook .bad a[href="#training/Train-epochs"]')).to_be_visible()
    expect(page.locator("#train-start")).to_be_disabled()
    page.locator("#Train-epochs input").fill("3")
    is_shown(page, "train-outlook", "Ready to start")

    path.fill("")
    search.fill("output dir")  # opens what is folded away
    # another project's pairs get a share of the epoch, and their language its own validation loss
    search.fill("")
    voice, other = Project(workspace / "voice"), Project(workspace / "english")
    shutil.copytree(voice.preprocessed / "features", other.preprocessed / "features")
    write_project(other, ProjectSettings(name="english", base=Path("base"), language="en"))
    for split in ("train", "val"):
        shutil.copy2(voice.pairs(split), other.pairs(split))
    choose(page, "train-other", "english")
    page.locator("#train-add-other").click()
    wait_for(
        page,
        "train-command",
        r"--train-manifest=\S+/voice/\S+@0\.85 --train-manifest=\S+/english/\S+@en@0\.15 ",
    )
    wait_for(page, "train-command", r"--val-manifest=\S+/voice/\S+ --val-manifest=\S+/english/\S+@en ")
    is_shown(page, "train-outlook", "26 pairs")
