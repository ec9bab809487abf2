"""Log box of a panel: follows the end of a log, and stays still while the reader has scrolled up.

The server fills a hidden source. The browser copies it into the visible box, unless the reader has scrolled
up; then the box keeps its text until the reader returns to the end.

The log is escaped HTML. Each update reads at most a few MB from the end of the file, so a log of 5 GB opens
like a small one.
"""

import html
import re
from pathlib import Path

import gradio as gr

from indextts.projects.jobs.log_tail import MAX_TAIL_BYTES, read_end
from indextts.system.messages import Message
from indextts.webui.language import t, text_of
from indextts.webui.layout import fold
from indextts.webui.serving.security import download_link

BOX = '<pre class="log-view" tabindex="0"></pre>'


class LogBox:
    """A log box with the id `{name}-log`; a button below it enlarges it and shows its filter.

    Args:
        whose: appended to the label of that button.

    Attributes:
        source: hidden; the box shows it while the reader is at the end.
        wanted: filter text; only matching lines are shown.
        note: the shown share of the log, and a link to the full log.
    """

    def __init__(self, name: str, whose: str = "") -> None:
        gr.HTML(BOX, elem_id=f"{name}-log", elem_classes="log-box", padding=False)
        self.source = gr.HTML(
            visible="hidden",
            elem_id=f"{name}-log-source",
            elem_classes="log-source",
            js_on_load="watch('value', window.followLogs)",
        )
        with fold(f"{t('jobs.log_tools')}{whose}", f"{name}-log-fold"):
            self.wanted = gr.Textbox(
                label=t("jobs.log_filter"),
                show_label=False,
                container=False,
                max_lines=1,
                placeholder=t("jobs.log_filter"),
                elem_id=f"{name}-log-filter",
            )
            self.note = gr.HTML(elem_id=f"{name}-log-note", padding=False)


def log_values(log: Path | None, wanted: str | None) -> tuple[str, str]:
    """Return the values of source and note for a log; None stands for no log."""
    if log is None:
        return BOX, ""
    lines, about = show_log(log, wanted or "")
    link = download_link(log, f"{log.parent.name}.log", t("jobs.download"))
    note = html.escape(text_of(about)) if about else ""
    shown = html.escape(f"{log.parent.name} {wanted or ''}", quote=True)
    return f'<div data-log="{shown}">{lines}</div>', f'<span class="log-note">{note} {link}</span>'


MAX_FILTER_BYTES = 4 * 1024 * 1024
NUM_LINES = 200
MAX_FILTER_CHARS = 200


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


def show_log(path: Path, wanted: str = "") -> tuple[str, Message | None]:
    """Return the last lines of a log, or those with `wanted` in the last 4 MB, as HTML, and a note."""
    wanted = wanted.strip()[:MAX_FILTER_CHARS]
    end = read_end(path, NUM_LINES, wanted=wanted, max_bytes=MAX_FILTER_BYTES if wanted else MAX_TAIL_BYTES)
    note = None
    if not end.lines:
        nothing = Message("jobs.nothing_found", {"megabytes": megabytes(end.num_searched)})
        note = nothing if wanted and end.num_searched else Message("jobs.log_empty", {})
    elif wanted:
        searched = megabytes(end.num_searched)
        note = Message("jobs.found_lines", {"lines": len(end.lines), "megabytes": searched})
    elif end.has_more:
        size = megabytes(path.stat().st_size)
        note = Message("jobs.earlier_lines", {"lines": len(end.lines), "megabytes": size})
    lines = "\n".join(_as_html(line) for line in end.lines)
    return f'<pre class="log-view" tabindex="0">{lines}</pre>', note


def line_class(line: str) -> str:
    """Return the CSS class of a line without its "log-": error, warning, train, val, command, or none."""
    text = line.lstrip()
    return next((name for name, pattern in CLASSES if pattern.match(text)), "")


def megabytes(num_bytes: int) -> str:
    return f"{num_bytes / 1e6:.1f}"


def _as_html(line: str) -> str:
    name, text = line_class(line), html.escape(line)
    return f'<span class="log-{name}">{text}</span>' if name else text
