"""Tests of benchmarks/generation.py."""

from pathlib import Path

import pytest

from benchmarks import generation

pytestmark = pytest.mark.long


def test_the_report_has_a_row_for_each_length(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    output = tmp_path / "report.md"
    flags = ["--size=tiny", "--codes=20", "--codes=10", "--steps=2", "--device=cpu", f"--output={output}"]
    assert generation.main(flags) == 0
    assert output.read_text() == capsys.readouterr().out
    rows = [line.split(" | ") for line in output.read_text().splitlines() if line.startswith(("| 1", "| 2"))]
    assert [row[0] for row in rows] == ["| 10", "| 20"]
    for row in rows:
        assert all(float(cell) > 0 for cell in row[1:5])


def test_a_cache_that_changes_the_codes_ends_the_benchmark(monkeypatch: pytest.MonkeyPatch):
    places = generation.code_position
    monkeypatch.setattr(generation, "code_position", lambda number, _: places(number, "training"))
    flags = ["--size=tiny", "--codes=40", "--steps=30", "--device=cpu"]
    with pytest.raises(SystemExit, match="codes"):
        generation.main(flags)
