"""Waiting for events in tests, never for a time, with one limit that even a very slow machine meets."""

import subprocess
import time
from collections.abc import Callable
from typing import Any

# Nothing takes nearly as long: a test reaches this ceiling only if what it waits for never happens.
PATIENCE_S = 60.0
PATIENCE_MS = PATIENCE_S * 1000


def wait_until(
    is_so: Callable[[], object],
    explain: Callable[[], object] = str,
    process: subprocess.Popen[Any] | None = None,
    pause_s: float = 0.02,
) -> None:
    """Return when it is so.

    Args:
        explain: returns what a failure shows.
        process: must not end before.
        pause_s: between two looks.

    Raises:
        AssertionError: the process ended before, or the ceiling is reached.
    """
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        has_ended = process is not None and process.poll() is not None
        assert not has_ended or is_so(), f"it ended with {process and process.returncode}: {explain()}"
        assert time.monotonic() < deadline, f"not within {PATIENCE_S} s: {explain()}"
        time.sleep(pause_s)
