import json
import multiprocessing
from pathlib import Path

import pytest

from indextts.data.manifest import Provenance, Utterance, write_utterances
from indextts.data.review import (
    Decision,
    DecisionLog,
    check_folder,
    decide,
    read_decisions,
    read_reviewed,
    read_reviewed_speech,
    read_reviewed_texts,
    review_file,
    undo,
)
from indextts.errors import UserError


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    path = tmp_path / "manifest.jsonl"
    write_utterances(path, [Utterance(id, tmp_path / f"{id}.wav", f"ጽሑፍ {id}", "s", 2.0) for id in "abcd"])
    return path


def reject_by_check(manifest: Path, *ids: str) -> None:
    check_folder(manifest).mkdir(exist_ok=True)
    lines = [json.dumps({"id": id, "reasons": ["noisy"]}) + "\n" for id in ids]
    (check_folder(manifest) / "rejected.jsonl").write_text("".join(lines))


def kept(manifest: Path) -> dict[str, str]:
    return {utterance.id: utterance.text for _, utterance in read_reviewed(manifest)}


def change(manifest: Path, id: str, **changed: str | None) -> Decision:
    [made] = decide(DecisionLog(manifest), [id], changed)
    assert made is not None
    return made


def test_rejected_clips_are_skipped_unless_kept_by_hand(manifest):
    reject_by_check(manifest, "a", "b")
    change(manifest, "b", verdict="keep")
    change(manifest, "c", verdict="reject")
    assert list(kept(manifest)) == ["b", "d"]
    assert [number for number, _ in read_reviewed(manifest)] == [2, 4]


@pytest.mark.parametrize(("ids", "level"), [("a", "WARNING"), ("", None)])
def test_the_hours_that_go_on_are_logged_with_the_reasons_for_the_others(manifest, caplog, ids, level):
    caplog.set_level("INFO")
    reject_by_check(manifest, *ids)
    assert read_reviewed_speech([manifest])[1] == pytest.approx(2 * (4 - len(ids)) / 3600)
    assert [(each.levelname, "1 noisy" in each.getMessage()) for each in caplog.records] == (
        [(level, True)] if level else []
    )


def test_an_edited_text_replaces_the_manifests_and_the_manifest_stays_unchanged(manifest):
    before = manifest.read_bytes()
    change(manifest, "a", text="ሌላ ጽሑፍ")
    assert kept(manifest)["a"] == "ሌላ ጽሑፍ"
    assert read_reviewed_texts(manifest)[0] == "ሌላ ጽሑፍ"
    assert manifest.read_bytes() == before


def test_every_decision_can_be_undone_in_any_order(manifest):
    first = change(manifest, "a", text="አንድ")
    second = change(manifest, "b", verdict="reject")
    third = change(manifest, "a", verdict="reject")
    log = DecisionLog(manifest)
    assert undo(log, second.key) == second
    assert kept(manifest) == {"b": "ጽሑፍ b", "c": "ጽሑፍ c", "d": "ጽሑፍ d"}
    assert undo(log, second.key) is None
    assert undo(log, "no such key") is None
    assert undo(log, first.key) == first
    assert read_decisions(manifest) == {"a": third}  # as it was made: with the text of that time
    assert undo(log, third.key) == third
    assert kept(manifest) == {id: f"ጽሑፍ {id}" for id in "abcd"}
    assert len(review_file(manifest).read_text().splitlines()) == 6  # no written line is lost


def test_a_decision_keeps_what_another_page_changed_meanwhile(manifest):
    mine, other = DecisionLog(manifest), DecisionLog(manifest)
    mine.refresh()
    decide(other, ["a"], {"verdict": "reject"})
    decide(mine, ["a"], {"text": "ሌላ"})
    found = read_decisions(manifest)["a"]
    assert (found.verdict, found.text) == ("reject", "ሌላ")


def test_a_file_that_was_edited_or_removed_is_read_again(manifest):
    log = DecisionLog(manifest)
    for id in "abc":
        change(manifest, id, verdict="reject")
        log.refresh()
    assert log.changed == ["a", "b", "c"]
    content = review_file(manifest).read_bytes()
    review_file(manifest).write_bytes(content.splitlines(keepends=True)[1])  # edited in place
    log.refresh()
    assert list(log.decided) == ["b"]
    review_file(manifest).unlink()
    log.refresh()
    assert log.decided == {}


def test_an_incomplete_last_line_is_ignored(manifest):
    change(manifest, "a", verdict="reject")
    with review_file(manifest).open("ab") as file:
        file.write(b'{"id": "b", "verdict": "rej')
    assert list(read_decisions(manifest)) == ["a"]
    change(manifest, "c", verdict="reject")
    assert list(kept(manifest)) == ["b", "d"]


def _decide_often(manifest: Path, number: int) -> None:
    log = DecisionLog(manifest)
    for count in range(20):
        decide(log, [f"{number} {count}"], {"text": "ረጅም ጽሑፍ " * 500})


@pytest.mark.long
def test_two_pages_that_write_at_once_lose_nothing(manifest):
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_decide_often, args=(manifest, number)) for number in range(2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert len(read_decisions(manifest)) == 40


@pytest.mark.parametrize(
    "line", ["no json", '{"id": 1}', '{"id": "a", "verdict": "maybe"}', '{"id": "a", "text": ""}', "[]"]
)
def test_an_invalid_decision_is_an_error_with_its_line(manifest, line):
    review_file(manifest).write_text(line + "\n")
    with pytest.raises(UserError, match=r"review\.jsonl:1: "):
        read_reviewed(manifest)


def test_a_manifest_with_only_rejected_clips_is_an_error(manifest):
    reject_by_check(manifest, *"abcd")
    with pytest.raises(UserError, match=r"\(4 in total\)"):
        read_reviewed(manifest)


def test_without_a_review_reading_texts_needs_no_other_field(tmp_path):
    path = tmp_path / "texts.jsonl"
    path.write_text('{"text": "ሰላም"}\n', encoding="utf-8")
    assert read_reviewed_texts(path) == ["ሰላም"]


def test_a_doubtful_transcript_is_used_only_if_a_person_keeps_it(tmp_path):
    doubtful = Provenance(kind="heard", by=("a", "b"), disagreement=0.3, is_doubtful=True)
    sure = doubtful.model_copy(update={"is_doubtful": False})
    utterances = [
        Utterance(id, tmp_path / f"{id}.wav", f"ጽሑፍ {id}", "s", 2.0, provenance=provenance)
        for id, provenance in (("a", None), ("b", doubtful), ("c", sure), ("d", doubtful))
    ]
    path = tmp_path / "manifest.jsonl"
    write_utterances(path, utterances)
    assert list(kept(path)) == ["a", "c"]
    change(path, "b", text="ሌላ")
    assert list(kept(path)) == ["a", "c"]
    change(path, "b", verdict="keep")
    change(path, "a", verdict="keep")
    found = {utterance.id: utterance for _, utterance in read_reviewed(path)}
    assert {id: utterance.text_origin for id, utterance in found.items()} == {
        "a": "reviewed",
        "b": "reviewed",
        "c": "agreed",
    }
    assert found["b"].text == "ሌላ"
