"""Lines that tell how far a long loop is.

Encoding: 120/900 clips, 31.5 clips/s, 44.1 h of audio per hour, 25 s left
"""

import logging
import time

logger = logging.getLogger(__name__)

SECONDS_BETWEEN_LINES = 5.0


class Progress:
    """Counts items and logs a line every few seconds: count, total, speed, time left.

    Args:
        what: is done.
        total: items.
        total_s: seconds of audio in them, where the time that an item takes depends on its length.
    """

    def __init__(self, what: str, total: int, total_s: float = 0.0) -> None:
        self.what = what
        self.total = total
        self.total_s = total_s
        self.count = 0
        self.audio_s = 0.0
        self._started = self._last_line = time.monotonic()

    def advance(self, audio_s: float = 0.0) -> None:
        """Count one item, which has so many seconds of audio."""
        self.count += 1
        self.audio_s += audio_s
        now = time.monotonic()
        if now - self._last_line < SECONDS_BETWEEN_LINES:
            return
        self._last_line = now
        logger.info("%s: %d/%d clips, %s", self.what, self.count, self.total, self.pace(now - self._started))

    def pace(self, elapsed_s: float) -> str:
        """Return speed and time left, as after `elapsed_s`."""
        parts = [f"{self.count / elapsed_s:.1f} clips/s"]
        share = self.count / self.total
        if self.audio_s:
            parts.append(f"{self.audio_s / elapsed_s:.1f} h of audio per hour")
            share = self.audio_s / max(self.total_s, self.audio_s)
        parts.append(f"{shown_time(elapsed_s * (1 - share) / share)} left")
        return ", ".join(parts)


def shown_time(seconds: float) -> str:
    """Return a time as a person says it: 42 s, 3 min 20 s, 2 h 5 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
