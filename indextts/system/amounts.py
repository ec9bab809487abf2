"""Amounts and times as English text: counts with their noun, ordinals, durations, times, sizes."""

import time
from collections.abc import Sequence


def counted(number: int, singular: str, plural: str = "") -> str:
    """Return a count with its noun: "1 utterance", "2,000 utterances", "2 processes".

    Args:
        plural: the plural where it is not the singular and an "s", or "es" after an "s".
    """
    ending = "es" if singular.endswith("s") else "s"
    return f"{number:,} {singular if number == 1 else plural or singular + ending}"


def listed(items: Sequence[str], limit: int = 3) -> str:
    """Return the first items and the number of the others: "a, b, c and 2 more"."""
    more = len(items) - limit
    return ", ".join(items[:limit]) + (f" and {more:,} more" if more > 0 else "")


def ordinal(number: int) -> str:
    """Return "1st", "2nd", "3rd", "4th", "11th", "93rd"."""
    if number % 100 in (11, 12, 13):
        return f"{number}th"
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th') }"


def shown_duration(seconds: float) -> str:
    """Return a duration, rounded for reading: "40 s", "12 min", "3 h 20 min", "4 days"."""
    if seconds < 60:
        return f"{max(1, round(seconds))} s" if seconds < 10 else f"{10 * round(seconds / 10)} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} min"
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes // (24 * 60)} days"


def shown_time(seconds: float) -> str:
    """Return a Unix time as local date and time of day: "2026-01-31 09:05"."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def shown_size(num_bytes: float) -> str:
    """Return a file size in decimal units, to three digits: "3.52 GB", "98.3 MB", "120 kB", "12 bytes"."""
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if num_bytes >= size:
            found = num_bytes / size
            return f"{found:.{2 if found < 10 else 1 if found < 100 else 0}f} {unit}"
    return counted(round(num_bytes), "byte")


def shown_gib(num_bytes: float) -> str:
    """Return memory in GiB (2^30 bytes), the unit of GPU memory sizes: "22.0"."""
    return f"{num_bytes / 2**30:.1f}"
