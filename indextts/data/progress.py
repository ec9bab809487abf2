"""Lines that tell how far a long loop is."""

import logging
import time

logger = logging.getLogger(__name__)

SECONDS_BETWEEN_LINES = 5.0


class Progress:
    """Counts items and logs a line every few seconds: count, total, speed, time left."""

    def __init__(self, what: str, total: int) -> None:
        self.what = what
        self.total = total
        self.count = 0
        self._started = self._last_line = time.monotonic()

    def advance(self) -> None:
        """Count one item."""
        self.count += 1
        now = time.monotonic()
        if now - self._last_line < SECONDS_BETWEEN_LINES:
            return
        self._last_line = now
        per_second = self.count / (now - self._started)
        seconds_left = (self.total - self.count) / per_second
        logger.info(
            "%s: %d/%d clips, %.1f clips/s, %s left",
            self.what,
            self.count,
            self.total,
            per_second,
            shown_time(seconds_left),
        )


def shown_time(seconds: float) -> str:
    """Return a time as a person says it: 42 s, 3 min 20 s, 2 h 5 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
