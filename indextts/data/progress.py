"""Progress lines of long loops; the page parses them.

Encoding: 120/900 clips, 31.5 clips/s, 44.1 h of audio per hour, 30 s left
"""

import logging
import time

from indextts.system.amounts import shown_duration

logger = logging.getLogger(__name__)

SECONDS_BETWEEN_LINES = 5.0


class Progress:
    """Counter that logs a line every few seconds: count, total, speed, time left.

    Args:
        total_s: seconds of audio in all items; give it if the time per item depends on its duration.
        noun: the items, in the plural.
    """

    def __init__(self, what: str, total: int, total_s: float = 0.0, noun: str = "clips") -> None:
        self.what = what
        self.noun = noun
        self.total = total
        self.total_s = total_s
        self.count = 0
        self.audio_s = 0.0
        self._started = self._last_line = self._first_audio_s = 0.0  # of the first item

    def advance(self, audio_s: float = 0.0) -> None:
        """Count one item with `audio_s` seconds of audio."""
        self.count += 1
        self.audio_s += audio_s
        now = time.monotonic()
        if self.count == 1:  # took the start of processes and models too, so the speed is that of the others
            self._started, self._first_audio_s = now, audio_s
            self._last_line = now
            return
        if now - self._last_line < SECONDS_BETWEEN_LINES:
            return
        self._last_line = now
        elapsed_s = now - self._started
        speed, left = (self.count - 1) / elapsed_s, float(self.total - self.count)
        parts = [f"{speed:.1f} {self.noun}/s"]
        if self.audio_s > self._first_audio_s:
            speed, left = (self.audio_s - self._first_audio_s) / elapsed_s, self.total_s - self.audio_s
            parts.append(f"{speed:.1f} h of audio per hour")
        parts.append(f"{shown_duration(max(0.0, left) / speed)} left")
        logger.info("%s: %d/%d %s, %s", self.what, self.count, self.total, self.noun, ", ".join(parts))
