"""Tests of overview.json: its numbers are those of the other files of the check."""

import json
from pathlib import Path

import pytest

from indextts.data.quality.summary import OVERVIEW_NAME, read_overview
from tests.test_data_check import TEXTS, checked, write_dataset


def test_the_overview_counts_what_clips_jsonl_lists(tmp_path: Path):
    write_dataset(tmp_path, [*TEXTS[:5], f"{TEXTS[5]} PDF", "good morning"])
    (tmp_path / "0.wav").unlink()
    report = checked(tmp_path, "check")
    overview = read_overview(tmp_path / "check")
    lines = (tmp_path / "check/clips.jsonl").read_text(encoding="utf-8").splitlines()
    clips = [json.loads(line) for line in lines]
    assert overview.num_utterances == len(clips) == 7
    words = [clip["verdict"] for clip in clips]
    assert [overview.num_good, overview.num_warned, overview.num_rejected] == [
        words.count(word) for word in ("good", "warned", "rejected")
    ]
    flags = [flag["reason"] for clip in clips for flag in clip["flags"]]
    assert {each.name: each.count for each in overview.reasons} == {
        name: flags.count(name) for name in set(flags)
    }
    [unreadable] = [each for each in overview.reasons if each.name == "unreadable"]
    assert unreadable.hours == pytest.approx(2 / 3600)
    assert (overview.num_speakers, overview.hours) == (2, pytest.approx(14 / 3600, rel=0.01))
    assert [each.text for each in overview.problems] == report.problems
    # the page shows the forms without a rule in a list of their own
    assert [each.text for each in overview.notices] == [
        notice for notice in report.notices if "without a rule" not in notice
    ]
    assert [each.code for each in overview.problems] == ["other_script"]
    assert {each.code for each in overview.notices} == {"few_speakers", "dominant_speaker", "short_speakers"}


def test_a_histogram_holds_every_measured_clip_and_too_many_rejections_are_a_problem(tmp_path: Path):
    write_dataset(tmp_path, TEXTS[:4])
    checked(tmp_path, "check", min_snr_db=3, min_duration_s=3)
    overview = read_overview(tmp_path / "check")
    found = {each.measure: each for each in overview.histograms}
    assert sum(found["duration_s"].counts) == 4
    snr = [(each.value, each.side, each.is_hard) for each in found["snr_db"].limits]
    assert snr == [(3.0, "below", True), (15.0, "below", False)]
    [costly] = [each.values for each in overview.notices if each.code == "costly_limit"]
    assert (costly["limit"], costly["kept"], costly["field"]) == (2.0, 4, "min_duration_s")
    assert {each.code: each.count for each in overview.problems} == {"too_many_rejected": 4, "no_voice": 2}


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"num_utterances": "many"}', b"\xff"])
def test_a_corrupt_overview_counts_as_none(tmp_path: Path, content: bytes):
    (tmp_path / OVERVIEW_NAME).write_bytes(content)
    assert read_overview(tmp_path) is None
