"""The log box: the end of a log as HTML in which nothing of the log can act. No Gradio here.

Read anew from the disk each time, from the end on and never more than a few MB: nothing of a log stays in
memory, and one of 5 GB opens like a small one.
"""

import html
import re
from dataclasses import dataclass
from pathlib import Path

from indextts.jobs.log_tail import MAX_TAIL_BYTES, read_end
from indextts.jobs.outcome import Message

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

# Colours of at least 4.5 : 1 on the box, which Gradio makes dark with the class `dark` of the body.
LOG_CSS = """
.log-box:not(:has(.log-box)) { max-height: 26rem; overflow: auto !important; }
.log-view { margin: 0; padding: .6rem .8rem; border-radius: 8px; border: 1px solid #d0d7de;
  font: .8rem/1.45 ui-monospace, monospace; white-space: pre-wrap; overflow-wrap: anywhere;
  color: #24292f; background: #f6f8fa; }
.log-view .log-error { color: #b3141d; font-weight: 600 }
.log-view .log-warning { color: #7d4e00 }
.log-view .log-train { color: #0a53a8 }
.log-view .log-val { color: #11632a }
.log-view .log-command { color: #57606a }
.dark .log-view { color: #d7dde4; background: #12161c; border-color: #3a424c; }
.dark .log-view .log-error { color: #ff8a84 }
.dark .log-view .log-warning { color: #e3b341 }
.dark .log-view .log-train { color: #79b8ff }
.dark .log-view .log-val { color: #6fd685 }
.dark .log-view .log-command { color: #9aa4af }
"""

# Run after each update of a gr.HTML with the class `log-box`, whose content is the view; Gradio gives the
# class to the block and to its inside, which is what scrolls. It follows the end, and while somebody has
# scrolled up it keeps the line at the top of the box where it is, whatever comes or leaves: a line
# is known by its place in the file.
FOLLOW_LOGS = """() => document.querySelectorAll('.log-box:not(:has(.log-box))').forEach(box => {
  const top = line => line.getBoundingClientRect().top - box.getBoundingClientRect().top;
  if (!box.dataset.seen) {
    box.dataset.seen = 1;
    box.addEventListener('scroll', () => {
      const isFree = box.scrollHeight - box.scrollTop - box.clientHeight > 40;
      const line = [...box.querySelectorAll('[data-at]')].find(line => top(line) >= 0);
      box.dataset.line = isFree && line ? line.dataset.at : '';
      box.dataset.top = line ? top(line) : 0;
    });
  }
  const line = box.dataset.line && box.querySelector(`[data-at="${box.dataset.line}"]`);
  if (line) box.scrollTop += top(line) - box.dataset.top;
  else if (!box.dataset.line) box.scrollTop = box.scrollHeight;
})"""


@dataclass(frozen=True)
class LogView:
    """What the log box shows, and a sentence below it."""

    html: str
    note: Message | None


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
        nothing = Message(NOTHING_FOUND, {"megabytes": megabytes(end.num_searched)})
        note = nothing if wanted and end.num_searched else Message(EMPTY, {})
    elif wanted:
        searched = megabytes(end.num_searched)
        note = Message(FOUND_LINES, {"lines": len(end.lines), "megabytes": searched})
    elif end.has_more:
        size = megabytes(path.stat().st_size)
        note = Message(EARLIER_LINES, {"lines": len(end.lines), "megabytes": size})
    lines = "\n".join(map(_as_html, end.lines, end.starts))
    return LogView(f'<pre class="log-view">{lines}</pre>', note)


def line_class(line: str) -> str:
    """Return the CSS class of a line without its "log-": error, warning, train, val, command, or none."""
    text = line.lstrip()
    return next((name for name, pattern in CLASSES if pattern.match(text)), "")


def megabytes(num_bytes: int) -> str:
    return f"{num_bytes / 1e6:.1f}"


def _as_html(line: str, start: int) -> str:
    name, text = line_class(line), html.escape(line)
    css_class = f' class="log-{name}"' if name else ""
    return f'<span data-at="{start}"{css_class}>{text}</span>'
