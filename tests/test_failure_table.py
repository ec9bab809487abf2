"""Every row of the failure table, failure_table.toml, has a test that carries its number."""

import ast
import tomllib

import pytest

from tests.conftest import REPOSITORY

TABLE = tomllib.loads((REPOSITORY / "tests/failure_table.toml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def proofs() -> dict[str, list[int]]:
    """The rows that each test of the suite says it proves, by file and name."""
    return {
        f"{path.name}::{node.name}": rows_of(node)
        for path in sorted((REPOSITORY / "tests").glob("test_*.py"))
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def rows_of(function: ast.FunctionDef) -> list[int]:
    return [
        argument.value
        for decorator in function.decorator_list
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.failure"
        for argument in decorator.args
        if isinstance(argument, ast.Constant) and isinstance(argument.value, int)
    ]


def test_every_row_has_a_test_and_every_marked_test_has_a_row(proofs: dict[str, list[int]]):
    assert list(TABLE) == [str(number) for number in range(1, 76)]
    assert {number for rows in proofs.values() for number in rows} == set(range(1, 76))


def test_every_test_of_the_failure_files_has_a_row(proofs: dict[str, list[int]]):
    files = ("test_failure_checkpoints.py", "test_failure_process.py", "test_failure_data.py")
    assert [test for test, rows in proofs.items() if test.startswith(files) and not rows] == []
