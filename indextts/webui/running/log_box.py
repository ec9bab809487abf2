"""The log box of a panel: follows the end of a log, stays put while its reader has scrolled up.

What the server sends goes into a source that nobody sees, and from there into the box that is seen, unless
its reader looks at something further up: then the box keeps what it shows until its reader is back at the
end.
"""

import html
from dataclasses import dataclass
from pathlib import Path

import gradio as gr

from indextts.webui.language import said, t
from indextts.webui.running.log_view import show_log
from indextts.webui.serving.links import download_link

BOX = '<pre class="log-view" tabindex="0"></pre>'
DOWNLOAD = "Download the whole log"

FOLLOW_LOGS = """() => document.querySelectorAll('.log-source').forEach(source => {
  const place = document.getElementById(source.id.replace('-source', ''));
  const box = place && place.querySelector('.log-view');
  const newest = source.querySelector('.log-view');
  if (!box || !newest || !box.clientHeight) return;  // in a tab that is not open
  const log = source.querySelector('[data-log]')?.dataset.log;
  if (box.dataset.log !== log) {  // another log, or other lines of it: nothing to hold
    box.dataset.log = log;
    box.dataset.held = '';
  }
  const isAtEnd = () => box.scrollHeight - box.scrollTop - box.clientHeight < 40;
  const follow = () => {
    const latest = source.querySelector('.log-view');
    if (latest && box.innerHTML !== latest.innerHTML) box.innerHTML = latest.innerHTML;
    box.scrollTop = box.scrollHeight;
    place.classList.remove('held');
  };
  if (!box.dataset.seen) {
    box.dataset.seen = 1;
    box.addEventListener('scroll', () => {
      const was = box.dataset.held;
      box.dataset.held = isAtEnd() ? '' : '1';
      if (was && !box.dataset.held) follow();
    });
  }
  if (!box.dataset.held) follow();
  else if (box.innerHTML !== newest.innerHTML) place.classList.add('held');
})"""


@dataclass(frozen=True)
class LogBox:
    """The components of a log.

    Args:
        wanted: only lines with this text are shown.
        source: what the box shows when its reader is at its end.
        note: how much of the log is shown, and where the whole is.
    """

    wanted: gr.Textbox
    source: gr.HTML
    note: gr.HTML


def log_box(name: str) -> LogBox:
    """Lay out a log box; its id is `{name}-log`."""
    wanted = gr.Textbox(
        show_label=False,
        container=False,
        max_lines=1,
        placeholder="Log: show only lines with this text",
        elem_id=f"{name}-log-filter",
    )
    gr.HTML(BOX, elem_id=f"{name}-log", elem_classes="log-box", padding=False)
    source = gr.HTML(visible="hidden", elem_id=f"{name}-log-source", elem_classes="log-source")
    note = gr.HTML(elem_id=f"{name}-log-note", padding=False)
    return LogBox(wanted, source, note)


def log_values(log: Path | None, wanted: str | None) -> tuple[str, str]:
    """Return what source and note of a log box show of a log, None for none."""
    if log is None:
        return BOX, ""
    view = show_log(log, wanted=wanted or "")
    link = download_link(log, f"{log.parent.name}.log", t(DOWNLOAD))
    note = html.escape(said(view.note)) if view.note else ""
    shown = html.escape(f"{log.parent.name} {wanted or ''}", quote=True)
    return f'<div data-log="{shown}">{view.html}</div>', f'<span class="log-note">{note} {link}</span>'
