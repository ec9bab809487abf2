"""Tests of benchmarks/failure_table.py: the outcomes of a report, by row."""

import pytest

from benchmarks.failure_table import results_of, rows

pytestmark = pytest.mark.long

REPORT = """<testsuites><testsuite>
<testcase classname="tests.test_a" name="test_cut[0]" />
<testcase classname="tests.test_a" name="test_cut[1]"><failure message="x" /></testcase>
<testcase classname="tests.test_a" name="test_bit"><skipped message="x" /></testcase>
<testcase classname="tests.test_b" name="test_bit"><error message="x" /></testcase>
</testsuite></testsuites>"""


def test_a_row_counts_the_outcomes_of_its_tests():
    results = results_of(REPORT)
    proofs = {"test_a.py::test_cut": [1], "test_a.py::test_bit": [2], "test_b.py::test_bit": [2, 3]}
    assert [line.split(" | ")[0::3] for line in rows(proofs, results)[2:]] == [
        ["| 1", "1 passed, 1 failed |"],
        ["| 2", "1 skipped, 1 failed |"],
        ["| 3", "1 failed |"],
    ]
