from pathlib import Path

import pytest

from benchmarks import many_texts

pytestmark = pytest.mark.long


def test_every_case_runs_in_a_process_and_has_a_row(tmp_path: Path):
    output = tmp_path / "report.md"
    flags = ["--size=demo", "--codes=50", "--texts=2", "--repeats=1", f"--output={output}"]
    assert many_texts.main(flags) == 0
    text = output.read_text()
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")][1:]
    assert [row[:2] for row in rows] == [
        ["1", "float32"],
        ["2", "float32"],
        ["8", "float32"],
        ["2", "bfloat16"],
    ]
    for row in rows:
        assert all(float(cell) > 0 for cell in row[2:8])
    assert " dB" in text
