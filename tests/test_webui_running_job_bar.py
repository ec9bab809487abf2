"""Tests of indextts/webui/running/job_bar.py, on lines that a program writes."""

import pytest

from indextts.data import progress
from indextts.data.progress import Progress
from indextts.webui.preprocess.tab import DOING
from indextts.webui.running.job_bar import bar_of


def test_the_bar_counts_the_clips_of_the_current_activity(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)
    caplog.set_level("INFO")
    lines = []
    for activity, done, total in (("Checking recordings", 2, 3), ("Encoding", 450, 900)):
        counter = Progress(activity, total, 2.0 * total)
        for _ in range(done):
            counter.advance(2.0)
        lines.append(f"[Info] {caplog.messages[-1]}")
    assert ">Checking recordings: 2 of 3 clips, " in bar_of(lines[0], DOING)
    html = bar_of("\n".join([*lines, "[Info] Other: 1/2 clips, fast"]), DOING)
    assert 'aria-valuenow="50"' in html
    assert ">Encoding: 450 of 900 clips, " in html
    assert bar_of("", DOING) == ""
    assert "<b>" not in bar_of("Encoding: 1/2 clips, <b>", DOING)
