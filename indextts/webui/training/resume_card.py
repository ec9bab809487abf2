"""Card at the top of tab 6: a new run or a resume, its checkpoint, and the restore plan.

The menu of checkpoints only sets checkbox and path, in the browser; the command is made from these two.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import gradio as gr
from gradio.components import Component

from indextts.planning.preflight import Preflight
from indextts.planning.resume_table import Fit, ResumeRow
from indextts.webui.language import t, text_of
from indextts.webui.run_progress import duration
from indextts.webui.training.restore_rows import RestoreRow, rows_html

AUTO = "auto"  # the newest checkpoint, an empty path
# (choice) -> checkbox and path
CHOOSE_JS = f"(choice) => [true, choice === '{AUTO}' ? '' : choice]"
START_NEW, RESUME_RUN, RUNS = "training.start_new", "training.resume_run", "training.run_in_progress"
NEWEST, HAS_A_RUN = "training.newest", "training.has_a_run"
NO_CHECKPOINTS = "training.no_checkpoints"
STEP, STEP_OF, VALIDATION, AGO = (
    "training.at_step",
    "training.at_step_of",
    "training.validation",
    "training.ago",
)
FITS: dict[Fit, str] = {
    "restarts": "training.fit.restarts",
    "refused": "training.fit.refused",
    "unknown": "training.fit.unknown",
}


@dataclass(frozen=True)
class ResumeCard:
    """Components of the card.

    Args:
        resume, path: inputs of the form.
        read: asks the trainer for a plan that depends on the weights.
    """

    title: gr.HTML
    resume: gr.Checkbox
    menu: gr.Dropdown
    path: gr.Textbox
    plan: gr.HTML
    read: gr.Button

    @property
    def shown(self) -> list[Component]:
        """The components that `card_values` fills."""
        return [self.title, self.menu, self.plan, self.read]


def resume_card() -> ResumeCard:
    """Build the card."""
    with gr.Column(elem_classes="card", elem_id="train-card"):
        title = gr.HTML(elem_id="train-card-title", elem_classes="heading", padding=False)
        with gr.Row(elem_classes="resume-row"):
            resume = gr.Checkbox(label=t("training.resume"), elem_id="train-resume")
            menu = gr.Dropdown([], label=t("training.checkpoints"), elem_id="train-checkpoints")
            path = gr.Textbox(
                label=t("training.resume_path"),
                placeholder=t("training.resume_path_help"),
                elem_id="train-resume-path",
            )
        plan = gr.HTML(elem_id="train-plan", padding=False)
        read = gr.Button(t("training.read_checkpoint"), size="sm", visible=False, elem_id="train-read")
    menu.input(None, [menu], [resume, path], js=CHOOSE_JS)
    return ResumeCard(title, resume, menu, path, plan, read)


def card_values(
    rows: Sequence[ResumeRow],
    resume: str,
    found: Preflight | None,
    plan: Sequence[RestoreRow],
    *,
    can_read: bool,
) -> list[Any]:
    """Return the values of the card.

    Args:
        rows: the checkpoints of the run directory.
        resume: the trainer's --resume, "" for a new run.
        found: None if the form is invalid.
    """
    chosen = chosen_row(rows, resume)
    total = found.resumed.plan.schedule.total_steps if found and found.resumed else None
    choices = menu_choices(rows, time.time())
    value = _choice(rows, resume, chosen)
    return [
        title_html(chosen, total) if resume else new_run_html(rows),
        gr.Dropdown(choices=choices, value=value if value in [known for _, known in choices] else None),
        rows_html(plan),
        gr.Button(visible=can_read),
    ]


def running_values() -> list[Any]:
    """Return the values of the card while the training runs."""
    title = f"<h2>{escape(t(RUNS))}</h2>"
    return [title, gr.skip(), f"<p>{escape(t('training.while_running'))}</p>", gr.Button(visible=False)]


def plan_text_html(text: str) -> str:
    """Return the plan as the trainer reports it."""
    return "".join(f"<p>{escape(line)}</p>" for line in text.splitlines())


def chosen_row(rows: Sequence[ResumeRow], resume: str) -> ResumeRow | None:
    """Return the checkpoint that a resume takes; None if it is not in the run directory."""
    if resume == AUTO:
        return next((row for row in rows if row.can_start), None)
    path = Path(resume)
    return next((row for row in rows if row.path.parent == path.parent and path.name in row.names), None)


def menu_choices(rows: Sequence[ResumeRow], now: float) -> list[tuple[str, str]]:
    """Return the checkpoints as labels and file names, after the newest."""
    if not rows:
        return [(t(NO_CHECKPOINTS), AUTO)]
    newest = next((row for row in rows if row.can_start and row.step is not None), None)
    first = t(NEWEST, step=t(STEP, step=f"{newest.step:,}")) if newest else t("training.newest_unknown")
    return [(first, AUTO), *((_label(row, now), row.path.name) for row in rows)]


def title_html(row: ResumeRow | None, total_steps: int | None) -> str:
    """Return the title of a resume."""
    words = [] if row is None else _facts(row, time.time(), total_steps)
    facts = f' <span class="lead">{escape(", ".join(words))}</span>' if words else ""
    return f"<h2>{escape(t(RESUME_RUN))}{':' if words else ''}{facts}</h2>"


def new_run_html(rows: Sequence[ResumeRow]) -> str:
    """Return the title of a new run."""
    newest = next((row for row in rows if row.step is not None), None)
    words = t(HAS_A_RUN, run=", ".join(_facts(newest, time.time()))) if newest else ""
    facts = f' <span class="lead">{escape(words)}</span>' if words else ""
    return f"<h2>{escape(t(START_NEW))}{facts}</h2>"


def _choice(rows: Sequence[ResumeRow], resume: str, chosen: ResumeRow | None) -> str | None:
    if resume == AUTO or (not rows and not resume):
        return AUTO
    return chosen.path.name if chosen else None


def _label(row: ResumeRow, now: float) -> str:
    """Return a checkpoint in words: step, time, loss, and what keeps a resume from continuing there."""
    words = [row.path.name] if row.step is None else _facts(row, now)
    if "best.pth" in row.names:
        words.append(t("training.best"))
    if row.is_valid is False:
        words.append(text_of(row.validity))
    elif row.fit in FITS:
        words.append(t(FITS[row.fit]))
    return ", ".join(words)


def _facts(row: ResumeRow, now: float, total_steps: int | None = None) -> list[str]:
    words = []
    if row.step is not None and total_steps:
        words.append(t(STEP_OF, step=f"{row.step:,}", total=f"{total_steps:,}"))
    elif row.step is not None:
        words.append(t(STEP, step=f"{row.step:,}"))
    words.append(t(AGO, time=duration(max(0.0, now - row.saved))))
    if row.mel_loss is not None:
        words.append(t(VALIDATION, loss=f"{row.mel_loss:.2f}"))
    return words
