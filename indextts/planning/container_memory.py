"""The memory of the container that this runs in, as the kernel's control groups say it, version 2 or 1."""

from dataclasses import dataclass
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class _Version:
    """The files of one version of control groups, and what memory.stat calls pages of files that can go."""

    limit: str
    held: str
    statistics: str
    inactive: str


VERSIONS = (
    _Version("memory.max", "memory.current", "memory.stat", "inactive_file"),
    _Version(
        "memory/memory.limit_in_bytes",
        "memory/memory.usage_in_bytes",
        "memory/memory.stat",
        "total_inactive_file",
    ),
)


def container_limit(cgroup: Path = CGROUP) -> int | None:
    """Return the memory limit of the container in bytes, None where there is none.

    Version 1 says "no limit" as a number that no machine has: take the less of it and the machine's memory.
    """
    for version in VERSIONS:
        try:
            text = (cgroup / version.limit).read_text().strip()
        except OSError:
            continue
        return int(text) if text.isdecimal() else None  # "max"
    return None


def container_use(cgroup: Path = CGROUP) -> int | None:
    """Return the bytes that the container holds and cannot give back at once, None where nothing says it."""
    for version in VERSIONS:
        try:
            held = int((cgroup / version.held).read_text())
            lines = (cgroup / version.statistics).read_text().splitlines()
            statistics = dict(line.split() for line in lines)
        except (OSError, ValueError):
            continue
        # what was read from files is given back when somebody needs it
        return held - int(statistics.get(version.inactive, 0))
    return None
