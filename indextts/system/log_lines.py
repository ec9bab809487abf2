"""How a log message becomes a line, on the screen and in train.log.

[Info] ...     for the person watching
[Warn] ...     a choice made for them
[Train] ...    messages that bring their own tag, and `WARNING: ...`, stay as they are
"""

import logging
import sys
from pathlib import Path

TAGS = {logging.INFO: "[Info] ", logging.WARNING: "[Warn] ", logging.ERROR: "[Error] "}


class TaggedFormatter(logging.Formatter):
    """One line per record, with the tag of its level unless the message has one."""

    def format(self, record: logging.LogRecord) -> str:
        line = super().format(record)
        return line if line.startswith(("[", "WARNING")) else TAGS.get(record.levelno, "") + line


def log_to_stdout() -> None:
    """Send the log to standard output, from INFO on."""
    logging.raiseExceptions = False  # a reader of our output that leaves is no reason to stop, or to complain
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(TaggedFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)


def log_to_file(path: Path) -> logging.Handler:
    """Append the log to `path` too; return the handler, which the caller closes."""
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(TaggedFormatter())
    logging.getLogger().addHandler(handler)
    return handler


def log_for_rank(path: Path, rank: int) -> logging.Handler:
    """Append warnings and errors to `path`, and show errors alone on the screen that the processes share.

    What all processes would say alike, the first one says. Returns the handler, which the caller closes.
    """
    root = logging.getLogger()
    root.setLevel(logging.WARNING)
    for screen in root.handlers:
        screen.setLevel(logging.ERROR)
        screen.setFormatter(TaggedFormatter(f"process {rank}: %(message)s"))
    handler = logging.FileHandler(path, encoding="utf-8", delay=True)
    handler.setFormatter(TaggedFormatter("%(asctime)s %(message)s"))
    root.addHandler(handler)
    return handler
