"""The log box: the end of a log as HTML in which nothing of the log can act. No Gradio here.

Read anew from the disk each time, from the end on and never more than a few MB: nothing of a log stays in
memory, and one of 5 GB opens like a small one.
"""

import html
import re
from dataclasses import dataclass
from pathlib import Path

from indextts.projects.jobs.log_tail import MAX_TAIL_BYTES, read_end
from indextts.system.sentence import Sentence

MAX_FILTER_BYTES = 4 * 1024 * 1024
MAX_LINES = 2000
MAX_FILTER_CHARS = 200

EMPTY = "The log is empty so far."
NOTHING_FOUND = "No line of the last {megabytes} MB contains this text."
EARLIER_LINES = "The last {lines} lines; the whole log of {megabytes} MB can be downloaded."
FOUND_LINES = "{lines} lines with this text, looked for in the last {megabytes} MB."

CLASSES = (
    (
        "error",
        re.compile(
            r"\[Error\]|ERROR\b|CRITICAL\b|Traceback \(|(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*Error\b[:\n]?|Killed$"
        ),
    ),
    ("warning", re.compile(r"\[Warn(?:ing)?\]|WARN(?:ING)?\b|.{0,300}?\b[A-Za-z]*Warning: ")),
    ("train", re.compile(r"\[Train\]")),
    ("val", re.compile(r"\[Val\]")),
    ("command", re.compile(r"\$ python ")),
)


@dataclass(frozen=True)
class LogView:
    """What the log box shows, and a sentence below it."""

    html: str
    note: Sentence | None


def show_log(path: Path, max_lines: int = 200, wanted: str = "") -> LogView:
    """Return the last lines of a log, or the last of those that contain `wanted` in whatever case.

    Args:
        wanted: looked for in the last 4 MB only.
    """
    wanted = wanted.strip()[:MAX_FILTER_CHARS]
    end = read_end(
        path,
        min(max(1, max_lines), MAX_LINES),
        wanted=wanted,
        max_bytes=MAX_FILTER_BYTES if wanted else MAX_TAIL_BYTES,
    )
    note = None
    if not end.lines:
        nothing = Sentence(NOTHING_FOUND, {"megabytes": megabytes(end.num_searched)})
        note = nothing if wanted and end.num_searched else Sentence(EMPTY, {})
    elif wanted:
        searched = megabytes(end.num_searched)
        note = Sentence(FOUND_LINES, {"lines": len(end.lines), "megabytes": searched})
    elif end.has_more:
        size = megabytes(path.stat().st_size)
        note = Sentence(EARLIER_LINES, {"lines": len(end.lines), "megabytes": size})
    lines = "\n".join(_as_html(line) for line in end.lines)
    return LogView(f'<pre class="log-view" tabindex="0">{lines}</pre>', note)


def line_class(line: str) -> str:
    """Return the CSS class of a line without its "log-": error, warning, train, val, command, or none."""
    text = line.lstrip()
    return next((name for name, pattern in CLASSES if pattern.match(text)), "")


def megabytes(num_bytes: int) -> str:
    return f"{num_bytes / 1e6:.1f}"


def _as_html(line: str) -> str:
    name, text = line_class(line), html.escape(line)
    return f'<span class="log-{name}">{text}</span>' if name else text
