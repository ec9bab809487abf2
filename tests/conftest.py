"""Fixtures for all tests."""

import os
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
SHARED = REPOSITORY.parent / "shared"
skipped_without_shared: list[str] = []


@pytest.fixture
def shared(request: pytest.FixtureRequest) -> Path:
    """The folder with the reference vectors and texts, beside the repository."""
    if not SHARED.is_dir():
        if os.environ.get("CI"):
            pytest.fail(f"{SHARED} is absent: in CI the reference vectors must be there")
        skipped_without_shared.append(request.node.nodeid)
        pytest.skip("needs ../shared")
    return SHARED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = [
        report
        for report in terminalreporter.stats.get("skipped", [])
        if "needs ../shared" in str(report.longrepr)
    ]
    if skipped:
        terminalreporter.write_line(f"{len(skipped)} tests skipped: ../shared is absent")
