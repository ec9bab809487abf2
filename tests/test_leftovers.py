"""Tests of the sweep: no process outlives a test session, however it ends."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import leftovers
from tests.conftest import REPOSITORY
from tests.waiting import PATIENCE_S, wait_until

# Its child is detached, and so is the child of that child.
STARTS_DETACHED = """
import subprocess, sys, time
from pathlib import Path
CHILD = "import subprocess, sys; subprocess.run(['setsid', 'sleep', '1000'])"
def test_it():
    subprocess.Popen([sys.executable, "-c", CHILD], start_new_session=True)
    Path({ready!r}).touch()
    {then}
"""


def start(folder: Path, then: str, *flags: str) -> tuple[subprocess.Popen, str]:
    """Start a session with a test that starts processes, then does `then`; return it with the mark above."""
    (folder / "test_it.py").write_text(STARTS_DETACHED.format(ready=str(folder / "ready"), then=then))
    argv = ["-m", "pytest", "-q", "-p", "tests.conftest", "-p", "no:cacheprovider", *flags]
    mark = f"{os.environ[leftovers.MARK]}/{folder.name}"
    program = subprocess.Popen(
        [sys.executable, *argv, f"--rootdir={folder}", str(folder / "test_it.py")],
        cwd=REPOSITORY,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
        env=os.environ | {leftovers.MARK: mark},
    )
    return program, mark


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_process_outlives_a_session_that_a_signal_ends(tmp_path: Path, number: int):
    program, mark = start(tmp_path, "time.sleep(1000)")
    wait_until(lambda: (tmp_path / "ready").exists() and len(leftovers.marked(mark)) >= 3)
    program.send_signal(number)
    program.wait(PATIENCE_S)
    wait_until(lambda: not leftovers.marked(mark), explain=lambda: leftovers.marked(mark))
