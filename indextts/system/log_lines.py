"""Format and destination of log lines: standard output, train.log, and the log of each rank.

[Info] ...     progress
[Warn] ...     a choice made for the user
[Error] ...    a failure
[Train] ...    messages with a tag of their own, and `WARNING: ...`, stay unchanged

Control characters are shown as escapes: a name from elsewhere must not act on the reader's terminal.
"""

import logging
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

CONTROL_CHARACTERS = {
    code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"
}
TAGS = {logging.INFO: "[Info] ", logging.WARNING: "[Warn] ", logging.ERROR: "[Error] "}


class TaggedFormatter(logging.Formatter):
    """Format a record as one line, with the tag of its level unless the message has a tag."""

    def format(self, record: logging.LogRecord) -> str:
        line = visible(super().format(record))
        return line if line.startswith(("[", "WARNING")) else TAGS.get(record.levelno, "") + line


def visible(text: str) -> str:
    """Return `text` with its control characters as escapes, except line breaks and tabs."""
    return text.translate(CONTROL_CHARACTERS)


class VisibleStream:
    """A text stream that shows control characters as escapes: for what libraries print themselves."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        self.stream.write(visible(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def log_to_stdout() -> None:
    """Log to standard output, from INFO on."""
    logging.raiseExceptions = False  # a closed pipe must neither stop the program nor print a traceback
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(TaggedFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)


class ReopenedFile(logging.FileHandler):
    """Log file that is opened again after a failed write, since a drive may have been reconnected."""

    def emit(self, record: logging.LogRecord) -> None:
        """Append the line; it is lost where the drive refuses it."""
        with suppress(OSError):
            super().emit(record)  # opens the file if it is closed

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        with suppress(OSError):
            self.close()


def log_to_file(path: Path) -> logging.Handler:
    """Also append the log to `path`; return the handler, which the caller closes."""
    handler = ReopenedFile(path, encoding="utf-8")
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
    handler = ReopenedFile(path, encoding="utf-8", delay=True)
    handler.setFormatter(TaggedFormatter("%(asctime)s %(message)s"))
    root.addHandler(handler)
    return handler
