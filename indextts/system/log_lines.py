"""Format and destination of log lines: standard output, train.log, and the log of each rank.

[Info] ...     progress
[Warn] ...     a choice made for the user
[Error] ...    a failure
[Train] ...    messages with a tag of their own, and `WARNING: ...`, stay unchanged
"""

import logging
import sys
from pathlib import Path

TAGS = {logging.INFO: "[Info] ", logging.WARNING: "[Warn] ", logging.ERROR: "[Error] "}


class TaggedFormatter(logging.Formatter):
    """Format a record as one line, with the tag of its level unless the message has a tag."""

    def format(self, record: logging.LogRecord) -> str:
        line = super().format(record)
        return line if line.startswith(("[", "WARNING")) else TAGS.get(record.levelno, "") + line


def log_to_stdout() -> None:
    """Log to standard output, from INFO on."""
    logging.raiseExceptions = False  # a closed pipe must neither stop the program nor print a traceback
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(TaggedFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)


def log_to_file(path: Path) -> logging.Handler:
    """Also append the log to `path`; return the handler, which the caller closes."""
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(TaggedFormatter())
    logging.getLogger().addHandler(handler)
    return handler


def log_for_rank(path: Path, rank: int) -> logging.Handler:
    """Append warnings and errors of a rank to `path`, and print only errors to the shared standard output.

    Rank 0 logs everything else. Returns the handler, which the caller closes.
    """
    root = logging.getLogger()
    root.setLevel(logging.WARNING)
    for stdout in root.handlers:
        stdout.setLevel(logging.ERROR)
        stdout.setFormatter(TaggedFormatter(f"rank {rank}: %(message)s"))
    handler = logging.FileHandler(path, encoding="utf-8", delay=True)
    handler.setFormatter(TaggedFormatter("%(asctime)s %(message)s"))
    root.addHandler(handler)
    return handler
