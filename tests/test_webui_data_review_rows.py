import json
import re
from pathlib import Path

import pytest

from indextts.data.manifest import Utterance, write_utterances
from indextts.data.review import Decision, add_decision, check_folder
from indextts.errors import UserError
from indextts.projects.project import Project
from indextts.webui.data.review import clips_version, page_beside, save_text, show_page, undo_last
from indextts.webui.data.review_list import list_html
from indextts.webui.data.review_rows import (
    DECIDED,
    REJECTED,
    SHUFFLED,
    WARNED,
    Review,
    checked_text,
    read_review,
)
from indextts.webui.language import t
from tests.import_sources import run_import, write_tone


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project of 120 clips, all of them noisy, number 7 most of all; every second one is short."""
    project = Project(tmp_path)
    ids = [f"c{number:03}" for number in range(120)]
    write_utterances(project.manifest, [Utterance(id, tmp_path / id, f"ጽሑፍ {id}", "s", 2.0) for id in ids])
    folder = check_folder(project.manifest)
    folder.mkdir()
    lines = []
    for number, id in enumerate(ids):
        flags = [{"reason": "some_noise", "severity": 9 if number == 7 else number / 100, "said": "noise"}]
        flags += [{"reason": "too_short", "severity": 1, "said": "too short"}] if number % 2 else []
        lines.append(json.dumps({"id": id, "flags": flags}))
    (folder / "clips.jsonl").write_text("\n".join(lines) + "\n")
    return project


class OneProject:
    """Stand-in for the page: the parts that the handlers use."""

    def __init__(self, project: Project) -> None:
        self.project = project

    def find_project(self, name: str) -> Project:
        return self.project


def ids(review: Review, name: str) -> list[str]:
    return [row.utterance.id for row in review.chosen(name)]


def test_a_linked_recording_outside_the_project_has_a_sentence_and_no_address(tmp_path):
    write_tone(tmp_path / "in/a.wav")
    (tmp_path / "in/a.txt").write_text("ሰላም", encoding="utf-8")
    project = Project(tmp_path / "voice")
    run_import(tmp_path / "in", project.dataset, speaker="s", link=True)
    shown = list_html(project, read_review(project).chosen(SHUFFLED))
    assert "ሰላም" in shown
    assert t("data.not_playable") in shown
    assert str(tmp_path) not in shown


def test_the_worst_clips_of_a_reason_come_first(project):
    found = ids(read_review(project), "some_noise")
    assert found[:3] == ["c007", "c119", "c118"]
    assert len(found) == 120
    assert len(ids(read_review(project), "too_short")) == 60


def test_a_filter_shows_its_number_of_clips_and_follows_the_decisions(project):
    add_decision(project.manifest, Decision(id="c001", verdict="keep"))
    add_decision(project.manifest, Decision(id="c002", verdict="reject"))
    review = read_review(project)
    counts = {name: int(label.rpartition("(")[2].rstrip(")")) for label, name in review.filters()}
    assert counts == {
        "all": 120,
        "shuffled": 120,
        "rejected": 60,
        "warned": 60,
        "decided by hand": 2,
        "too_short": 60,
        "some_noise": 120,
    }
    assert "c001" not in ids(review, REJECTED)
    assert "c002" in ids(review, REJECTED)
    assert "c001" in ids(review, WARNED)
    assert ids(review, DECIDED) == ["c001", "c002"]
    assert review.find("c001").verdict == "data.verdicts.kept_by_hand"
    assert review.find("c003").verdict == "data.verdicts.rejected"


def shown_ids(clips: str) -> list[str]:
    return re.findall(r'data-clip="([^"]*)"', clips)


def test_only_one_page_of_rows_is_sent_to_the_browser(project):
    page = OneProject(project)
    _, _, label, clips, back, forth = show_page(page, "p", "all", 2)
    assert re.findall(r"\d+", label) == ["21", "40", "120"]
    assert shown_ids(clips) == [f"c{number:03}" for number in range(20, 40)]
    assert (back.interactive, forth.interactive) == (True, True)
    dropdown, place, _, clips, back, forth = show_page(page, "p", "no such filter", 9_999)
    assert (dropdown.value, place, len(shown_ids(clips))) == ("all", 6, 20)
    assert (back.interactive, forth.interactive) == (True, False)


@pytest.mark.parametrize("number", [None, 0, -3, float("nan"), float("inf"), -float("inf"), 1e300])
def test_any_page_number_leads_to_a_page(project, number):
    page = OneProject(project)
    assert len(shown_ids(show_page(page, "p", "all", number)[3])) == 20
    assert page_beside(number, -1) >= 1
    assert page_beside(number, 1) >= 1


def test_the_random_order_has_every_clip_once_and_stays_the_same(project):
    found = ids(read_review(project), SHUFFLED)
    assert found != sorted(found)
    assert sorted(found) == ids(read_review(project), "all")
    assert found == ids(read_review(project), SHUFFLED)


def test_the_row_of_the_editor_is_marked(project):
    clips = show_page(OneProject(project), "p", "all", 1, "c003")[3]
    assert re.findall(r'data-clip="([^"]*)" class="chosen"', clips) == ["c003"]


def test_an_edited_text_is_stored_beside_the_manifest_and_can_be_undone(project):
    page = OneProject(project)
    before = project.manifest.read_bytes()
    save_text(page, "p", "p", "c004", "  አዲስ\nጽሑፍ ")
    assert read_review(project).find("c004").utterance.text == "አዲስ ጽሑፍ"
    save_text(page, "p", "p", "c004", "ጽሑፍ c004")  # the manifest's own: nothing is stored any more
    assert ids(read_review(project), DECIDED) == []
    assert undo_last(page, "p")[5] == "አዲስ ጽሑፍ"
    assert undo_last(page, "p")[5] == "ጽሑፍ c004"
    with pytest.raises(UserError, match=t("data.nothing_decided")):
        undo_last(page, "p")
    assert project.manifest.read_bytes() == before


@pytest.mark.parametrize("typed", ["", " \n ", None, "ሀ" * 2001])
def test_an_invalid_text_is_refused(project, typed):
    with pytest.raises(UserError, match="the text"):
        checked_text(typed)


def test_an_unknown_clip_is_refused(project):
    with pytest.raises(UserError, match=t("data.choose_clip")):
        save_text(OneProject(project), "p", "p", "../../etc/passwd", "ጽሑፍ")


def test_a_clip_of_another_project_is_refused(project):
    with pytest.raises(UserError, match=t("data.choose_row")):
        save_text(OneProject(project), "p", "other", "c004", "ጽሑፍ")
    assert ids(read_review(project), DECIDED) == []


def test_before_an_import_there_is_nothing_to_review(tmp_path):
    assert read_review(Project(tmp_path)).rows == []


def test_a_decision_of_another_page_is_noticed(project):
    before = clips_version(project)
    add_decision(project.manifest, Decision(id="a", verdict="reject"))
    assert clips_version(project) != before
