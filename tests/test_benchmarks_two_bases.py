"""Test of benchmarks/two_bases.py at tiny size."""

from pathlib import Path

import pytest

from benchmarks.two_bases import main
from demo.make_demo import DEMO
from indextts.commands.bases import BASE_2_5

pytestmark = pytest.mark.long


def test_a_clip_of_2_5_has_half_the_codes_and_every_case_takes_its_steps(tmp_path: Path):
    report = tmp_path / "report.md"
    argv = [f"--corpus={DEMO / 'sentences.txt'}", "--pieces=350", "--size=tiny", "--steps=1", "--batch=2"]
    argv += [f"--ranks={DEMO / BASE_2_5.folder / BASE_2_5.tokenizer_file}", f"--output={report}"]
    assert main(argv) == 0
    lines = [line.strip("| ").split(" | ") for line in report.read_text("utf-8").splitlines() if "|" in line]
    cells = {line[0]: line[1:] for line in lines}
    assert [cell.split()[1] for cell in cells["codes of a clip"]] == ["(1.00)", *3 * ["(0.50)"]]
    appended, without = (float(cells["tokens per word"][index].split()[0]) for index in (1, 3))
    assert appended < without / 2
    for name in ("a position, processor time", "memory of the steps"):
        assert all(float(cell.split()[0]) > 0 for cell in cells[name])
