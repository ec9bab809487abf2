"""Test of benchmarks/aligned_text.py: a minute is read, aligned and judged."""

import pytest

from benchmarks.aligned_text import main

pytestmark = pytest.mark.long


@pytest.mark.slow
def test_borders_and_planted_faults_of_a_minute_are_reported(tmp_path, recognizer_folder):
    output = tmp_path / "report.md"
    flags = [f"--asr={recognizer_folder}", "--minutes=1.5", f"--folder={tmp_path / 'set'}"]
    assert main([*flags, f"--output={output}"]) == 0
    rows = [line.split("|")[1:-1] for line in output.read_text(encoding="utf-8").splitlines() if "|" in line]
    found = {name.strip(): value.strip() for name, value in rows}
    assert found["kept clips with a wrong text"] == "0"
    assert found["places out of order in the review"] == "3 of 3"
    assert found["missing lines in the review"] == "2 of 2"
