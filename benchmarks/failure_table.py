"""Run the tests of the failure table on tiny runs of one base, and report them row by row.

    python -m benchmarks.failure_table --base 2.5

tests/failure_rows.py has the rows. The report covers the test files that train a run; the other rows of the
table are about files and processes that know no base. Exits with status 1 if a test failed.
"""

import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Literal
from xml.etree import ElementTree

from pydantic import Field

from benchmarks.frame import REPOSITORY, Benchmark, publish, table, timed
from indextts.commands.bases import BaseName
from indextts.commands.terminal import parse, run
from tests.failure_rows import TABLE, proofs_of

Outcome = Literal["passed", "skipped", "failed"]
Results = dict[str, Counter[Outcome]]  # by test, FILE::NAME


class FailureTable(Benchmark):
    """Run the failure table for a base."""

    program: ClassVar[str] = "benchmarks.failure_table"
    base: BaseName = Field("2.5", description="Published model that the tiny runs imitate.")
    slow: bool = Field(True, description="Include the tests that are marked slow.")

    @property
    def name(self) -> str:
        return f"failure_table_{self.base}"


def main(argv: Sequence[str] | None = None) -> int:
    command = parse(FailureTable, argv)
    files = [path for path in (REPOSITORY / "tests").glob("test_*.py") if "make_tiny_run" in path.read_text()]
    proofs = {test: rows for path in sorted(files) for test, rows in proofs_of(path).items() if rows}
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider"]
        argv += [
            "-m",
            "failure" if command.slow else "failure and not slow",
            f"--base={command.base}",
            f"--junitxml={report}",
        ]
        argv += sorted({f"tests/{test.partition('::')[0]}" for test in proofs})
        _, took = timed(lambda: subprocess.run(argv, cwd=REPOSITORY, check=False))
        results = results_of(report.read_text(encoding="utf-8"))
    lines = [*rows(proofs, results), "", f"Duration: {took.wall_s / 60:.1f} min."]
    publish(command, f"Failure table with runs of IndexTTS-{command.base}", lines)
    return int(any(counts["failed"] for counts in results.values()))


def results_of(report: str) -> Results:
    """Return the outcomes of each test of a JUnit report; a test with parameters has several."""
    results: Results = {}
    for case in ElementTree.fromstring(report).iter("testcase"):
        file = case.attrib["classname"].rpartition(".")[2]
        outcome: Outcome = "passed"
        if case.find("failure") is not None or case.find("error") is not None:
            outcome = "failed"
        elif case.find("skipped") is not None:
            outcome = "skipped"
        name = case.attrib["name"].partition("[")[0]
        results.setdefault(f"{file}.py::{name}", Counter())[outcome] += 1
    return results


def rows(proofs: Mapping[str, Sequence[int]], results: Mapping[str, Counter[Outcome]]) -> list[str]:
    """Return the table: a row of the failure table with its tests in each line."""
    cells = []
    for number, row in TABLE.items():
        tests = [test for test, numbers in proofs.items() if number in numbers]
        total = sum((results.get(test, Counter()) for test in tests), Counter[Outcome]())
        if total:
            counted = ", ".join(f"{count} {outcome}" for outcome, count in total.most_common())
            cells.append([str(number), row.fault, row.behaviour, counted])
    return table(["row", "fault", "behaviour", "tests"], cells)


if __name__ == "__main__":
    run(main)
