"""Tab 7: progress, charts, health, checkpoints and samples of the current or last run, and TensorBoard.

For a checkpoint, the page sends an action and a name; indextts/runs/checkpoints.py decides at that moment
what is allowed, whatever the page showed before.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from html import escape
from pathlib import Path
from typing import Any

import gradio as gr

from indextts.commands.app import ServeTensorboard
from indextts.errors import UserError
from indextts.projects.jobs.starting import TENSORBOARD_JOB
from indextts.projects.project import Project, ProjectSettings
from indextts.projects.tensorboard import live_port
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
from indextts.webui.data.review_list import playable
from indextts.webui.events import on
from indextts.webui.language import t
from indextts.webui.layout import fold, heading, small_button
from indextts.webui.listen.renders import SPOKEN_NAME, Sound, player_html, read_sounds
from indextts.webui.markup import empty_html, sent, sound_html
from indextts.webui.monitor import curves_view, status
from indextts.webui.page import SEND_CLICKS, Page, shared_choice, stamped
from indextts.webui.run_progress import epoch_from_one, read_run
from indextts.webui.running.outlook import Start
from indextts.webui.running.panel import Stage, stage_panel
from indextts.webui.serving.security import file_address
from indextts.webui.view_versions import files_version, utterances_of

MAX_STEPS = 8  # the newest; older ones stay on disk and in TensorBoard
FOLDER = re.compile(r"part(\d+)_step(\d+)")
NUMBERS = ("step", "epoch", "validation_mel_loss", "size")
HEADERS = {"checkpoint": "", **dict.fromkeys(NUMBERS, "number"), "saved": ""}  # with the class of the cells
ACTIONS = {"listen": "monitor.listen", "export": "monitor.export"}
NOTES = ("is_best", "is_best_heard", "is_latest", "is_pinned")


def build(page: Page) -> None:
    status.build_empty(page)
    with gr.Column(elem_id=status.BODY):
        status.build(page)
        cards = status.build_health(page)
        curves_view.build(page)
        build_checkpoints(page, cards)
        with fold(t("monitor.samples"), "monitor-samples-fold"):
            players = gr.HTML(elem_id="monitor-samples")
        with fold(t("monitor.machine"), "monitor-machine-fold"):
            status.build_machine(page)
        with fold(t("monitor.tensorboard"), "tensorboard"):
            build_tensorboard(page)

    def version(project: Project) -> str:
        # by names only, because redrawing a player stops it
        return " ".join(folder.name for folder in sample_folders(project.run_dir))

    def shown(project: Project) -> str:
        return samples_html(sample_folders(project.run_dir), recordings_of(project))

    page.watch(version, shown, [players])


def sample_folders(run_dir: Path) -> list[Path]:
    """Return the newest complete samples of a run, in the order of parts and steps."""
    folders = [
        (match, path.parent) for path in run_dir.glob(f"samples/*/{SPOKEN_NAME}") if (match := _place(path))
    ]
    return [folder for _, folder in sorted(folders)][-MAX_STEPS:]


def recordings_of(project: Project) -> dict[str, Path]:
    """Return the recordings of the held-out sentences that can be played, by their texts."""
    with suppress(UserError):  # preprocessed elsewhere, or again at this moment
        found = (
            (clip.text, playable(project, clip.audio)) for clip in utterances_of(project.utterances("val"))
        )
        return {text: path for text, path in found if path is not None}
    return {}


def samples_html(folders: list[Path], recordings: Mapping[str, Path]) -> str:
    """Return the players of each sentence, its recording and along the steps, or why there are none."""
    by_text: dict[str, list[Sound]] = {}
    for folder in folders:
        for sound in read_sounds(folder):
            by_text.setdefault(sound.spoken.text, []).append(sound)
    rows = []
    for text, sounds in by_text.items():
        players = [*map(player_html, sounds)]
        if path := recordings.get(text):
            title = escape(t("demo.sound_of.recording"))
            players.insert(
                0, f'<div class="player">{sound_html(file_address(path))}<span>{title}</span></div>'
            )
        rows.append(f'<p class="lead">{escape(text)}</p><div class="samples">{"".join(players)}</div>')
    return "".join(rows) or empty_html(t("monitor.no_samples"))


def _place(path: Path) -> tuple[int, int] | None:
    match = FOLDER.fullmatch(path.parent.name)
    return (int(match[1]), int(match[2])) if match else None


FRAME = (
    '<iframe src="tensorboard/{project}/" title="TensorBoard" id="tensorboard-frame" loading="lazy"></iframe>'
)


def build_tensorboard(page: Page) -> None:
    stage_panel(page, Stage(TENSORBOARD_JOB, "monitor.start_tensorboard", prepare))
    frame = gr.HTML(t("monitor.tensorboard_help"), elem_id="tensorboard-page")
    # separate from the status, because reloading the frame loses its settings
    page.watch(port_version, frame_of, [frame])


def prepare(project: Project, _settings: ProjectSettings | None = None) -> Start:
    """Return the command that serves the event files of the run; a UserError without any."""
    folder = project.run_dir / "logs"
    if not folder.is_dir():
        raise UserError(t("monitor.no_events", folder=folder))
    prefix = f"/tensorboard/{project.root.name}"
    address = project.tensorboard_address
    return Start([ServeTensorboard(logdir=folder, address_file=address, path_prefix=prefix)])


def frame_of(project: Project) -> str:
    if live_port(project.tensorboard_address) is None:
        return t("monitor.tensorboard_help")
    return FRAME.format(project=escape(project.root.name))


def port_version(project: Project) -> str:
    return str(live_port(project.tensorboard_address))


def build_checkpoints(page: Page, cards: gr.HTML) -> None:
    """Build the list and connect its buttons, and those of the `cards` of the health."""
    heading("monitor.checkpoints")
    table = gr.HTML(elem_id="checkpoint-table", js_on_load=SEND_CLICKS)
    with gr.Row(elem_id="checkpoint-trash"):
        restore = small_button("monitor.restore_trash", "checkpoint-restore", visible=False)
        empty = gr.Button("", visible=False, size="sm", elem_id="checkpoint-empty", elem_classes="asks")
    outputs = [table, restore, empty]
    shared = [shared_choice(page, what) for what in ACTIONS]

    def act(project: Project, event: gr.SelectData) -> list[Any]:
        return perform(project, event.row_value)

    page.watch(lambda project: files_version(project.run_dir, project.run_dir / TRASH), listed, outputs)
    on([table.select, cards.select], act, [page.project], [*shared, *outputs], each=True)
    on([restore.click], take_back, [page.project], outputs)
    on([empty.click], clear_trash, [page.project], outputs)


def listed(project: Project) -> list[Any]:
    in_trash = bytes_in_trash(project.run_dir)
    return [
        checkpoints_html(project, list_checkpoints(project.run_dir)),
        gr.Button(visible=in_trash > 0),
        gr.Button(t("monitor.empty_trash", size=shown_size(in_trash)), visible=in_trash > 0),
    ]


def checkpoints_html(project: Project, found: Sequence[Checkpoint]) -> str:
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
    """Carry out an action on a checkpoint, or raise a UserError; return tab 8's choices, and the list.

    Args:
        row: the action and the names of project and checkpoint; or anything else that a browser sends.
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
    return [gr.skip(), gr.skip(), *listed(project)]


def take_back(project: Project) -> list[Any]:
    gr.Info(t("monitor.restored", names=", ".join(restore_trash(project.run_dir))))
    return listed(project)


def clear_trash(project: Project) -> list[Any]:
    gr.Info(t("monitor.trash_emptied", size=shown_size(empty_trash(project.run_dir))))
    return listed(project)
