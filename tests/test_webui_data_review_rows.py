import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from indextts.data.manifest import Provenance, Utterance, read_utterances, write_utterances
from indextts.data.review import check_folder, read_decisions, read_reviewed
from indextts.data.review_table import ALL, DECIDED, DOUBTFUL, Filter
from indextts.errors import UserError
from indextts.projects.project import Project
from indextts.webui.data.review import act, export_manifest, follow, refresh, show_page
from indextts.webui.data.review_list import list_html, marked_pair, row_html
from indextts.webui.data.review_rows import (
    checked_text,
    measure_choices,
    page_to_decide,
    read_review,
    row_of,
    speaker_choices,
)
from indextts.webui.language import t
from tests.parsed_html import Parsed

EVIL = '<img src=x onerror="alert(1)">\'&'
NO_FILTER = ("", "", "", "")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project of 120 clips, all of them noisy, number 7 most of all; every second one is short."""
    project = Project(tmp_path / "p")
    project.dataset.mkdir(parents=True)
    ids = [f"c{number:03}" for number in range(120)]
    write_utterances(project.manifest, [Utterance(id, tmp_path / id, f"ጽሑፍ {id}", "s", 2.0) for id in ids])
    folder = check_folder(project.manifest)
    folder.mkdir()
    lines = []
    for number, id in enumerate(ids):
        flags = [{"reason": "some_noise", "severity": 9 if number == 7 else number / 100, "said": "noise"}]
        flags += [{"reason": "too_short", "severity": 1, "said": "too short"}] if number % 2 else []
        lines.append(json.dumps({"id": id, "flags": flags, "measures": {"snr_db": number, "new": 1}}))
    (folder / "clips.jsonl").write_text("\n".join(lines) + "\n")
    return project


def shown_ids(clips: str) -> list[str]:
    return re.findall(r'data-clip="([^"]*)"', clips)


def shown(project: Project, number: float | None, show: str = ALL, *filters: str) -> list[Any]:
    return show_page(project, number, show, *(filters or NO_FILTER))


def decide(project: Project, action: str, id: str, value: str = "") -> dict[str, Any]:
    answer, _ = act(project, "", 1, [project.root.name, action, id, value])
    return json.loads(answer)


def test_only_one_page_of_rows_is_sent_to_the_browser(project):
    _, number, label, clips, back, forth, page, _ = shown(project, 2)
    assert number == 2
    assert re.findall(r"\d+", label) == ["21", "40", "120"]
    assert shown_ids(clips) == [f"c{number:03}" for number in range(20, 40)]
    assert json.loads(page)["ids"] == shown_ids(clips)
    assert (back.interactive, forth.interactive) == (True, True)
    dropdown, number, _, clips, back, forth, _, _ = shown(project, 9_999, "no such list")
    assert (dropdown.value, number, len(shown_ids(clips))) == (DOUBTFUL, 6, 20)
    assert (back.interactive, forth.interactive) == (True, False)


@pytest.mark.parametrize("number", [None, 0, -3, float("nan"), float("inf"), -float("inf"), 1e300])
def test_any_page_number_leads_to_a_page(project, number):
    assert len(shown_ids(shown(project, number)[3])) == 20


def test_a_list_opens_at_the_first_clip_to_decide(project):
    for number in range(25):
        decide(project, "keep", f"c{number:03}")
    assert shown(project, 0)[1] == 2
    review = read_review(project)
    assert page_to_decide(review, review.select(Filter(ALL)), 1) == 2
    assert page_to_decide(review, review.select(Filter(ALL)), 6) == 2  # from the start again


def test_speakers_and_scores_of_the_report_can_be_chosen(project):
    review = read_review(project)
    assert [value for _, value in speaker_choices(review)] == ["", "s"]
    assert {value for _, value in measure_choices(review)} == {"", "snr_db", "new"}
    assert shown_ids(shown(project, 1, ALL, "s", "snr_db", "3", "5.5")[3]) == ["c003", "c004", "c005"]
    assert t("data.measures.snr_db") + ": 3" in shown(project, 1, ALL, "s", "snr_db", "3", "5.5")[3]
    with pytest.raises(UserError, match="three"):
        shown(project, 1, ALL, "", "snr_db", "three", "")


def test_a_refresh_changes_no_filter_and_keeps_the_page_of_the_same_filters(project):
    first = refresh(project, 3, ALL, *NO_FILTER, "", "", "")
    assert first[1] == 1
    again = refresh(project, 3, ALL, *NO_FILTER, "", "", first[6])
    other = refresh(project, 3, DOUBTFUL, *NO_FILTER, "", "", first[6])
    assert (again[1], other[1]) == (3, 1)
    for found in (again, other):
        assert not any("value" in found[place].constructor_args for place in (0, 8, 9))
    linked = refresh(project, 3, ALL, *NO_FILTER, "1 too_short", "", first[6])
    assert linked[0].constructor_args["value"] == "too_short"


def test_the_answer_to_a_decision_is_the_row_and_the_totals(project):
    answer, totals = act(project, "", 7, ["p", "reject", "c004", ""])
    found = json.loads(answer)
    assert found["serial"] == 7
    assert list(found["rows"]) == ["c004"]
    assert shown_ids(found["rows"]["c004"]) == ["c004"]
    assert t("data.verdicts.rejected_by_hand") in found["rows"]["c004"]
    assert "119" in totals  # left to decide
    assert decide(project, "undo", "", found["key"])["id"] == "c004"
    assert read_decisions(project.manifest) == {}
    with pytest.raises(UserError, match=t("data.nothing_decided")):
        decide(project, "undo", "", found["key"])


def test_another_browser_gets_the_rows_of_its_page_that_changed(project):
    page = shown(project, 1)[6]
    decide(project, "reject", "c004")
    decide(project, "reject", "c100")  # on another page
    answer, totals = follow(project, "", page, "")
    assert list(json.loads(answer)["rows"]) == ["c004"]
    assert "118" in totals
    again, _ = follow(project, "", page, answer)
    assert json.loads(again)["rows"] == {}
    elsewhere, _ = follow(project, "", page.replace('"p"', '"q"'), "")
    assert json.loads(elsewhere)["rows"] == {}


def test_a_doubtful_transcript_shows_both_readings_and_takes_either(project):
    doubt = Provenance(kind="heard", by=("one", "two"), disagreement=0.25, other="ሰላም ነሽ", is_doubtful=True)
    utterances = read_utterances(project.manifest)
    utterances[3] = replace(utterances[3], text="ሰላም ነህ", provenance=doubt)
    write_utterances(project.manifest, utterances)
    review = read_review(project)  # the check did not see the doubt
    row = row_html(project, row_of(review, review.table.place_of["c003"]))
    for shown_text in ("ሰላም ነ<mark>ህ</mark>", "ሰላም ነ<mark>ሽ</mark>", "two", "data-swap", "25 %"):
        assert shown_text in row
    assert shown_ids(shown(project, 1, "doubtful_text")[3]) == ["c003"]
    assert t("data.verdicts.rejected") in row
    decide(project, "swap", "c003")
    [found] = [u for _, u in read_reviewed(project.manifest) if u.id == "c003"]
    assert (found.text, found.text_origin) == ("ሰላም ነሽ", "reviewed")
    review = read_review(project)
    assert not row_of(review, review.table.place_of["c003"]).can_swap  # both readings are equal now
    with pytest.raises(UserError, match=t("data.no_other_reading")):
        decide(project, "swap", "c004")


@pytest.mark.parametrize("text", ["", "[]", "{}", "x", '{"project": "p", "ids": 3, "revision": 1e999}'])
def test_a_forged_state_of_the_browser_gives_no_rows(project, text):
    decide(project, "reject", "c004")
    assert json.loads(follow(project, "", text, text)[0])["rows"] == {}


def test_an_edited_text_is_stored_beside_the_manifest(project):
    before = project.manifest.read_bytes()
    decide(project, "text", "c004", "  አዲስ\nጽሑፍ ")
    assert row_of(read_review(project), 4).utterance.text == "አዲስ ጽሑፍ"
    decide(project, "text", "c004", "ጽሑፍ c004")  # the manifest's own: nothing is stored any more
    assert read_review(project).count(DECIDED) == 0
    assert project.manifest.read_bytes() == before


def test_hostile_texts_are_escaped_in_rows(tmp_path):
    project = Project(tmp_path / EVIL.replace("/", ""))
    project.dataset.mkdir(parents=True)
    write_utterances(project.manifest, [Utterance(EVIL, tmp_path / "a", EVIL, EVIL, 2.0)])
    folder = check_folder(project.manifest)
    folder.mkdir()
    flag = {"reason": "noisy", "severity": 1, "said": EVIL}
    record = {"id": EVIL, "flags": [flag], "measures": {EVIL: 1.5}, "heard": f"{EVIL} ሰላም"}
    (folder / "clips.jsonl").write_text(json.dumps(record) + "\n")
    review = read_review(project)
    found = Parsed(list_html(project, [row_of(review, 0, EVIL)]) + row_html(project, row_of(review, 0)))
    assert found.values("tr", "data-clip").count(EVIL) == 2
    assert "img" not in found.names
    assert not any(name.startswith("on") for name in found.names)


def test_what_was_heard_is_shown_with_marks_on_the_letters_that_differ(project):
    path = check_folder(project.manifest) / "clips.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines()
    lines[4] = json.dumps({"id": "c004", "flags": [], "measures": {}, "heard": "ጽሁፍ C005"})
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    review = read_review(project)
    html = row_html(project, row_of(review, 4))
    assert "ጽሑፍ c00<mark>4</mark></span>" in html  # ሁ sounds like ሑ
    assert "ጽሁፍ C00<mark>5</mark></span>" in html
    assert t("data.heard") not in row_html(project, row_of(review, 5))
    assert marked_pair("a" * 501, "b") == ("a" * 501, "b")


def test_the_reviewed_manifest_is_exported_with_a_link(project):
    decide(project, "reject", "c004")
    html = export_manifest(project)
    assert "119 of 120" in html
    assert len(read_utterances(project.dataset / "reviewed_manifest.jsonl")) == 119
    assert html.count("download=") == 1


@pytest.mark.parametrize("typed", ["", " \n ", None, "ሀ" * 2001])
def test_an_invalid_text_is_refused(project, typed):
    with pytest.raises(UserError, match="the text"):
        checked_text(typed)


@pytest.mark.parametrize("values", [["other", "keep", "c004", ""], ["p", "burn", "c004", ""], ["p"], []])
def test_a_clip_of_another_project_and_an_unknown_action_are_refused(project, values):
    with pytest.raises(UserError, match=t("data.choose_row")):
        act(project, "", 1, values)
    assert read_review(project).count(DECIDED) == 0


def test_before_an_import_there_is_nothing_to_review(tmp_path):
    project = Project(tmp_path)
    assert read_review(project) is None
    assert t("data.nothing_imported") in shown(project, 0)[3]
    with pytest.raises(UserError, match=t("data.choose_clip")):
        decide(project, "keep", "a")
