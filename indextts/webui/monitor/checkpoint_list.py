"""The checkpoints of tab 7: listen to one, export, pin or delete it.

The page sends the name of a checkpoint; indextts/runs/checkpoints.py decides at that moment what is allowed,
whatever the page showed before.
"""

import time
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
from indextts.system.amounts import shown_size
from indextts.webui.events import on
from indextts.webui.language import t
from indextts.webui.monitor.metrics_reader import RUNS
from indextts.webui.page import Page, shared_choice, stamped
from indextts.webui.view_versions import files_version

HEADERS = [
    "monitor.headers.checkpoint",
    "monitor.headers.step",
    "monitor.headers.epoch",
    "monitor.headers.saved",
    "monitor.headers.validation_mel_loss",
    "monitor.headers.size",
    "monitor.headers.notes",
]
NONE_YET = "monitor.none_yet"
CHOOSE = "monitor.choose"
PIN = "monitor.pin"
UNPIN = "monitor.unpin"
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


class _Components:
    """Components of the list and of its confirmation question."""

    def __init__(self) -> None:
        gr.Markdown(t("monitor.checkpoints"))
        self.none = gr.Markdown(t(NONE_YET), elem_id="checkpoint-none")
        with gr.Column(visible=False) as self.body:
            self.table = gr.Dataframe(
                headers=list(map(t, HEADERS)),
                show_label=False,
                interactive=False,
                max_height=320,
                elem_id="checkpoint-table",
            )
            self.chosen = gr.Dropdown([], label=t("monitor.checkpoint"), elem_id="checkpoint-chosen")
            with gr.Row():
                self.listen = gr.Button(
                    t("monitor.use_for_listening"), variant="primary", elem_id="checkpoint-listen"
                )
                self.export = gr.Button(t("monitor.export"), elem_id="checkpoint-export")
                self.pin = gr.Button(t(PIN), elem_id="checkpoint-pin")
                self.delete = gr.Button(t("monitor.delete"), variant="stop", elem_id="checkpoint-delete")
        with gr.Group(visible=False, elem_id="checkpoint-confirm") as self.confirmation:
            self.question = gr.Markdown(elem_id="checkpoint-question", container=True)
            with gr.Row():
                self.yes = gr.Button(t("monitor.move_to_trash"), variant="stop", elem_id="checkpoint-yes")
                self.no = gr.Button(t("monitor.cancel_delete"), elem_id="checkpoint-no")
        self.empty = gr.Button("", visible=False, size="sm", elem_id="checkpoint-empty")
        self.to_delete = gr.Textbox(visible="hidden", container=False, show_label=False)

    @property
    def shown(self) -> list[Any]:
        return [self.none, self.body, self.table, self.chosen, self.pin, self.empty]


def build(page: Page) -> None:
    """Build the list and connect its buttons."""
    components = _Components()
    name, chosen = page.project, components.chosen

    def show(project_name: str, now: str | None) -> list[Any]:
        return shown(page.find_project(project_name), now)

    def select(event: gr.SelectData) -> str:
        return str(event.row_value[0])

    page.watch(version, show, components.shown, [chosen])
    on([components.table.select], select, [], [chosen], each=True)
    on([chosen.change], show, [name, chosen], components.shown, latest=True)
    on(
        [chosen.change, page.project.change, components.no.click],
        hide_confirmation,
        [],
        [components.confirmation, components.to_delete],
    )
    for button, what in ((components.listen, "listen"), (components.export, "export")):
        on([button.click], lambda *v: share_checkpoint(page, *v), [name, chosen], [shared_choice(page, what)])

    on([components.pin.click], lambda *v: toggle_pin(page, *v), [name, chosen], components.shown)
    question = [components.confirmation, components.question, components.to_delete]
    on([components.delete.click], lambda *v: confirm_delete(page, *v), [name, chosen], question)
    after_delete = [components.confirmation, components.to_delete, *components.shown]
    on([components.yes.click], lambda *v: delete(page, *v), [name, components.to_delete], after_delete)
    on([components.empty.click], lambda *v: clear_trash(page, *v), [name, chosen], components.shown)


def version(project: Project) -> str:
    """Return a version that changes when a checkpoint is saved, pinned or removed."""
    return files_version(project.run_dir, project.run_dir / TRASH)


def shown(project: Project, now: str | None) -> list[Any]:
    """Return the values of the components; the selection stays while it exists."""
    found = list_checkpoints(project.run_dir)
    names = [each.name for each in found]
    chosen = next((each for each in found if each.name == now), None)
    is_pinned = chosen is not None and chosen.is_pinned
    in_trash = bytes_in_trash(project.run_dir)
    return [
        gr.Markdown(visible=not found),
        gr.Column(visible=bool(found)),
        rows(project, found),
        gr.Dropdown(choices=names, value=names[0] if names else None)
        if chosen is None
        else gr.Dropdown(names),
        gr.Button(t(UNPIN if is_pinned else PIN)),
        gr.Button(t(EMPTY_TRASH, size=shown_size(in_trash)), visible=in_trash > 0),
    ]


def rows(project: Project, found: list[Checkpoint]) -> list[list[str]]:
    """Return a row for each checkpoint."""
    losses = validation_losses(RUNS.of(project.run_dir).read())
    return [_row(each, losses.get((each.part or 0, each.step or 0))) for each in found]


def _row(each: Checkpoint, loss: float | None) -> list[str]:
    notes = [t(word) for field, word in NOTES.items() if getattr(each, field)]
    return [
        each.name,
        "" if each.step is None else f"{each.step:,}",
        "" if each.epoch is None else str(each.epoch),
        time.strftime("%Y-%m-%d %H:%M", time.localtime(each.time)),
        "" if loss is None else f"{loss:.3f}",
        shown_size(each.num_bytes),
        ", ".join(notes if each.is_complete else [*notes, t(INCOMPLETE)]),
    ]


def share_checkpoint(page: Page, name: str, chosen: str | None) -> str:
    """Return the value that makes tab 8 select this checkpoint."""
    found = _found(page.find_project(name), chosen)
    return stamped(found.name)


def toggle_pin(page: Page, name: str, chosen: str | None) -> list[Any]:
    """Pin the checkpoint, or unpin it if it is pinned."""
    project = page.find_project(name)
    found = _found(project, chosen)
    pin(project.run_dir, found.name, is_pinned=not found.is_pinned)
    return shown(project, found.name)


def confirm_delete(page: Page, name: str, chosen: str | None) -> list[Any]:
    """Show the confirmation question; a UserError reports a refusal at once."""
    project = page.find_project(name)
    found = _found(project, chosen)
    reason = deletion_refusal(project.run_dir, found.name)
    if reason:
        raise UserError(reason)
    question = t(
        CONFIRM,
        name=found.name,
        size=shown_size(found.num_bytes),
        step="?" if found.step is None else found.step,
    )
    return [gr.Group(visible=True), question, found.name]


def delete(page: Page, name: str, to_delete: str) -> list[Any]:
    """Move the confirmed checkpoint to the trash."""
    project = page.find_project(name)
    move_to_trash(project.run_dir, to_delete)
    gr.Info(t(TRASHED, name=to_delete))
    return [*hide_confirmation(), *shown(project, None)]


def clear_trash(page: Page, name: str, chosen: str | None) -> list[Any]:
    """Empty the trash."""
    project = page.find_project(name)
    gr.Info(t(TRASH_EMPTIED, size=shown_size(empty_trash(project.run_dir))))
    return shown(project, chosen)


def hide_confirmation() -> list[Any]:
    """Hide the confirmation question."""
    return [gr.Group(visible=False), ""]


def _found(project: Project, chosen: str | None) -> Checkpoint:
    """Return the chosen checkpoint.

    Raises:
        UserError: none is chosen, or it no longer exists.
    """
    for each in list_checkpoints(project.run_dir):
        if each.name == chosen:
            return each
    raise UserError(t(CHOOSE))
