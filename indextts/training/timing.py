"""Where the time from the start of the process to its first step goes."""

import logging
import os
import time

from indextts.system.processes import read_stat

logger = logging.getLogger(__name__)


class StartTimes:
    """Seconds of each part of the start, in order; the first is all that came before this was made."""

    def __init__(self, first: str) -> None:
        self._parts = [(first, seconds_since_process_start())]
        self._last = time.perf_counter()

    def mark(self, part: str) -> None:
        """Note that `part` is done now."""
        now = time.perf_counter()
        self._parts.append((part, now - self._last))
        self._last = now

    def log(self, step: int) -> None:
        total = sum(seconds for _, seconds in self._parts)
        parts = ", ".join(f"{part} {seconds:.1f}" for part, seconds in self._parts)
        logger.info("Ready for step %d after %.1f s: %s", step, total, parts)


def seconds_since_process_start() -> float:
    """Return the age of this process, interpreter start and imports included."""
    stat = read_stat(os.getpid())
    assert stat is not None
    started = stat.start_ticks / os.sysconf("SC_CLK_TCK")  # since boot
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - started)
