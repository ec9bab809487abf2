"""Tests of the progress bar of tab 4, on lines that the program writes."""

from collections.abc import Callable
from pathlib import Path

import pytest

from indextts.data import progress
from indextts.data.preprocess import PreprocessResult
from indextts.data.progress import Progress
from indextts.data.rejected import Rejected
from indextts.webui.preprocess.tab import PROGRESS, bar


@pytest.fixture
def line_of(monkeypatch, caplog) -> Callable[..., str]:
    """The line that a loop writes after so many of its items."""
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)
    caplog.set_level("INFO")

    def line(what: str, done: int, total: int, seconds: float = 0.0) -> str:
        counter = Progress(what, total, total * seconds)
        for _ in range(done):
            counter.advance(seconds)
        return caplog.messages[-1]

    return line


def shown(*lines: str) -> str:
    return bar(list(PROGRESS.finditer("\n".join(lines)))[-1])


def test_the_bar_counts_the_clips_of_the_current_phase(line_of):
    checking = line_of("Checking recordings", 2, 3)
    comparing = line_of("Comparing recordings", 1, 3)
    encoding = line_of("Encoding", 450, 900, seconds=2.0)
    assert ">Checking recordings: 2 of 3 clips, " in shown(checking)
    assert ">Comparing recordings: 1 of 3 clips, " in shown(checking, comparing)
    html = shown(checking, comparing, encoding)
    assert 'aria-valuenow="50"' in html
    assert ">Encoding: 450 of 900 clips, " in html
    assert " h of audio per hour, " in html


def test_at_the_end_the_bar_shows_the_encoded_and_rejected_clips(line_of):
    rejected = [Rejected("a", Path("a.wav"), "empty", "the file is empty, replace it")]
    result = PreprocessResult(Path("out"), 11, 4, num_encoded=15, num_kept=0, rejected=rejected)
    html = shown(line_of("Encoding", 15, 16, seconds=1.0), str(result))
    assert html == "<p>15 encoded, 0 kept, 1 rejected (1 empty)</p>"


def test_the_bar_escapes_the_text_of_the_log():
    assert "<b>" not in shown("Encoding: 1/2 clips, <b>")
    assert "<b>" not in shown("4 for validation; 1 encoded, 0 kept, 0 rejected <b>")
