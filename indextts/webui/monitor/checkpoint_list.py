"""The checkpoints of tab 7: a table with the actions of each row: listen, export, pin, delete.

The page sends an action and the name of a checkpoint; indextts/runs/checkpoints.py decides at that moment
what is allowed, whatever the page showed before.
"""

from collections.abc import Sequence
from html import escape
from typing import Any

import gradio as gr

from indextts.errors import UserError
from indextts.projects.project import Project
from indextts.runs.checkpoints import (
    TRASH,
    Checkpoint,
    bytes_in_trash,
    deletion_refusal,
    empty_trash,
    list_checkpoints,
    move_to_trash,
    pin,
    validation_losses,
)
from indextts.system.amounts import shown_size, shown_time
from indextts.webui.events import on
from indextts.webui.language import t
from indextts.webui.layout import heading
from indextts.webui.markup import empty_html
from indextts.webui.metrics_reader import RUNS
from indextts.webui.page import Page, shared_choice, stamped
from indextts.webui.run_progress import epoch_from_one
from indextts.webui.view_versions import files_version

HEADERS = {  # text: class of the cells
    "monitor.headers.checkpoint": "",
    "monitor.headers.step": "number",
    "monitor.headers.epoch": "number",
    "monitor.headers.validation_mel_loss": "number",
    "monitor.headers.size": "number",
    "monitor.headers.saved": "",
}
ACTIONS_HEADER = "monitor.headers.actions"
NONE_YET = "monitor.none_yet"
CHOOSE = "monitor.choose"
ACTIONS = {"listen": "monitor.listen", "export": "monitor.export"}
PIN = "monitor.pin"
UNPIN = "monitor.unpin"
DELETE = "monitor.delete"
CONFIRM = "monitor.confirm_delete"
TRASHED = "monitor.trashed"
EMPTY_TRASH = "monitor.empty_trash"
TRASH_EMPTIED = "monitor.trash_emptied"
NOTES = {
    "is_best": "monitor.notes.is_best",
    "is_latest": "monitor.notes.is_latest",
    "is_pinned": "monitor.notes.is_pinned",
}
INCOMPLETE = "monitor.incomplete"

# `element` and `trigger` are Gradio's
SEND_ACTION = """element.addEventListener("click", event => {
  const button = event.target.closest("[data-action]");
  const { action, name } = button?.dataset ?? {};
  if (button) trigger("select", { index: [0, 0], value: action, row_value: [name] }); // as a table
});"""


class _Components:
    """Components of the list and of its confirmation question."""

    def __init__(self) -> None:
        heading("monitor.checkpoints")
        with gr.Group(visible=False, elem_id="checkpoint-confirm") as self.confirmation:
            self.question = gr.Markdown(elem_id="checkpoint-question")
            with gr.Row():
                self.yes = gr.Button(
                    t("monitor.move_to_trash"), variant="stop", size="sm", elem_id="checkpoint-yes"
                )
                self.no = gr.Button(t("monitor.cancel_delete"), size="sm", elem_id="checkpoint-no")
        self.table = gr.HTML(elem_id="checkpoint-table", js_on_load=SEND_ACTION)
        self.empty = gr.Button("", visible=False, size="sm", elem_id="checkpoint-empty", elem_classes="asks")
        self.to_delete = gr.Textbox(visible="hidden", container=False, show_label=False)

    @property
    def shown(self) -> list[Any]:
        return [self.table, self.empty]

    @property
    def asked(self) -> list[Any]:
        return [self.confirmation, self.question, self.to_delete]


def build(page: Page) -> None:
    """Build the list and connect its buttons."""
    components = _Components()
    shared = [shared_choice(page, what) for what in ACTIONS]

    def show(name: str) -> list[Any]:
        return shown(page.find_project(name))

    def act(name: str, event: gr.SelectData) -> list[Any]:
        return perform(page.find_project(name), event.value, event.row_value[0])

    def confirm(name: str, to_delete: str) -> list[Any]:
        return delete(page.find_project(name), to_delete)

    def clear(name: str) -> list[Any]:
        return clear_trash(page.find_project(name))

    page.watch(version, show, components.shown)
    on(
        [components.table.select],
        act,
        [page.project],
        [*shared, *components.asked, *components.shown],
        each=True,
    )
    for trigger in (page.project.change, components.no.click):  # two events: one drops what comes meanwhile
        on([trigger], hide_question, [], components.asked)
    answered = [*components.asked, *components.shown]
    on([components.yes.click], confirm, [page.project, components.to_delete], answered)
    on([components.empty.click], clear, [page.project], components.shown)


def version(project: Project) -> str:
    """Return a version that changes when a checkpoint is saved, pinned or removed."""
    return files_version(project.run_dir, project.run_dir / TRASH)


def shown(project: Project) -> list[Any]:
    """Return the table and the button that empties the trash."""
    in_trash = bytes_in_trash(project.run_dir)
    return [
        table_html(project, list_checkpoints(project.run_dir)),
        gr.Button(t(EMPTY_TRASH, size=shown_size(in_trash)), visible=in_trash > 0),
    ]


def table_html(project: Project, found: Sequence[Checkpoint]) -> str:
    """Return the checkpoints as a table, newest first."""
    if not found:
        return empty_html(t(NONE_YET))
    losses = validation_losses(RUNS.of(project.run_dir).read())
    head = "".join(f'<th class="{css}">{escape(t(text))}</th>' for text, css in HEADERS.items())
    rows = (
        _row(each, losses.get((each.part or 0, each.step or 0)), deletion_refusal(project.run_dir, each.name))
        for each in found
    )
    return (
        f'<table class="list checkpoints"><thead><tr>{head}<th>{escape(t(ACTIONS_HEADER))}</th></tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table>"
    )


def _row(each: Checkpoint, loss: float | None, refusal: str) -> str:
    notes = [t(word) for field, word in NOTES.items() if getattr(each, field)]
    notes += [] if each.is_complete else [t(INCOMPLETE)]
    cells = [
        "" if each.step is None else f"{each.step:,}",
        "" if each.epoch is None else str(epoch_from_one(each.epoch, each.samples_done)),
        "" if loss is None else f"{loss:.3f}",
        shown_size(each.num_bytes),
        shown_time(each.time),
    ]
    data = "".join(
        f'<td class="{css}" data-label="{escape(t(text))}">{cell}</td>'
        for (text, css), cell in zip(list(HEADERS.items())[1:], cells, strict=True)
    )
    marks = "".join(f"<em>{escape(note)}</em>" for note in notes)
    buttons = [_button(each.name, action, t(text)) for action, text in ACTIONS.items()]
    buttons.append(_button(each.name, "pin", t(UNPIN if each.is_pinned else PIN)))
    buttons.append(_button(each.name, "delete", t(DELETE), refusal))
    return (
        f'<tr data-name="{escape(each.name)}"><td><code>{escape(each.name)}</code>{marks}</td>{data}'
        f'<td class="actions">{"".join(buttons)}</td></tr>'
    )


def _button(name: str, action: str, text: str, refusal: str = "") -> str:
    """Return a button of a row; with a refusal it looks disabled, and a click shows the reason."""
    reason = f' aria-disabled="true" title="{escape(refusal)}"' if refusal else ""
    label = escape(f"{text}: {name}")
    return (
        f'<button type="button" class="quiet" data-action="{action}" data-name="{escape(name)}" '
        f'aria-label="{label}"{reason}>{escape(text)}</button>'
    )


def perform(project: Project, action: Any, name: Any) -> list[Any]:
    """Carry out an action on the checkpoint `name`; both can be anything that a browser sends.

    Returns:
        The choices shared with tab 8 (listen, export), the confirmation question, the list.

    Raises:
        UserError: the checkpoint no longer exists, or the action is refused.
    """
    found = _found(project, name)
    nothing = gr.skip()
    if action in tuple(ACTIONS):  # a tuple, because a dict cannot look up every value
        sent = [stamped(found.name) if action == what else nothing for what in ACTIONS]
        return [*sent, *[nothing] * 5]
    if action == "pin":
        pin(project.run_dir, found.name, is_pinned=not found.is_pinned)
        return [nothing, nothing, *hide_question(), *shown(project)]
    if action == "delete":
        return [nothing, nothing, *question(project, found), nothing, nothing]
    raise UserError(t(CHOOSE))


def question(project: Project, found: Checkpoint) -> list[Any]:
    """Return the confirmation question of a deletion.

    Raises:
        UserError: the checkpoint is needed.
    """
    reason = deletion_refusal(project.run_dir, found.name)
    if reason:
        raise UserError(reason)
    text = t(
        CONFIRM,
        name=found.name,
        size=shown_size(found.num_bytes),
        step="?" if found.step is None else found.step,
    )
    return [gr.Group(visible=True), text, f"{project.root.name}/{found.name}"]


def delete(project: Project, to_delete: str) -> list[Any]:
    """Move the confirmed checkpoint to the trash.

    Args:
        to_delete: "PROJECT/NAME"; the question may still be open after another project was chosen.

    Raises:
        UserError: it is of another project.
    """
    asked_in, _, name = to_delete.partition("/")
    if asked_in != project.root.name:
        raise UserError(t(CHOOSE))
    move_to_trash(project.run_dir, name)
    gr.Info(t(TRASHED, name=name))
    return [*hide_question(), *shown(project)]


def clear_trash(project: Project) -> list[Any]:
    """Empty the trash."""
    gr.Info(t(TRASH_EMPTIED, size=shown_size(empty_trash(project.run_dir))))
    return shown(project)


def hide_question() -> list[Any]:
    """Hide the confirmation question."""
    return [gr.Group(visible=False), "", ""]


def _found(project: Project, name: object) -> Checkpoint:
    """Return the checkpoint of that name.

    Raises:
        UserError: it does not exist, or no longer.
    """
    for each in list_checkpoints(project.run_dir):
        if each.name == name:
            return each
    raise UserError(t(CHOOSE))
