"""Every row of the failure table has a test; see failure_rows.py."""

import pytest

from tests.conftest import REPOSITORY
from tests.failure_rows import TABLE, proofs_of


@pytest.fixture(scope="module")
def proofs() -> dict[str, list[int]]:
    """The rows that each test of the suite proves, by file and name."""
    paths = sorted((REPOSITORY / "tests").glob("test_*.py"))
    return {test: rows for path in paths for test, rows in proofs_of(path).items()}


def test_the_table_has_every_row():
    assert list(TABLE) == list(range(1, 75))


def test_every_row_has_a_test_and_every_marked_test_has_a_row(proofs: dict[str, list[int]]):
    assert {number for rows in proofs.values() for number in rows} == set(TABLE)


def test_every_test_of_the_failure_files_has_a_row(proofs: dict[str, list[int]]):
    files = ("test_failure_checkpoints.py", "test_failure_process.py", "test_failure_data.py")
    assert [test for test, rows in proofs.items() if test.startswith(files) and not rows] == []
