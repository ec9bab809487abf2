"""Fixtures for all tests."""

import os
import shutil
import signal
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
SHARED = REPOSITORY.parent / "shared"


# Programs that nohup started ignore a closed terminal, and so would all that the tests start.
signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture
def shared() -> Path:
    """The folder with the reference vectors and texts, beside the repository."""
    if not SHARED.is_dir():
        if os.environ.get("CI"):
            pytest.fail(f"{SHARED} is absent: in CI the reference vectors must be there")
        pytest.skip("needs ../shared")
    return SHARED


@pytest.fixture(scope="session")
def chromium() -> str:
    """The browser's program; ./test.sh installs it where it may."""
    found = shutil.which("chromium")
    if found is None:
        if os.environ.get("CI"):
            pytest.fail("chromium is absent: in CI the browser tests must run")
        pytest.skip("needs chromium (Debian, Ubuntu: apt install chromium)")
    return found


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--hostile-inputs",
        type=int,
        default=80,
        help="hostile requests to each handler of the page; 300 take several minutes",
    )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = [
        report
        for report in terminalreporter.stats.get("skipped", [])
        if "needs ../shared" in str(report.longrepr)
    ]
    if skipped:
        terminalreporter.write_line(f"{len(skipped)} tests skipped: ../shared is absent")
