"""Tests of the readings on the project: tokenizer/readings_view.py and data/text_view.py."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from indextts.commands.normalizer_options import NormalizerOptions, Reading
from indextts.data.manifest import Utterance
from indextts.data.review import check_folder, read_reviewed_texts
from indextts.data.text_report import TEXTS_NAME, TextReport, report_texts
from indextts.errors import UserError
from indextts.projects.project import Project, make_settings, read_project, write_project
from indextts.projects.readings import read_readings
from indextts.system.files import write_json
from indextts.text.readings import ReadingRow
from indextts.text.tokenizer import Tokenizer
from indextts.webui.data.text_view import texts_html, use_heard
from indextts.webui.tokenizer.readings_view import (
    remove_row,
    save_row,
    show_row,
    table_html,
    try_row,
    usage_of,
)
from tests.tiny_run import BASE_TOKENIZER, SENTENCES
from tests.tokenizers import extend

TEXTS = ["በBBC ዜና", "BBCን አየ", "BBC <b>x</b>", "ሌላ የBBC ጽሑፍ", "ሰላም ነው"]
BBC = ("BBC", "ቢቢሲ", "word", "")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    project = Project(tmp_path)
    write_project(project, make_settings(name="voice", base=tmp_path))
    project.tokenizer.parent.mkdir()
    project.tokenizer.write_bytes(extend(BASE_TOKENIZER, SENTENCES, 720))
    project.dataset.mkdir()
    lines = [{"audio": "a.wav", "text": text, "speaker": "s", "id": str(n)} for n, text in enumerate(TEXTS)]
    project.manifest.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    return project


def table(project: Project) -> str:
    return table_html(project, read_project(project))


def test_a_saved_row_is_in_the_file_the_tokenizer_and_the_table_with_its_texts(project: Project):
    *_, note = save_row(project, "", *BBC)
    assert "4 of 5" in note
    assert read_readings(project) == [ReadingRow(*BBC)]
    assert Tokenizer.load(project.tokenizer).options.readings == (Reading("BBC", "ቢቢሲ", "word"),)
    [usage] = usage_of(project, [Reading("BBC", "ቢቢሲ", "word")]).values()
    assert (usage.num_texts, usage.examples) == (4, tuple(TEXTS[:3]))
    shown = table(project)
    assert '<td class="number">4</td>' in shown
    assert "&lt;b&gt;x" in shown
    assert "<b>x" not in shown


def test_a_chosen_row_is_changed_or_removed(project: Project):
    save_row(project, "", *BBC)
    save_row(project, "", "ክፍል-#", "ክፍል #", "number", "am")
    first, second = (row.key for row in read_readings(project))
    assert show_row(project, second)[:5] == [second, "ክፍል-#", "ክፍል #", "number", "am"]
    save_row(project, first, "BBC", "ቢ ቢ ሲ", "word", "")
    assert [row.spoken for row in read_readings(project)] == ["ቢ ቢ ሲ", "ክፍል #"]
    remove_row(project, first)
    assert [row.written for row in read_readings(project)] == ["ክፍል-#"]
    assert show_row(project, first)[0] == ""


def test_a_row_that_another_browser_removed_is_not_saved_over_its_neighbour(project: Project):
    for written in ("BBC", "CNN", "VOA"):
        save_row(project, "", written, "ሬዲዮ", "word", "")
    bbc, cnn, _ = (row.key for row in read_readings(project))
    remove_row(project, bbc)
    save_row(project, cnn, "CNN", "ቴሌቪዥን", "word", "")
    with pytest.raises(UserError):
        save_row(project, bbc, "BBC", "ቢቢሲ", "word", "")
    remove_row(project, bbc)
    assert [(row.written, row.spoken) for row in read_readings(project)] == [("CNN", "ቴሌቪዥን"), ("VOA", "ሬዲዮ")]


def test_many_browsers_save_at_once_and_no_reading_is_lost(project: Project):
    names = [f"R{number}" for number in range(12)]
    with ThreadPoolExecutor(len(names)) as browsers:
        list(browsers.map(lambda name: save_row(project, "", name, "ሬዲዮ", "word", ""), names))
    assert sorted(row.written for row in read_readings(project)) == sorted(names)


@pytest.mark.parametrize(
    "cells", [("BBC", "ሌላ", "word", ""), ("", "x", "word", ""), ("a", "b", "number", "")]
)
def test_a_row_that_cannot_be_used_is_refused_and_nothing_is_stored(project: Project, cells: tuple[str, ...]):
    save_row(project, "", *BBC)
    with pytest.raises(UserError):
        save_row(project, "", *cells)
    assert read_readings(project) == [ReadingRow(*BBC)]


def test_a_text_is_tried_with_the_saved_rows_and_that_of_the_editor(project: Project):
    save_row(project, "", *BBC)
    tried = try_row(project, "BBC እና WHO 5 <i>", "", "WHO", "የዓለም ጤና ድርጅት", "word", "")
    assert "ቢቢሲ እና የዓለም ጤና ድርጅት አምስት" in tried
    assert "<i>" not in tried
    assert "ሰው WHO አምስት" in try_row(project, "ሰው WHO 5", "", "WHO", "", "word", "")
    [row] = read_readings(project)
    assert "BBC" in try_row(project, "BBC", row.key, "BBC", "BBC", "word", "")
    refused = try_row(project, "BBC", "", "<img src=x>", "x", "number", "")
    assert "&lt;img" in refused
    assert "<img" not in refused


def test_an_invalid_table_is_shown_as_its_error(project: Project):
    project.readings.write_text("x\n", encoding="utf-8")
    assert "readings.tsv:1: " in table(project)


def write_report(project: Project, report: TextReport) -> None:
    """Write a report as the check does."""
    check_folder(project.manifest).mkdir(exist_ok=True)
    write_json(check_folder(project.manifest) / TEXTS_NAME, report.model_dump())


def test_the_check_offers_a_reading_for_each_form_without_one(project: Project):
    assert texts_html(project) == ""
    texts = [*TEXTS, "የ<WHO ዜና", "በ1985 ዓ.ም"]
    found = [
        Utterance(id=str(n), audio=Path("a.wav"), text=text, speaker="s", duration_s=2.0, language="am")
        for n, text in enumerate(texts)
    ]
    write_report(project, report_texts(found, NormalizerOptions()))
    shown = texts_html(project)
    assert 'data-send="[&quot;BBC&quot;]" href="#tokenizer/reading-editor"' in shown
    assert "<WHO" not in shown
    assert "በአሥራ" in shown
    save_row(project, "", *BBC)
    assert "[&quot;BBC&quot;]" not in texts_html(project)
    assert "[&quot;WHO&quot;]" in texts_html(project)


def test_what_was_heard_is_counted_and_offered_as_a_correction(project: Project):
    text = "በ1985 ዓ.ም"
    project.manifest.write_text(
        json.dumps({"id": "u", "audio": "a.wav", "text": text, "speaker": "s", "duration": 2.0})
    )
    found = [Utterance(id="u", audio=Path("a.wav"), text=text, speaker="s", duration_s=2.0, language="am")]
    options = NormalizerOptions()
    write_report(project, report_texts(found, options))
    assert "<button" not in texts_html(project)
    write_report(project, report_texts(found, options, ["በአስራ ዘጠኝ መቶ ሰማኒያ አምስት"]))
    assert "&quot;years&quot;" in texts_html(project)
    noted = texts_html(project, {"years": "<done>"})
    assert "&lt;done&gt;" in noted
    assert "<button" not in noted
    assert ": 0." in use_heard(project, "money_decimals")
    assert ": 1." in use_heard(project, "years")
    assert read_reviewed_texts(project.manifest) == ["በአሥራ ዘጠኝ መቶ ሰማንያ አምስት ዓመተ ምሕረት"]
