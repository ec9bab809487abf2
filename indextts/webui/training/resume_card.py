"""Card at the top of tab 6: a new run or a resume, its checkpoint, and the restore plan.

The menu of checkpoints only sets checkbox and path, in the browser; the command is made from these two.
"""

import time
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import gradio as gr
from gradio.components import Component

from indextts.commands.train import Train
from indextts.planning.preflight import Preflight
from indextts.runs.checkpoints import Checkpoint, list_checkpoints, validation_losses
from indextts.runs.directory import BEST
from indextts.runs.restore_rows import HELD, HELD_AUTOMATIC, Kind, RestoreRow
from indextts.system.messages import Message
from indextts.webui.language import field_title, t, text_of
from indextts.webui.layout import small_button
from indextts.webui.run_progress import duration, read_run

AUTO = "auto"  # the newest checkpoint, an empty path
REMEMBER_JS = "choice => { window.checkpointBefore = choice; }"
# (choice) -> checkbox and path; a menu that is only passed with the keyboard reports its choice too
CHOOSE_JS = f"""(choice) => choice && choice !== window.checkpointBefore
  ? [true, choice === '{AUTO}' ? '' : choice] : [{{__type__: "update"}}, {{__type__: "update"}}]"""
SYMBOLS: dict[Kind, str] = {
    "continues": "✓",
    "restarts": "↺",
    "changed": "≠",
    "refused": "✗",
    "unknown": "?",
    "finished": "✓",
}


class ResumeCard:
    """The card.

    Attributes:
        resume, path: inputs of the form.
        chosen: the event of a choice in the menu, which sets both.
        read: asks the trainer for a plan that depends on the weights.
    """

    def __init__(self) -> None:
        with gr.Column(elem_classes="card", elem_id="train-card"):
            self.title = gr.HTML(elem_id="train-card-title", elem_classes="heading", padding=False)
            with gr.Row(elem_classes="resume-row"):
                self.resume = gr.Checkbox(label=t("training.resume"), elem_id="train-resume")
                self.menu = gr.Dropdown([], label=t("training.checkpoints"), elem_id="train-checkpoints")
                self.path = gr.Textbox(
                    label=t("training.resume_path"),
                    placeholder=t("training.resume_path_help"),
                    elem_id="train-resume-path",
                )
            self.plan = gr.HTML(elem_id="train-plan", padding=False)
            self.read = small_button("training.read_checkpoint", "train-read", visible=False)
        # no Python function: both values are known in the browser, and the form reports their change anyway;
        # `input` and not `change`: `card_values` sets the menu too, which must not overwrite a typed path
        self.menu.focus(None, [self.menu], None, js=REMEMBER_JS)
        self.chosen = self.menu.input(None, [self.menu], [self.resume, self.path], js=CHOOSE_JS)

    @property
    def shown(self) -> list[Component]:
        return [self.title, self.menu, self.plan, self.read]


def card_values(
    run_dir: Path,
    resume: str,
    found: Preflight | None,
    plan: Sequence[RestoreRow],
    *,
    can_read: bool,
    answer: str = "",
) -> list[Any]:
    """Return the values of the card.

    Args:
        resume: the trainer's --resume, "" for a new run.
        found: None if the form is invalid.
        answer: what the trainer said about a checkpoint that only it can read, in place of `plan`.
    """
    rows, now = list_checkpoints(run_dir), time.time()
    losses = validation_losses(read_run(run_dir)) if rows else {}
    labels = {row.name: ", ".join(_facts(row, losses, now)) for row in rows}
    chosen = _chosen(rows, resume)
    total = found.resumed.schedule.total_steps if found and found.resumed else None
    # built at each answer: their labels have the age of each file, in the language of this browser
    choices = menu_choices(rows, losses, now)
    first = AUTO if rows else ""
    value = first if resume == AUTO or not (rows or resume) else chosen.name if chosen else None
    value = value if value in [known for _, known in choices] else None
    if resume:
        words = ", ".join(_facts(chosen, losses, now, total)) if chosen else ""
        title = f"{t('training.resume_run')}: " if words else t("training.resume_run")
    else:
        newest = next((row for row in rows if row.step is not None), None)
        words = t("training.has_a_run", run=labels[newest.name]) if newest else ""
        title = t("training.start_new")
    lead = f' <span class="lead">{escape(words)}</span>' if words else ""
    return [
        f"<h2>{escape(title)}{lead}</h2>",
        gr.Dropdown(choices=choices, value=value, visible=bool(rows or resume)),
        answer_html(answer) if answer else rows_html(plan),
        gr.Button(visible=can_read),
    ]


def running_values() -> list[Any]:
    title = f"<h2>{escape(t('training.run_in_progress'))}</h2>"
    # the menu stays: the trainer adds and removes checkpoints all the time, and none can be chosen now
    return [title, gr.skip(), f"<p>{escape(t('training.while_running'))}</p>", gr.Button(visible=False)]


def answer_html(text: str) -> str:
    return "".join(f"<p>{escape(line)}</p>" for line in text.splitlines())


def rows_html(rows: Sequence[RestoreRow]) -> str:
    """Return the rows below their numbers by kind, kept settings as one row; "" without rows."""
    if not rows:
        return ""
    held = [row for row in rows if row.text.id in (HELD, HELD_AUTOMATIC)]
    shown = [(row.kind, _name(row), text_of(row.text)) for row in rows if row not in held]
    if held:
        before = [(_name(row), row.text.values["before"]) for row in held]
        values = (f"{name} {text_of(old) if isinstance(old, Message) else old}" for name, old in before)
        shown.append(("continues", t("restore.settings"), ", ".join(values)))
    counts = [(kind, sum(kind == other for other, _, _ in shown)) for kind in SYMBOLS]
    summary = "".join(
        f'<span class="{kind}">{escape(t(f"restore.kind.{kind}"))} {count}</span>'
        for kind, count in counts
        if count
    )
    items = "".join(
        f'<li class="{kind}"><span class="symbol" aria-hidden="true">{SYMBOLS[kind]}</span>'
        f"<b>{escape(name)}</b><span>{escape(text)}</span></li>"
        for kind, name, text in shown
    )
    title = escape(t("training.restore_plan"))
    head = f'<p class="restore-head">{title}<span class="counts">{summary}</span></p>'
    return f'{head}<ul class="restore">{items}</ul>'


def menu_choices(
    rows: Sequence[Checkpoint], losses: Mapping[tuple[int, int], float], now: float
) -> list[tuple[str, str]]:
    """Return the checkpoints as labels and file names, after the newest."""
    if not rows:
        return [(t("training.no_checkpoints"), "")]
    newest = rows[0] if rows[0].is_complete else None
    first = (
        t("training.newest", step=t("training.at_step", step=f"{newest.step:,}"))
        if newest
        else t("training.newest_unknown")
    )
    return [(first, AUTO), *((_label(row, losses, now), row.name) for row in rows)]


def _chosen(rows: Sequence[Checkpoint], resume: str) -> Checkpoint | None:
    """Return the checkpoint that a resume takes; None if it is not in the run directory."""
    if resume == AUTO:
        return next(iter(rows), None)
    is_link = {"latest.pth": "is_latest", **BEST}.get(Path(resume).name, "")
    return next((row for row in rows if row.name == Path(resume).name or getattr(row, is_link, False)), None)


def _label(row: Checkpoint, losses: Mapping[tuple[int, int], float], now: float) -> str:
    """Return a checkpoint in words: step, time, loss, and that it is the best or incomplete."""
    words = _facts(row, losses, now) if row.step is not None else [row.name]
    if row.is_best:
        words.append(t("training.best"))
    if row.step is not None and not row.is_complete:
        words.append(t("training.incomplete"))
    return ", ".join(words)


def _facts(
    row: Checkpoint, losses: Mapping[tuple[int, int], float], now: float, total_steps: int | None = None
) -> list[str]:
    words = []
    if row.step is not None:
        step = f"{row.step:,}"
        words.append(
            t("training.at_step_of", step=step, total=f"{total_steps:,}")
            if total_steps
            else t("training.at_step", step=step)
        )
    words.append(t("training.ago", time=duration(max(0.0, now - row.time))))
    if (loss := losses.get((row.part or 0, row.step or 0))) is not None:
        words.append(t("training.validation", loss=f"{loss:.2f}"))
    return words


def _name(row: RestoreRow) -> str:
    """Return the name of a row; of a setting, its title on the page."""
    name = str(row.name)
    return field_title(Train, name) if name in Train.model_fields else text_of(row.name)
