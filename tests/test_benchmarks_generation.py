from pathlib import Path

import pytest

from benchmarks import generation


def test_the_report_has_a_line_for_each_length(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    output = tmp_path / "report.md"
    flags = ["--size=tiny", "--codes", "20", "10", "--steps=2", "--device=cpu", f"--output={output}"]
    assert generation.main(flags) == 0
    assert output.read_text() == capsys.readouterr().out
    rows = [line.split(" | ") for line in output.read_text().splitlines() if line.startswith(("| 1", "| 2"))]
    assert [row[0] for row in rows] == ["| 10", "| 20"]
    for row in rows:
        assert float(row[1]) > 0
        assert float(row[2]) > 0


def test_a_cache_that_changes_the_codes_is_no_result(monkeypatch: pytest.MonkeyPatch):
    places = generation.code_position
    monkeypatch.setattr(generation, "code_position", lambda number, _: places(number, "training"))
    model_says_otherwise = ["--size=tiny", "--codes", "40", "--steps=30", "--device=cpu"]
    with pytest.raises(SystemExit, match="disagree"):
        generation.main(model_says_otherwise)
