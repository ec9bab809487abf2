"""Readings in a browser: from a form that the check lists to a saved reading in the tokenizer."""

import json
import shutil
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from indextts.commands.normalizer_options import NormalizerOptions, Reading
from indextts.data.manifest import Utterance
from indextts.data.text_report import report_texts
from indextts.projects.project import Project, make_settings, write_project
from indextts.text.tokenizer import Tokenizer
from tests.page_layout import problems_of_tabs
from tests.test_webui_readings import write_report
from tests.tiny_run import BASE_TOKENIZER, SENTENCES
from tests.tokenizers import extend
from tests.webui_server import Server

pytestmark = pytest.mark.long

TEXTS = ["በBBC ዜና", "BBCን አየ", "ሰላም ነው <img src=x id=planted>"]


def write_voice(project: Project) -> None:
    project.base_tokenizer.parent.mkdir(parents=True)
    shutil.copy(BASE_TOKENIZER, project.base_tokenizer)
    project.tokenizer.parent.mkdir()
    project.tokenizer.write_bytes(extend(BASE_TOKENIZER, SENTENCES, 720))
    write_project(project, make_settings(name="voice", base=project.root))
    project.dataset.mkdir()
    found = [
        Utterance(id=f"u{n}", audio=Path("a.wav"), text=text, speaker="s", duration_s=2.0, language="am")
        for n, text in enumerate(TEXTS)
    ]
    lines = [
        {"id": each.id, "audio": "a.wav", "text": each.text, "speaker": "s", "duration": 2.0}
        for each in found
    ]
    project.manifest.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    write_report(project, report_texts(found, NormalizerOptions()))


def test_a_form_of_the_check_gets_a_reading_that_the_tokenizer_has(server: Server, browser: Browser):
    project = Project(server.workspace / "voice")
    write_voice(project)
    page = browser.new_page(viewport={"width": 1280, "height": 1400})
    page.goto(f"{server.url}/?project=voice#data/data-tab-check")
    page.locator("#check-texts a[data-send*=BBC]").click()
    written = page.locator("#reading-written").locator("textarea, input")
    expect(written).to_have_value("BBC")
    page.locator("#reading-spoken").locator("textarea, input").fill("ቢቢሲ")
    page.locator("#reading-try").locator("textarea, input").fill("በBBC 5 <img src=x id=planted>")
    expect(page.locator("#reading-result")).to_contain_text("በቢቢሲ አምስት")
    assert not project.readings.exists()
    page.locator("#reading-save").click()
    row = page.locator("#readings-table tr[data-send]")
    expect(row).to_contain_text("ቢቢሲ")
    expect(row.locator(".number")).to_have_text("2")
    expect(page.locator("#reading-note")).to_contain_text("2 of 3")
    assert Tokenizer.load(project.tokenizer).options.readings == (Reading("BBC", "ቢቢሲ", "word"),)
    assert problems_of_tabs(page, "3 ") == {}
    row.click()
    expect(written).to_have_value("BBC")
    page.locator("#reading-remove").click()
    expect(row).to_have_count(0)
    assert Tokenizer.load(project.tokenizer).options.readings == ()
    expect(page.locator("#planted")).to_have_count(0)
