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
    restore_trash,
    validation_losses,
)
from indextts.system.amounts import shown_size, shown_time
from indextts.webui.events import on
from indextts.webui.language import t
from indextts.webui.layout import heading, small_button
from indextts.webui.markup import empty_html, sent
from indextts.webui.page import SEND_CLICKS, Page, shared_choice, stamped
from indextts.webui.run_progress import epoch_from_one, read_run
from indextts.webui.view_versions import files_version

NUMBERS = ("step", "epoch", "validation_mel_loss", "size")
HEADERS = {"checkpoint": "", **dict.fromkeys(NUMBERS, "number"), "saved": ""}  # with the class of the cells
ACTIONS = {"listen": "monitor.listen", "export": "monitor.export"}
NOTES = ("is_best", "is_best_heard", "is_latest", "is_pinned")


def build(page: Page, cards: gr.HTML) -> None:
    """Build the list and connect its buttons, and those of the `cards` of the health."""
    heading("monitor.checkpoints")
    table = gr.HTML(elem_id="checkpoint-table", js_on_load=SEND_CLICKS)
    with gr.Row(elem_id="checkpoint-trash"):
        restore = small_button("monitor.restore_trash", "checkpoint-restore", visible=False)
        empty = gr.Button("", visible=False, size="sm", elem_id="checkpoint-empty", elem_classes="asks")
    listed = [table, restore, empty]
    shared = [shared_choice(page, what) for what in ACTIONS]

    def act(project: Project, event: gr.SelectData) -> list[Any]:
        return perform(project, event.row_value)

    page.watch(version, shown, listed)
    on([table.select, cards.select], act, [page.project], [*shared, *listed], each=True)
    on([restore.click], take_back, [page.project], listed)
    on([empty.click], clear_trash, [page.project], listed)


def version(project: Project) -> str:
    return files_version(project.run_dir, project.run_dir / TRASH)


def shown(project: Project) -> list[Any]:
    in_trash = bytes_in_trash(project.run_dir)
    return [
        table_html(project, list_checkpoints(project.run_dir)),
        gr.Button(visible=in_trash > 0),
        gr.Button(t("monitor.empty_trash", size=shown_size(in_trash)), visible=in_trash > 0),
    ]


def table_html(project: Project, found: Sequence[Checkpoint]) -> str:
    if not found:
        return empty_html(t("monitor.none_yet"))
    losses = validation_losses(read_run(project.run_dir))
    head = "".join(
        f'<th class="{css}">{escape(t(f"monitor.headers.{name}"))}</th>' for name, css in HEADERS.items()
    )
    rows = (_row(project, each, losses.get((each.part or 0, each.step or 0))) for each in found)
    return (
        f'<table class="list checkpoints"><thead><tr>{head}'
        f"<th>{escape(t('monitor.headers.actions'))}</th></tr></thead><tbody>{''.join(rows)}</tbody></table>"
    )


def _row(project: Project, each: Checkpoint, loss: float | None) -> str:
    notes = [t(f"monitor.notes.{field}") for field in NOTES if getattr(each, field)]
    notes += [] if each.is_complete else [t("monitor.incomplete")]
    cells = [
        "" if each.step is None else f"{each.step:,}",
        "" if each.epoch is None else str(epoch_from_one(each.epoch, each.samples_done)),
        "" if loss is None else f"{loss:.3f}",
        shown_size(each.num_bytes),
        shown_time(each.time),
    ]
    data = "".join(
        f'<td class="{css}" data-label="{escape(t(f"monitor.headers.{name}"))}">{cell}</td>'
        for (name, css), cell in zip(list(HEADERS.items())[1:], cells, strict=True)
    )
    marks = "".join(f"<em>{escape(note)}</em>" for note in notes)
    texts = ACTIONS | {"pin": "monitor.unpin" if each.is_pinned else "monitor.pin"}
    buttons = [_button(project, each.name, action, t(text)) for action, text in texts.items()]
    refusal = deletion_refusal(project.run_dir, each.name)
    step = "?" if each.step is None else each.step
    question = escape(t("monitor.confirm_delete", name=each.name, size=shown_size(each.num_bytes), step=step))
    # a needed checkpoint looks as if it could not be deleted, and a click shows the reason
    more = f'aria-disabled="true" title="{escape(refusal)}"' if refusal else f'data-question="{question}"'
    buttons.append(_button(project, each.name, "delete", t("monitor.delete"), more))
    return (
        f'<tr data-name="{escape(each.name)}"><td><code>{escape(each.name)}</code>{marks}</td>{data}'
        f'<td class="actions">{"".join(buttons)}</td></tr>'
    )


def _button(project: Project, name: str, action: str, text: str, more: str = "") -> str:
    """Return a button of a row; it sends the project of the table, whatever was chosen meanwhile."""
    label = escape(f"{text}: {name}")
    return (
        f'<button type="button" class="quiet" data-action="{action}" {sent(action, project.root.name, name)} '
        f'aria-label="{label}" {more}>{escape(text)}</button>'
    )


def perform(project: Project, row: Any) -> list[Any]:
    """Carry out an action on a checkpoint, or raise a UserError.

    Args:
        row: the action and the names of project and checkpoint; or anything else that a browser sends.

    Returns:
        The choices shared with tab 8 (listen, export), and the list.
    """
    action, *names = row if isinstance(row, list) and row else [None]
    rows = [([project.root.name, each.name], each) for each in list_checkpoints(project.run_dir)]
    best = [([project.root.name, "best.pth"], each) for _, each in rows if each.is_best]
    found = next((each for own, each in [*rows, *best] if own == names), None)
    if found is None:
        raise UserError(t("monitor.choose"))
    if action in tuple(ACTIONS):  # a tuple, because a dict cannot look up every value
        shared = [stamped(found.name) if action == what else gr.skip() for what in ACTIONS]
        return [*shared, gr.skip(), gr.skip(), gr.skip()]
    if action == "pin":
        pin(project.run_dir, found.name, is_pinned=not found.is_pinned)
    elif action == "delete":
        move_to_trash(project.run_dir, found.name)
        gr.Info(t("monitor.trashed", name=found.name))
    else:
        raise UserError(t("monitor.choose"))
    return [gr.skip(), gr.skip(), *shown(project)]


def take_back(project: Project) -> list[Any]:
    gr.Info(t("monitor.restored", names=", ".join(restore_trash(project.run_dir))))
    return shown(project)


def clear_trash(project: Project) -> list[Any]:
    gr.Info(t("monitor.trash_emptied", size=shown_size(empty_trash(project.run_dir))))
    return shown(project)
