import json
import multiprocessing
from pathlib import Path

import pytest

from indextts.data.manifest import Utterance, read_numbered_utterances, write_utterances
from indextts.data.review import (
    Decision,
    add_decision,
    check_folder,
    read_decisions,
    read_reviewed,
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


def test_without_check_and_review_all_utterances_are_used(manifest):
    assert read_reviewed(manifest) == read_numbered_utterances(manifest)


def test_rejected_clips_are_skipped_unless_kept_by_hand(manifest):
    reject_by_check(manifest, "a", "b")
    add_decision(manifest, Decision(id="b", verdict="keep"))
    add_decision(manifest, Decision(id="c", verdict="reject"))
    assert list(kept(manifest)) == ["b", "d"]
    assert [number for number, _ in read_reviewed(manifest)] == [2, 4]


def test_an_edited_text_replaces_the_manifests_and_the_manifest_stays_unchanged(manifest):
    before = manifest.read_bytes()
    add_decision(manifest, Decision(id="a", text="ሌላ ጽሑፍ"))
    assert kept(manifest)["a"] == "ሌላ ጽሑፍ"
    assert read_reviewed_texts(manifest)[0] == "ሌላ ጽሑፍ"
    assert manifest.read_bytes() == before


def test_undo_cancels_decisions_from_the_last_to_the_first(manifest):
    add_decision(manifest, Decision(id="a", text="አንድ"))
    add_decision(manifest, Decision(id="b", verdict="reject"))
    add_decision(manifest, Decision(id="a", verdict="reject", text="ሁለት"))
    assert undo(manifest) == Decision(id="a", verdict="reject", text="ሁለት")
    assert kept(manifest) == {"a": "አንድ", "c": "ጽሑፍ c", "d": "ጽሑፍ d"}
    assert undo(manifest) == Decision(id="b", verdict="reject")
    add_decision(manifest, Decision(id="c", verdict="reject"))
    assert undo(manifest) == Decision(id="c", verdict="reject")
    assert undo(manifest) == Decision(id="a", text="አንድ")
    assert undo(manifest) is None
    assert len(kept(manifest)) == 4
    assert len(review_file(manifest).read_text().splitlines()) == 8  # no written line is lost


def test_an_incomplete_last_line_is_ignored(manifest):
    add_decision(manifest, Decision(id="a", verdict="reject"))
    with review_file(manifest).open("ab") as file:
        file.write(b'{"id": "b", "verdict": "rej')
    assert list(read_decisions(manifest).of) == ["a"]
    add_decision(manifest, Decision(id="c", verdict="reject"))
    assert list(kept(manifest)) == ["b", "d"]


def _decide_often(manifest: Path, number: int) -> None:
    for count in range(20):
        add_decision(manifest, Decision(id=f"{number} {count}", text="ረጅም ጽሑፍ " * 500))


def test_two_pages_that_write_at_once_lose_nothing(manifest):
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_decide_often, args=(manifest, number)) for number in range(2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert len(read_decisions(manifest).of) == 40


@pytest.mark.parametrize(
    "line", ["no json", '{"id": 1}', '{"id": "a", "verdict": "maybe"}', '{"id": "a", "text": ""}', "[]"]
)
def test_an_invalid_decision_is_an_error_with_its_line(manifest, line):
    review_file(manifest).write_text(line + "\n")
    with pytest.raises(UserError, match=r"review\.jsonl:1: "):
        read_reviewed(manifest)


def test_a_verdict_without_reasons_is_an_error_with_its_line(manifest):
    check_folder(manifest).mkdir()
    (check_folder(manifest) / "rejected.jsonl").write_text('{"id": "a"}\n')
    with pytest.raises(UserError, match=r"rejected\.jsonl:1: "):
        read_reviewed(manifest)


def test_a_manifest_with_only_rejected_clips_is_an_error(manifest):
    reject_by_check(manifest, *"abcd")
    with pytest.raises(UserError, match=r"\(4 in total\)"):
        read_reviewed(manifest)


def test_without_a_review_reading_texts_needs_no_other_field(tmp_path):
    path = tmp_path / "texts.jsonl"
    path.write_text('{"text": "ሰላም"}\n', encoding="utf-8")
    assert read_reviewed_texts(path) == ["ሰላም"]
