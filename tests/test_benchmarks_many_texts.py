"""Tests of benchmarks/many_texts.py."""

from pathlib import Path

import pytest

from benchmarks import many_texts
from benchmarks.frame import REPOSITORY

pytestmark = pytest.mark.long


@pytest.mark.slow
def test_every_case_runs_in_a_process_and_has_a_row(tmp_path: Path):
    output = tmp_path / "report.md"
    flags = ["--size=demo", f"--before={REPOSITORY}", "--codes=50", "--texts=2", "--before-texts=1"]
    assert many_texts.main([*flags, "--repeats=1", f"--output={output}"]) == 0
    text = output.read_text()
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")][1:]
    assert [row[:2] for row in rows] == [
        ["1", "one at a time, before"],
        ["1", "now"],
        ["2", "now"],
        ["8", "now"],
        ["2", "now, bfloat16"],
    ]
    for row in rows:
        assert all(float(cell) > 0 for cell in row[2:8])
    assert " dB" in text
