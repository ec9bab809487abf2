"""Tests of benchmarks/hub_kills.py: imports from the hub survive a few kills."""

from collections import Counter
from pathlib import Path

import pytest

from benchmarks import hub_kills

pytestmark = pytest.mark.long


@pytest.mark.slow
def test_killed_imports_lose_and_repeat_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    output = tmp_path / "kills.md"
    folder = tmp_path / "work"
    folder.mkdir()
    status = hub_kills.main(
        ["--kills=4", "--clips=40", "--seed=3", f"--output={output}", f"--folder={folder}"]
    )
    assert status == 0, capsys.readouterr().out
    rows = [
        line.strip("| ").split(" | ") for line in output.read_text().splitlines() if line.startswith("| ")
    ]
    values = {row[0]: row[1] for row in rows if len(row) == 2}
    assert values["kills"] == "4"
    assert values["problems"] == "0"
    assert float(values["bytes sent, in sizes of the data set, largest"]) >= 1


def test_a_wrong_manifest_is_a_problem(tmp_path: Path):
    files = {"train/0/0.wav": b"zero", "train/0/1.wav": b"one"}
    assert len(hub_kills.problems_of(tmp_path, files)) == 1
    (tmp_path / "dataset").mkdir()
    manifest = tmp_path / "dataset/manifest.jsonl"
    lines = [f'{{"id": "{id}", "audio": "0.wav", "text": "ሰላም 0"}}' for id in "ab"]
    manifest.write_text("\n".join(lines), encoding="utf-8")
    assert len(hub_kills.broken_lines(tmp_path)) == 2
    (tmp_path / "dataset/0.wav").write_bytes(b"zero")
    (tmp_path / "hub").mkdir()
    (tmp_path / "hub/.tmp-x").touch()
    assert hub_kills.broken_lines(tmp_path) == []
    problems = Counter(problem.split(": ")[-1] for problem in hub_kills.problems_of(tmp_path, files))
    assert problems == {
        "ሰላም 0 is there 2 times": 1,
        "ሰላም 1 is there 0 times": 1,
        f"{tmp_path / 'hub/.tmp-x'} is left": 1,
    }
