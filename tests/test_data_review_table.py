import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from indextts.data.manifest import Utterance, read_utterances, write_utterances
from indextts.data.review import check_folder, read_reviewed, review_file
from indextts.data.review_table import (
    ALL,
    DECIDED,
    DOUBTFUL,
    LISTS,
    REJECTED,
    SHUFFLED,
    WARNED,
    ClipTable,
    Filter,
    Review,
)
from indextts.errors import UserError

NUM_CLIPS = 40


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    """Forty clips of two speakers: every second one is a bit noisy, number 7 also clipped, 8 very noisy."""
    path = tmp_path / "manifest.jsonl"
    ids = [f"c{number:02}" for number in range(NUM_CLIPS)]
    speakers = ["a"] * 30 + ["b"] * 10
    write_utterances(
        path,
        [
            Utterance(id, tmp_path / id, f"ጽሑፍ {id}", name, 36.0)
            for id, name in zip(ids, speakers, strict=True)
        ],
    )
    lines = []
    for number, id in enumerate(ids):
        flags = [flag("some_noise", number / 100)] if number % 2 else []
        flags += [flag("clipped", 0.1)] if number == 7 else []
        flags += [flag("some_noise", 5.0)] if number == 8 else []
        measures = {"snr_db": 40.0 - number, "invented_score": None if number == 3 else number / 10}
        lines.append(json.dumps({"id": id, "flags": flags, "measures": measures}))
    check_folder(path).mkdir()
    (check_folder(path) / "clips.jsonl").write_text("\n".join(lines) + "\n")
    (check_folder(path) / "rejected.jsonl").write_text('{"id": "c07", "reasons": ["clipped"]}\n')
    return path


def flag(reason: str, severity: float) -> dict[str, object]:
    return {"reason": reason, "severity": severity, "said": reason}


def opened(manifest: Path) -> Review:
    review = Review(ClipTable(manifest, read_utterances(manifest)))
    review.refresh()
    return review


def ids(review: Review, *chosen: object) -> list[str]:
    return names(review, review.select(Filter(*chosen)))


def names(review: Review, places: Sequence[int]) -> list[str]:
    return [review.table.utterances[place].id for place in places]


def test_the_clips_with_the_rarest_findings_come_first(manifest):
    found = ids(opened(manifest), DOUBTFUL)
    assert found[:4] == ["c07", "c08", "c39", "c37"]  # two findings; the worst of a common one; then milder
    assert len(found) == 21
    assert found[-1] == "c01"


def test_lists_follow_the_decisions(manifest):
    review = opened(manifest)
    place = review.table.place_of
    assert ids(review, REJECTED) == ["c07"]
    review.decide(place["c07"], {"verdict": "keep"})
    review.decide(place["c02"], {"verdict": "reject"})
    assert ids(review, REJECTED) == ["c02"]
    assert "c07" in ids(review, WARNED)
    assert ids(review, DECIDED) == ["c02", "c07"]  # the newest first
    assert {name: review.count(name) for name in (*LISTS, "clipped", "noisy")} == {
        DOUBTFUL: 21,
        ALL: 40,
        SHUFFLED: 40,
        REJECTED: 1,
        WARNED: 21,
        DECIDED: 2,
        "clipped": 1,
        "noisy": 0,
    }
    assert [u.id for _, u in read_reviewed(manifest)] == names(review, review.is_kept.nonzero()[0])


def test_a_score_of_the_report_filters_and_sorts_without_being_known(manifest):
    review = opened(manifest)
    assert ids(review, ALL, "", "invented_score", 0.2, 0.5) == ["c02", "c04", "c05"]
    assert ids(review, DOUBTFUL, "", "invented_score", None, 0.5) == ["c01", "c05"]
    assert ids(review, "some_noise", "b", "snr_db", None, 5.0)[:2] == ["c39", "c37"]
    assert ids(review, ALL, "b") == [f"c{number}" for number in range(30, 40)]
    assert ids(review, ALL, "no such speaker") == []
    assert ids(review, ALL, "", "no such score") == []


def test_hours_before_and_after_follow_the_decisions(manifest):
    review = opened(manifest)
    before = review.totals()
    assert (before.hours, before.hours_kept, before.num_kept) == pytest.approx((0.4, 0.39, 39))
    assert (before.num_doubtful, before.num_undecided) == (21, 21)
    made = review.decide(review.table.place_of["c08"], {"verdict": "reject"})
    assert review.totals().hours_kept == pytest.approx(0.38)
    assert review.totals().num_undecided == 20
    review.undo(made.key)
    assert review.totals() == before


def test_the_decisions_of_another_process_arrive_by_a_refresh(manifest):
    mine, other = opened(manifest), opened(manifest)
    start = mine.revision
    other.decide(1, {"verdict": "reject"})
    made = other.decide(2, {"verdict": "reject"})
    mine.refresh()
    assert names(mine, mine.changed_since(start)) == ["c01", "c02"]
    middle = mine.revision
    other.undo(made.key)
    mine.refresh()
    assert names(mine, mine.changed_since(middle)) == ["c02"]
    assert ids(mine, DECIDED) == ["c01"]
    review_file(manifest).unlink()
    mine.refresh()
    assert ids(mine, DECIDED) == []


def test_the_next_undecided_clip_is_searched_from_a_place_on_and_then_from_the_start(manifest):
    review = opened(manifest)
    places = review.select(Filter(ALL))
    for place in (0, 1, 39):
        review.decide(place, {"verdict": "keep"})
    assert review.first_undecided(places) == 2
    assert review.first_undecided(places, 39) == 2
    assert review.first_undecided(places, 10) == 10
    for place in range(NUM_CLIPS):
        review.decide(place, {"verdict": "keep"})
    assert review.first_undecided(places, 17) == 17


@pytest.mark.parametrize(
    "line", ['{"id": "c01"}', '{"id": "c01", "flags": [{}]}', '{"id": "c01", "flags": 3}']
)
def test_a_corrupt_report_is_an_error_with_its_line(manifest, line):
    (check_folder(manifest) / "clips.jsonl").write_text(line + "\n")
    with pytest.raises(UserError, match=r"clips\.jsonl:1: "):
        opened(manifest)
