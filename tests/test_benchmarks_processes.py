"""Tests of benchmarks/processes.py: the trainer under torchrun."""

import os
from pathlib import Path

import pytest

from benchmarks import processes
from indextts.errors import UserError

pytestmark = pytest.mark.long


@pytest.mark.slow
def test_the_table_has_a_row_for_each_number_of_processes(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    numbers = ["1", "2"][: len(os.sched_getaffinity(0))]
    output = tmp_path / "table.md"
    argv = ["--size", "tiny", "--batch", "4", "--steps", "3", "--rounds", "1"]
    assert (
        processes.main([*argv, f"--output={output}", *(f"--processes={number}" for number in numbers)]) == 0
    )
    table = output.read_text()
    assert capsys.readouterr().out.endswith(table)
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| ")][1:]
    assert [row[0] for row in rows] == numbers
    assert [int(row[1]) for row in rows] == [4 // int(number) for number in numbers]
    assert all(float(row[2]) > 0 for row in rows)
    assert rows[0][3] == "1.00"
    assert all(float(row[5]) >= 1 for row in rows)


def test_a_batch_that_cannot_be_split_equally_is_refused():
    with pytest.raises(UserError, match="--batch 3"):
        processes.main(["--batch=3", "--processes=1", "--processes=2"])
